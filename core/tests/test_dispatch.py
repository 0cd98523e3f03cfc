"""Dispatch on a toy family: every reason is kept, kept selections stay right, nothing is touched."""

import json
import re
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kinfolk.dispatch as dispatching
from kinfolk.candidate import Candidate, Note
from kinfolk.dispatch import SelectionCache, Why, explain, select
from kinfolk.errors import NoCandidate, PinRefused, PluginError
from kinfolk.expr import I64_MAX, Scope, all_of, ceil_div, fact, field, multiple_of, one_of
from kinfolk.fields import ExactBool, ExactFloat, ExactInt, ExactStr, FieldError, OneOf, Optional, launch_field
from kinfolk.flavor import UnknownFlavor
from kinfolk.ir.types import F32, I32, PointerType
from kinfolk.parameters import Parameter
from kinfolk.plan import Argument, Axis, Binding, Launch, Plan
from kinfolk.refusal import Limit, field_refusal, unmet
from kinfolk.request import Request
from kinfolk.spec import Spec


@attrs.frozen(kw_only=True)
class ToyRequest(Request):
    family: ClassVar[str] = "toy"
    num_heads: int = attrs.field(default=16, validator=ExactInt())
    dtype: str = attrs.field(default="bf16", validator=OneOf(("bf16", "f16")))
    candidate: str | None = attrs.field(default=None, validator=Optional(ExactStr()))
    total_q: int = launch_field(default=4, validator=ExactInt(minimum=0))
    max_seqlen_k: int = launch_field(default=100, validator=ExactInt(minimum=0))
    causal: bool = launch_field(default=True, validator=ExactBool())
    scale: float = launch_field(default=1.0, validator=ExactFloat())

    def whole(self):
        return (self.total_q, self.max_seqlen_k, self.causal, self.scale)


@attrs.frozen(kw_only=True)
class ToySpec(Spec):
    width: int = attrs.field(validator=ExactInt())
    split: bool = attrs.field(default=False, validator=ExactBool())

    def parameters(self):
        return (
            Parameter(name="out", type=PointerType(F32), access="write", alignment=4),
            Parameter(name="length", type=I32),
        )


def toy_plan(spec, request):
    return Plan(
        request=request,
        launches=(
            Launch(
                spec=spec,
                grid=(ceil_div(field("num_heads"), fact("wave_heads")), field("total_q"), 1),
                block=64,
                arguments=(Argument("out", "pointer", "out"), Argument("length", "i32", field("max_seqlen_k"))),
            ),
        ),
        bindings=(
            Binding(
                name="out", role="output", dtype="f32", shape=(Axis(field("total_q")),), alignment=4, access="write"
            ),
        ),
        outputs=("out",),
    )


def limit(code, name, condition, kind="cannot"):
    return Limit(code, kind, name, condition, because="it is a toy", remedy="Play otherwise.")


HEADS, LENGTH = field("num_heads"), field("max_seqlen_k")
NARROW = (
    limit("toy.narrow.heads", "num_heads", one_of(HEADS, (16, 32))),
    limit("toy.narrow.work", "total_q", field("total_q") * HEADS <= 4096),
    limit("toy.narrow.length", "max_seqlen_k", LENGTH <= 1024),
)
WIDE = (limit("toy.wide.heads", "num_heads", all_of(multiple_of(HEADS, 16), HEADS <= 128), "not_implemented"),)
NOTES = (Note("slower than toy.narrow below 512 keys", LENGTH < 512), Note("always said"))


def candidate(name, priority=0, capability=(), plan=None, **more):
    return Candidate(
        name=name,
        priority=priority,
        plugin=more.pop("plugin", "kinfolk-toy"),
        capability=capability,
        plan=plan or (lambda request, arch: toy_plan(ToySpec(width=request.num_heads), request)),
        specs=lambda arch, flavor: (),
        **more,
    )


def split_by_expr(request, arch):
    split = (LENGTH > 256).evaluate(Scope(request=request, arch=arch))
    return toy_plan(ToySpec(width=request.num_heads, split=split), request)


def split_by_python(request, arch):
    return toy_plan(ToySpec(width=request.num_heads, split=request.max_seqlen_k > 256), request)


def candidates():
    return (
        candidate("toy.wide", 1, WIDE, split_by_expr, notes=NOTES),
        candidate("toy.narrow", 0, NARROW),
    )


