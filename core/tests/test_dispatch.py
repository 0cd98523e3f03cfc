"""Dispatch on a toy family: every reason is kept, and nothing falls back in silence."""

import json
import textwrap
from typing import ClassVar

import attrs
import pytest
from dispatch_toy import (
    NARROW,
    WIDE,
    Composition,
    ToyRequest,
    ToySpec,
    candidate,
    candidates,
    limit,
    ran,
    selected,
    toy_plan,
)

import kinfolk.dispatch as dispatching
from kinfolk.candidate import Note
from kinfolk.dispatch import Why, explain, select
from kinfolk.errors import NoCandidate, PinRefused, PluginError
from kinfolk.expr import fact, field
from kinfolk.fields import FieldError
from kinfolk.flavor import UnknownFlavor
from kinfolk.refusal import field_refusal
from kinfolk.request import Request


def test_the_first_by_priority_then_name_is_selected():
    assert selected(Composition(), ToyRequest()).candidate == "toy.narrow"
    assert selected(Composition(), ToyRequest(num_heads=64)).candidate == "toy.wide"
    offers = [candidate(name, priority) for name, priority in (("b", 1), ("c", 0), ("a", 1), ("d", 0))]
    assert selected(Composition(offers), ToyRequest()).candidate == "c"
    assert [each.name for each in explain(Composition(offers), ToyRequest(), "llvm22").candidates] == [
        "c",
        "d",
        "a",
        "b",
    ]


def test_dispatch_fills_in_what_it_knows():
    plan = selected(Composition(), ToyRequest(num_heads=64))
    assert (plan.arch, plan.flavor, plan.candidate) == ("toyarch", "llvm22", "toy.wide")
    assert plan.versions == {"kinfolk-toy": "1", "kinfolk-toyarch": "2"}
    assert plan.policy_digests == {"order": "d1"}
    assert plan.facts == {"wave_heads": 16}
    assert plan.notes == ("slower than toy.narrow below 512 keys", "always said")
    assert type(plan.request) is ToyRequest
    assert plan.grid(plan.launches[0]) == (4, 4, 1)


def test_no_candidate_gives_every_reason_of_every_plugin():
    composition = Composition(
        (*candidates(), candidate("toy.any", 2)),
        admit=(limit("policy.q", "total_q", field("total_q") < 500, "policy"),),
        validate=(limit("toyarch.width", "width", field("width") <= 64),),
    )
    request = ToyRequest(num_heads=136, total_q=600, max_seqlen_k=1025)
    with pytest.raises(NoCandidate) as caught:
        selected(composition, request)
    assert str(caught.value) == textwrap.dedent(f"""\
        no candidate for {request} on toyarch; 3 considered:
          toy.narrow: num_heads is 136, supported: 16 or 32 (it is a toy). Play otherwise.
          toy.narrow: total_q is 600, supported: total_q * num_heads <= 4096 (it is a toy). Play otherwise.
          toy.narrow: max_seqlen_k is 1025, supported: at most 1024 (it is a toy). Play otherwise.
          toy.wide: num_heads is 136, supported: a multiple of 16 and at most 128 (it is a toy). Play otherwise.
          toy.any: width is 136, supported: at most 64 (it is a toy). Play otherwise. [kinfolk-toyarch]
          toy.any: total_q is 600, supported: less than 500 (it is a toy). Play otherwise. [kinfolk-policy]""")
    codes = [refusal.code for refusal in caught.value.refusals]
    assert codes == [limit.code for limit in (*NARROW, *WIDE)] + ["toyarch.width", "policy.q"]


def test_a_reason_that_several_candidates_give_is_told_once():
    composition = Composition([candidate("a", 0, WIDE), candidate("b", 1, (*NARROW, *WIDE)), candidate("c", 2, WIDE)])
    request = ToyRequest(num_heads=136)
    with pytest.raises(NoCandidate) as caught:
        selected(composition, request)
    assert str(caught.value) == textwrap.dedent(f"""\
        no candidate for {request} on toyarch; 3 considered:
          a, b, c: num_heads is 136, supported: a multiple of 16 and at most 128 (it is a toy). Play otherwise.
          b: num_heads is 136, supported: 16 or 32 (it is a toy). Play otherwise.""")
    assert len(caught.value.refusals) == 4


def test_a_candidate_whose_capability_refuses_is_not_planned():
    planned = []

    def noting(request, arch):
        planned.append(request.num_heads)
        return toy_plan(ToySpec(width=1), request)

    composition = Composition([candidate("a", capability=WIDE, plan=noting)])
    with pytest.raises(NoCandidate):
        selected(composition, ToyRequest(num_heads=129))
    assert planned == []
    selected(composition, ToyRequest(num_heads=128))
    assert planned == [128]