class Composition:
    """A composition of a toy family, a toy arch and whatever hooks a test gives."""

    def __init__(self, offers=None, admit=(), validate=(), rank=None):
        self.arch = SimpleNamespace(name="toyarch", facts={"wave_heads": 16, "max_q": 1000})
        self.request_type = ToyRequest
        self.versions = {"kinfolk-toy": "1", "kinfolk-toyarch": "2"}
        self.policy_digests = {"order": "d1"}
        self.offers = candidates() if offers is None else offers
        self.admission, self.validation, self.order = admit, validate, rank

    def candidates(self):
        return self.offers

    def validate_spec(self, spec):
        return unmet(self.validation, spec, self.arch, "kinfolk-toyarch")

    def admit(self, request, candidate, plan):
        return unmet(self.admission, request, self.arch, "kinfolk-policy")

    def rank(self, request, survivors):
        return self.order(request, survivors) if self.order else survivors


def selected(composition, request, flavor="llvm22"):
    return select(composition, request, flavor).plan


# ------------------------------------------------------------------------------------------- admission and selection


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
    assert run(script) == "done\n"


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


# -------------------------------------------------------------------------------------------------------- the cache


def test_a_selection_holds_exactly_as_far_as_its_conditions_do():
    selection = select(Composition(), ToyRequest(num_heads=16, total_q=4, max_seqlen_k=100), "llvm22")
    # 256 * 16 = 4096 and 1024 are the limits of toy.narrow; toy.wide splits from 257 and its note ends at 512.
    ranges = {name: selection.interval(name) for name in ("total_q", "max_seqlen_k")}
    assert (ranges["max_seqlen_k"].low, ranges["max_seqlen_k"].high) == (-(2**63), 256)
    assert ranges["total_q"].high == 256
    assert ranges["total_q"].low == -(2**63) // 16
    assert selection.exact == ()
    longer = select(Composition(), ToyRequest(num_heads=16, max_seqlen_k=600), "llvm22").interval("max_seqlen_k")
    assert (longer.low, longer.high) == (512, 1024)


def test_conditions_of_a_candidate_that_is_refused_anyway_do_not_narrow():
    never = limit("a.heads", "num_heads", HEADS > 1000)
    short = limit("a.length", "max_seqlen_k", LENGTH <= 1024)
    for capability, high in (((never, short), I64_MAX), ((short, never), I64_MAX), ((short,), 1024)):
        selection = select(Composition([candidate("a", 0, capability), candidate("b", 1)]), ToyRequest(), "llvm22")
        assert selection.interval("max_seqlen_k").high == high
    both = (limit("a.q", "total_q", field("total_q") > 99), short)
    selection = select(Composition([candidate("a", 0, both), candidate("b", 1)]), ToyRequest(total_q=4), "llvm22")
    assert (selection.interval("total_q").high, selection.interval("max_seqlen_k").high) == (99, 1024)
    same_code = (limit("a", "num_heads", HEADS > 1), limit("a", "max_seqlen_k", LENGTH > 1024))
    selection = select(Composition([candidate("a", 0, same_code), candidate("b", 1)]), ToyRequest(), "llvm22")
    assert selection.interval("max_seqlen_k").high == 1024
    old = Composition([candidate("a", 0, (short,), min_llvm=22), candidate("b", 1)])
    assert select(old, ToyRequest(), "llvm20").interval("max_seqlen_k").high == I64_MAX


def test_a_launch_field_that_nothing_reads_is_free():
    composition = Composition([candidate("a")])
    selection = select(composition, ToyRequest(), "llvm22")
    assert (selection.ranges, selection.exact) == ((), ())
    assert selection.interval("max_seqlen_k").high == I64_MAX
    assert selection.covers(ToyRequest(total_q=10**9, max_seqlen_k=0, causal=False, scale=-2.0))


def test_a_launch_field_that_python_reads_holds_for_its_value_only():
    composition = Composition([candidate("a", plan=split_by_python)])
    selection = select(composition, ToyRequest(max_seqlen_k=100), "llvm22")
    assert selection.exact == (("max_seqlen_k", 100),)
    assert selection.interval("max_seqlen_k") is None
    assert not selection.covers(ToyRequest(max_seqlen_k=101))