def test_no_offer_at_all_has_a_reason_too():
    with pytest.raises(NoCandidate, match="0 considered") as caught:
        selected(Composition(()), ToyRequest())
    assert [refusal.code for refusal in caught.value.refusals] == ["toy.candidates"]


@pytest.mark.parametrize("num_heads, served", [(128, True), (144, False), (130, False)])
def test_a_pin_is_served_or_refused_and_never_replaced(num_heads, served):
    request = ToyRequest(num_heads=num_heads, candidate="toy.wide")
    composition = Composition((*candidates(), candidate("toy.any")))
    if served:
        assert selected(composition, request).candidate == "toy.wide"
        return
    with pytest.raises(PinRefused, match=r"pins candidate toy\.wide") as caught:
        selected(composition, request)
    assert [refusal.code for refusal in caught.value.refusals] == ["toy.wide.heads"]


def test_a_pin_beats_priority_and_an_unknown_pin_names_what_there_is():
    assert selected(Composition(), ToyRequest(candidate="toy.wide")).candidate == "toy.wide"
    with pytest.raises(PinRefused) as caught:
        selected(Composition(), ToyRequest(candidate="toy.best"))
    [refusal] = caught.value.refusals
    assert (refusal.code, refusal.limit) == ("request.candidate.unknown", "toy.narrow, toy.wide")


def test_a_policy_reorders_and_may_not_drop():
    def backwards(request, survivors):
        return survivors[::-1]

    assert selected(Composition(rank=backwards), ToyRequest()).candidate == "toy.wide"
    with pytest.raises(PluginError, match="only reorders"):
        selected(Composition(rank=lambda request, survivors: survivors[:1]), ToyRequest())


def test_a_flavor_is_served_by_rank():
    newer = candidate("toy.new", -1, min_llvm=22)
    composition = Composition((*candidates(), newer))
    assert selected(composition, ToyRequest(), "llvm22").candidate == "toy.new"
    assert selected(composition, ToyRequest(), "llvm20").candidate == "toy.narrow"
    [first, *_] = explain(composition, ToyRequest(), "llvm20").candidates
    assert [(each.code, each.value, each.limit) for each in first.refusals] == [
        ("toy.new.flavor", "llvm20", "llvm22 or newer")
    ]
    for unknown in ("llvm23", "llvm", "gcc"):
        with pytest.raises(UnknownFlavor, match="llvm20, llvm22"):
            selected(composition, ToyRequest(), unknown)


def test_a_newer_flavor_is_served_once_registered():
    script = """
        from kinfolk.flavor import UnknownFlavor, flavor_named, flavors, register_flavor
        register_flavor("llvm23")
        assert flavor_named("llvm23").rank == 23
        assert [flavor.rank for flavor in flavors()] == [20, 22, 23]
        assert register_flavor("llvm23") is flavor_named("llvm23")
        for name in ("llvm023", "llvm", "gcc13", "llvm23 "):
            try:
                register_flavor(name)
            except UnknownFlavor:
                continue
            raise AssertionError(name)
        print("done")
    """
    assert ran(script) == "done\n"


def test_a_request_of_another_family_is_the_callers_mistake():
    @attrs.frozen(kw_only=True)
    class Other(Request):
        family: ClassVar[str] = "other"

    with pytest.raises(TypeError, match="family toy takes a ToyRequest"):
        selected(Composition(), Other())