@pytest.mark.parametrize("name, other", [("causal", False), ("scale", 2.0), ("max_seqlen_k", 101), ("total_q", 5)])
def test_every_way_for_a_plugin_to_read_is_noticed(name, other):
    """In plan, in admission, in a policy; through a method, through repr, through evolve."""

    def by_rank(request, survivors):
        getattr(request, name)
        return survivors

    def by_evolve(request, arch):
        twin = attrs.evolve(request, num_heads=1)
        assert type(twin) is ToyRequest
        assert isinstance(request, ToyRequest)
        return toy_plan(ToySpec(width=1), twin)

    def by_method(request, arch):
        request.whole()
        return toy_plan(ToySpec(width=1), request)

    def by_text(request, arch):
        assert repr(request) == repr(ToyRequest())
        return toy_plan(ToySpec(width=1), request)

    for composition in (
        Composition(rank=by_rank),
        Composition([candidate("a", plan=by_evolve)]),
        Composition([candidate("a", plan=by_method)]),
        Composition([candidate("a", plan=by_text)]),
    ):
        selection = select(composition, ToyRequest(), "llvm22")
        assert name in dict(selection.exact)
        assert not selection.covers(attrs.evolve(ToyRequest(), **{name: other}))
        assert selection.covers(ToyRequest())


def test_a_flag_that_a_condition_reads_is_matched_exactly():
    composition = Composition([candidate("a", capability=(limit("a.causal", "causal", field("causal")),))])
    selection = select(composition, ToyRequest(causal=True), "llvm22")
    assert selection.exact == (("causal", True),)
    with pytest.raises(NoCandidate):
        SelectionCache().plan(composition, ToyRequest(causal=False), "llvm22")


def test_a_growing_decode_step_is_a_lookup():
    cache, composition = SelectionCache(), Composition()
    plans = [cache.plan(composition, ToyRequest(num_heads=64, max_seqlen_k=k), "llvm22") for k in range(513, 3000)]
    assert (cache.misses, cache.hits) == (1, 2999 - 513)
    assert plans[0].launches is plans[-1].launches
    assert plans[-1].arguments(plans[-1].launches[0])[1].value == 2999
    assert plans[0].request.max_seqlen_k == 513


lengths = st.one_of(st.integers(0, 1400), st.sampled_from([255, 256, 257, 511, 512, 513, 1023, 1024, 1025]))
requests = st.builds(
    ToyRequest,
    num_heads=st.sampled_from([8, 16, 32, 48, 128, 144]),
    total_q=st.one_of(st.integers(0, 20), st.sampled_from([127, 128, 129, 255, 256, 257, 499, 500, 501, 2**62])),
    max_seqlen_k=lengths,
    causal=st.booleans(),
    scale=st.sampled_from([0.5, 1.0]),
)


def answer(find):
    try:
        plan = find()
    except NoCandidate as error:
        return str(error)
    return plan.to_json()


def compositions():
    admit = (limit("policy.q", "total_q", field("total_q") < 500, "policy"),)
    return (
        Composition(admit=admit),
        Composition(
            (*candidates(), candidate("toy.early", -1, (limit("e", "causal", field("causal")),), split_by_python))
        ),
        Composition(rank=lambda request, survivors: survivors[:: 1 if request.scale < 1 else -1]),
    )


@settings(max_examples=60, deadline=None)
@given(st.lists(requests, min_size=2, max_size=30), st.integers(0, 2))
def test_a_kept_selection_never_differs_from_a_fresh_one(sequence, which):
    composition, cache = compositions()[which], SelectionCache(size=4)
    for request in sequence:
        kept = answer(lambda: cache.plan(composition, request, "llvm22"))  # noqa: B023  # called at once
        fresh = answer(lambda: select(composition, request, "llvm22").plan)  # noqa: B023
        assert kept == fresh


def test_the_comparison_sees_an_interval_that_is_one_too_wide():
    """Negative control: with the interval moved by one, kept and fresh differ at the edge."""
    cache, composition = SelectionCache(), Composition()
    selection = cache.selection(composition, ToyRequest(num_heads=64), "llvm22")
    wider = tuple((name, low, high + 1) for name, low, high in selection.ranges)
    [key] = cache._entries
    cache._entries[key] = (attrs.evolve(selection, ranges=wider),)
    edge = ToyRequest(num_heads=64, max_seqlen_k=selection.interval("max_seqlen_k").high + 1)
    kept = answer(lambda: cache.plan(composition, edge, "llvm22"))
    assert kept != answer(lambda: select(composition, edge, "llvm22").plan)


def test_selection_keys_keep_apart_what_differs():
    cache, composition = SelectionCache(), Composition()
    twin = Composition()
    cache.plan(composition, ToyRequest(), "llvm22")
    for other in (
        lambda: cache.plan(composition, ToyRequest(), "llvm20"),
        lambda: cache.plan(twin, ToyRequest(), "llvm22"),
        lambda: cache.plan(composition, ToyRequest(dtype="f16"), "llvm22"),
        lambda: cache.plan(composition, ToyRequest(candidate="toy.wide"), "llvm22"),
    ):
        before = cache.misses
        other()
        assert cache.misses == before + 1
    assert ToyRequest(max_seqlen_k=1).selection_key() == ToyRequest(max_seqlen_k=2, scale=3.0).selection_key()


def test_the_cache_is_bounded_and_drops_the_least_recently_used():
    cache, composition = SelectionCache(size=2), Composition([candidate("a")])
    for heads in (1, 2, 1, 3):
        cache.plan(composition, ToyRequest(num_heads=heads), "llvm22")
    assert (len(cache), cache.misses) == (2, 3)
    cache.plan(composition, ToyRequest(num_heads=1), "llvm22")
    assert cache.misses == 3
    cache.plan(composition, ToyRequest(num_heads=2), "llvm22")
    assert cache.misses == 4


def test_selections_of_one_key_are_bounded_too():
    cache, composition = SelectionCache(), Composition([candidate("a", plan=split_by_python)])
    for length in range(100):
        cache.plan(composition, ToyRequest(max_seqlen_k=length), "llvm22")
    [kept] = cache._entries.values()
    assert len(kept) <= 16
    cache.clear()
    assert len(cache) == 0


def test_threads_share_a_cache():
    cache, composition = SelectionCache(size=3), Composition()
    wrong = []

    def work(seed):
        for i in range(200):
            request = ToyRequest(num_heads=16 * (1 + (i + seed) % 5), max_seqlen_k=(7 * i) % 1200)
            if cache.plan(composition, request, "llvm22").request != request:
                wrong.append(request)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert len(cache) <= 3


# ----------------------------------------------------------------------------------------------------------- purity


def run(script):
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


PURITY = """
    import importlib.util, os, random, sys, time
    loader = importlib.util.spec_from_file_location("toy", {path!r})
    toy = importlib.util.module_from_spec(loader)
    loader.loader.exec_module(toy)
    touched = []

    class Forbidden:
        def __getattr__(self, name):
            touched.append("environment")
            raise RuntimeError("environment")
        __getitem__ = __contains__ = __iter__ = lambda self, *key: self.touch

    def forbid(name):
        def touch(*args, **kwargs):
            touched.append(name)
            raise RuntimeError(name)
        return touch

    EVENTS = ("open", "os.", "socket.", "subprocess.", "ctypes.", "import", "shutil.", "tempfile.", "mmap.", "glob.")

    def audit(event, args):
        if armed and event.startswith(EVENTS):
            touched.append(event)

    armed = False
    sys.addaudithook(audit)
    for name in ("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "process_time"):
        setattr(time, name, forbid("clock"))
    random.random = os.urandom = forbid("chance")
    os.environ = os.environb = Forbidden()
    os.getenv = forbid("environment")
    composition = toy.Composition(toy.candidates() if not {culprit!r} else [toy.CULPRITS[{culprit!r}]])
    armed = True
    try:
        for heads in (16, 64, 17):
            try:
                toy.SelectionCache().plan(composition, toy.ToyRequest(num_heads=heads), "llvm22")
            except toy.NoCandidate:
                pass
            toy.explain(composition, toy.ToyRequest(num_heads=heads), "llvm20").to_dict()
    except (RuntimeError, toy.PluginError):
        pass
    armed = False
    print(sorted(set(touched)))
"""


def reading_file(request, arch):
    Path(__file__).exists()
    with Path(__file__).open():
        return toy_plan(ToySpec(width=1), request)


def reading_clock(request, arch):
    import time

    time.monotonic()
    return toy_plan(ToySpec(width=1), request)


def reading_environment(request, arch):
    import os

    os.environ.get("HOME")
    return toy_plan(ToySpec(width=1), request)


CULPRITS = {
    "open": candidate("a", plan=reading_file),
    "clock": candidate("a", plan=reading_clock),
    "environment": candidate("a", plan=reading_environment),
}


def test_selection_touches_no_file_clock_environment_or_device():
    assert run(PURITY.format(path=__file__, culprit="")) == "[]\n"


@pytest.mark.parametrize("culprit", CULPRITS)
def test_the_purity_check_sees_a_plan_that_touches(culprit):
    """Negative control: the same check on a candidate whose plan reads a file, the clock or the environment."""
    assert culprit in re.findall(r"'([a-z.]+)'", run(PURITY.format(path=__file__, culprit=culprit)))