def broken_plans():
    yield "failed to plan it", lambda request, arch: toy_plan(ToySpec(width=0), request)
    yield "failed to plan it", lambda request, arch: toy_plan(ToySpec(width=request.absent), request)
    yield "by zero", lambda request, arch: toy_plan(ToySpec(width=1 // 0), request)
    yield "which is no Plan", lambda request, arch: None
    yield (
        "max_waves",
        lambda request, arch: attrs.evolve(
            plan := toy_plan(ToySpec(width=1), request),
            launches=(attrs.evolve(plan.launches[0], condition=fact("max_waves") > 1),),
        ),
    )


@pytest.mark.parametrize("message, plan", list(broken_plans()))
def test_a_plan_that_fails_is_its_plugins_fault(message, plan):
    with pytest.raises(PluginError, match=message) as caught:
        selected(Composition([candidate("toy.broken", plan=plan)]), ToyRequest())
    assert "toy.broken" in str(caught.value)
    assert "kinfolk-toy" in str(caught.value)


# --------------------------------------------------------------------------------------------------------------- why


def test_why_is_the_documented_schema():
    why = explain(Composition(), ToyRequest(num_heads=64), "llvm22")
    data = json.loads(json.dumps(why.to_dict()))
    assert data["schema"] == "kinfolk.why/1"
    assert (data["status"], data["selected"], data["refusals"]) == ("pass", "toy.wide", [])
    assert data["request"] == ToyRequest(num_heads=64).to_dict()
    narrow, wide = data["candidates"]
    assert narrow.keys() == {"name", "admitted", "notes", "refusals"}
    assert (narrow["name"], narrow["admitted"], narrow["notes"]) == ("toy.narrow", False, [])
    assert [row["code"] for row in narrow["refusals"]] == ["toy.narrow.heads"]
    assert narrow["refusals"][0].keys() == {
        "code", "kind", "field", "value", "limit", "because", "remedy", "plugin"
    }  # fmt: skip
    assert (wide["admitted"], wide["notes"]) == (True, ["slower than toy.narrow below 512 keys", "always said"])
    assert "note: slower than toy.narrow" in str(why)


@pytest.mark.parametrize("length, notes", [(511, 2), (512, 1)])
def test_slower_is_a_note_and_no_refusal(length, notes):
    why = explain(Composition(), ToyRequest(num_heads=64, max_seqlen_k=length), "llvm22")
    assert why.selected == "toy.wide"
    assert len(why.candidates[1].notes) == notes


def slow_above(length):
    """Offer toy.wide, and before it toy.narrow with a note that it is slower above a length."""
    note = Note(f"slower above {length} keys", field("max_seqlen_k") > length, slower=True)
    return Composition((candidate("toy.wide", 1, WIDE), candidate("toy.narrow", 0, NARROW, notes=(note,))))


@pytest.mark.parametrize("length, selected", [(512, "toy.narrow"), (513, "toy.wide")])
def test_one_that_is_slower_comes_after_those_that_are_not(length, selected):
    request = ToyRequest(num_heads=16, max_seqlen_k=length)
    why = explain(slow_above(512), request, "llvm22")
    assert why.selected == selected
    assert [each.name for each in why.candidates] == ["toy.narrow", "toy.wide"], "told by priority"
    pinned = attrs.evolve(request, candidate="toy.narrow")
    assert explain(slow_above(512), pinned, "llvm22").selected == "toy.narrow"
    alone = attrs.evolve(slow_above(0).offers[1], capability=())
    assert explain(Composition((alone,)), request, "llvm22").selected == "toy.narrow", "none is faster"
    both = tuple(attrs.evolve(each, notes=alone.notes) for each in slow_above(0).offers)
    assert explain(Composition(both), request, "llvm22").selected == "toy.narrow", "then priority decides"


def test_a_selection_holds_as_long_as_none_becomes_faster():
    near = select(slow_above(512), ToyRequest(num_heads=16, max_seqlen_k=100), "llvm22").interval("max_seqlen_k")
    far = select(slow_above(512), ToyRequest(num_heads=16, max_seqlen_k=600), "llvm22").interval("max_seqlen_k")
    assert near.high == 512 and (far.low, far.high) == (513, 1024)


def test_why_answers_where_dispatch_raises():
    request = ToyRequest(num_heads=17, candidate="toy.wide")
    why = explain(Composition(), request, "llvm22").to_dict()
    assert (why["status"], why["selected"]) == ("refused", None)
    assert [row["code"] for row in why["refusals"]] == ["toy.wide.heads"]
    assert len(why["candidates"]) == 2
    everything = explain(Composition(), ToyRequest(num_heads=17), "llvm22")
    assert [row.code for row in everything.refusals] == ["toy.narrow.heads", "toy.wide.heads"]


def test_why_of_fields_that_make_no_request():
    with pytest.raises(FieldError) as caught:
        ToyRequest(num_heads=2.0)
    row = field_refusal(caught.value, "kinfolk-toy")
    data = Why.invalid({"num_heads": 2.0}, "toyarch", "llvm22", [row]).to_dict()
    assert (data["status"], data["candidates"]) == ("refused", [])
    assert data["refusals"][0]["code"] == "request.num_heads.type"


def test_dispatch_and_why_compose_family_and_arch(monkeypatch):
    asked = []
    composition = Composition()
    monkeypatch.setattr(dispatching, "compose", lambda family, arch: asked.append((family, arch)) or composition)
    assert dispatching.dispatch(ToyRequest(), "toyarch").candidate == "toy.narrow"
    assert dispatching.why(ToyRequest(), "toyarch", "llvm20").flavor == "llvm20"
    assert asked == [("toy", "toyarch")] * 2
