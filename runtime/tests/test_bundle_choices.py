"""A candidate's plan as cases: every answer that Python could get forks it, and what no list bounds is refused."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import ClassVar

import attrs
import pytest

from kinfolk.candidate import Candidate
from kinfolk.dispatch.select import judge
from kinfolk.expr import Scope, all_of, any_of, eq, fact, field, multiple_of, one_of
from kinfolk.fields import ExactBool, ExactInt, ExactStr, OneOf, Optional, launch_field
from kinfolk.flavor import flavor_named
from kinfolk.ir.types import I32, PointerType
from kinfolk.parameters import Parameter
from kinfolk.plan import Argument, Axis, Binding, Launch, Plan
from kinfolk.refusal import Limit, Refusal, unmet
from kinfolk.request import Relation, Request
from kinfolk.spec import Spec
from kinfolk_runtime.bundles import BundleError
from kinfolk_runtime.bundles.choices import Pending, cases
from kinfolk_runtime.bundles.limit_data import limit_data, limit_from
from kinfolk_runtime.bundles.request_data import request_class, request_data

HEADS, LENGTH = field("heads"), field("length")


@attrs.frozen(kw_only=True)
class ForkRequest(Request):
    family: ClassVar[str] = "fork"
    heads: int = attrs.field(default=16, validator=ExactInt())
    dtype: str = attrs.field(default="bf16", validator=OneOf(("bf16", "f16", "f32")))
    causal: bool = attrs.field(default=True, validator=ExactBool())
    length: int = launch_field(default=100, validator=ExactInt(minimum=0))
    candidate: str | None = attrs.field(default=None, validator=Optional(ExactStr()))


@attrs.frozen(kw_only=True)
class ForkSpec(Spec):
    width: int = attrs.field(validator=ExactInt())
    split: bool = attrs.field(validator=ExactBool())

    def parameters(self):
        return (Parameter(name="out", type=PointerType(I32), access="write", alignment=4),)


def planned(request, width, split):
    axis = Axis(LENGTH)
    out = Binding(name="out", role="output", dtype="i32", shape=(axis,), alignment=4, access="write")
    arguments = (Argument("out", "pointer", "out"),)
    launch = Launch(spec=ForkSpec(width=width, split=split), grid=(HEADS, 1, 1), block=64, arguments=arguments)
    return Plan(request=request, launches=(launch,), bindings=(out,), outputs=("out",))


def limit(name, condition, **more):
    return Limit(f"fork.{name}", "cannot", name, condition, because="it forks", remedy="Do not.", **more)


CAPABILITY = (limit("heads", all_of(multiple_of(HEADS, 16), fact("most_heads") >= HEADS)),)


def candidate(plan, capability=CAPABILITY):
    return Candidate(
        name="fork.one",
        priority=0,
        plugin="kinfolk-fork",
        capability=capability,
        plan=plan,
        specs=lambda arch, flavor: (),
    )


class Composed:
    """One candidate on an arch of one fact, with the hooks that a test gives."""

    def __init__(self, plan, admit=lambda request, plan, arch: (), capability=CAPABILITY, kind=ForkRequest):
        self.arch = SimpleNamespace(name="toyarch", facts={"most_heads": 64})
        self.request_type = kind
        self.versions, self.policy_digests = {}, {}
        self.one = candidate(plan, capability)
        self._admit = admit

    def candidates(self):
        return (self.one,)

    def validate_spec(self, spec):
        return ()

    def admit(self, request, candidate, plan):
        return tuple(self._admit(request, plan, self.arch))

    def rank(self, request, survivors):
        return survivors

    def cases(self, **fixed):
        return cases(self, self.one, "llvm22", fixed)


def split_of(request, arch):
    return (LENGTH > 256).holds(Scope(request=request, arch=arch))


def forking(request, arch):
    width = request.heads * 2 if request.causal and request.dtype != "f32" else request.heads
    return planned(request, width, split_of(request, arch))


def spec_where(found, request, arch):
    [case] = [case for case in found if case.when.holds(Scope(request=request, arch=arch))]
    return case.plan.launches[0].spec


def test_each_request_is_of_one_case_whose_spec_python_chooses():
    composed, chance = Composed(forking), random.Random(3)
    found = composed.cases()
    assert len(found) == 4 * (1 + 3) * 2
    for _ in range(300):
        request = ForkRequest(
            heads=16 * chance.randint(1, 4),
            dtype=chance.choice(("bf16", "f16", "f32")),
            causal=chance.choice((True, False)),
            length=chance.choice((0, 255, 256, 257, 10**6)),
        )
        chosen = judge(composed, request, flavor_named("llvm22")).selected.plan
        assert spec_where(found, request, composed.arch) == chosen.launches[0].spec


def test_fields_that_python_never_reads_fork_nothing():
    assert len(Composed(lambda request, arch: planned(request, 16, False)).cases()) == 1
    by_heads = Composed(lambda request, arch: planned(request, request.heads, False))
    assert [case.plan.launches[0].spec.width for case in by_heads.cases()] == [16, 32, 48, 64]
    assert [case.plan.launches[0].spec.width for case in by_heads.cases(heads=32)] == [32]


def test_a_field_without_a_list_of_values_is_refused_with_what_to_do():
    reading = Composed(lambda request, arch: planned(request, 16, request.length > 4))
    with pytest.raises(
        BundleError, match=r"fork.one reads request.length in Python.*Read it through field\('length'\)"
    ):
        reading.cases()
    unlimited = Composed(lambda request, arch: planned(request, request.heads, False), capability=())
    with pytest.raises(BundleError, match="no limit of its capability lists the values of heads"):
        unlimited.cases()


def test_values_of_a_field_are_listed_beside_those_of_others():
    pairs = any_of(all_of(eq(HEADS, 16), eq(LENGTH, 1)), all_of(eq(HEADS, 32), one_of(LENGTH, (2, 3))))
    composed = Composed(
        lambda request, arch: planned(request, request.heads + request.length, False),
        capability=(*CAPABILITY, limit("length", pairs)),
    )
    assert [case.plan.launches[0].spec.width for case in composed.cases()] == [17, 34, 35]
    open_ended = any_of(eq(HEADS, 16), LENGTH > 2)
    with pytest.raises(BundleError, match="lists the values of length"):
        Composed(composed.one.plan, capability=(*CAPABILITY, limit("length", open_ended))).cases()


def test_too_many_cases_are_refused(monkeypatch):
    monkeypatch.setattr("kinfolk_runtime.bundles.choices.MOST_CASES", 31)
    with pytest.raises(BundleError, match="more than 31 cases"):
        Composed(forking).cases()


WORK = limit("length", LENGTH * HEADS <= 4096)
STOP = Refusal(
    code="fork.stop",
    kind="policy",
    field="dtype",
    value="f16",
    limit="bf16",
    because="it is stopped",
    remedy="Go.",
    plugin="kinfolk-fork",
)


def test_limits_that_a_hook_judges_by_are_recorded_in_order_with_what_it_refuses_itself():
    def admit(request, plan, arch):
        stopped = (STOP,) if request.dtype == "f16" else ()
        return (*unmet((WORK,), request, arch, "kinfolk-fork"), *stopped)

    found = Composed(lambda request, arch: planned(request, 16, False), admit).cases()
    assert len(found) == 3
    for case in found:
        assert [each.of if isinstance(each, Pending) else each for each in case.judged][:1] == [WORK]
        stopped = case.when.holds(Scope(request=ForkRequest(dtype="f16")))
        assert (case.judged[1:] == (STOP,)) is stopped is case.refused


def test_a_limit_reads_back_with_its_words():
    below = HEADS // 16 * 16
    suggesting = attrs.evolve(
        limit("heads", one_of(HEADS, (16, 32))), remedy="Pass {below} {{at once}}.", suggestions={"below": below}
    )
    scope = Scope(request=ForkRequest(heads=40), arch={"most_heads": 64})
    for one in (suggesting, WORK, limit("heads", fact("most_heads") >= HEADS), attrs.evolve(WORK, remedy="a {brace}")):
        data = limit_data(one, "kinfolk-fork", scope)
        again = limit_from(data)
        assert (
            (again.condition, again.worded(scope))
            == (one.condition, one.worded(scope))
            == (one.condition, data["limit"])
        )
        assert again.remedy_in(scope) == one.remedy_in(scope)
    formatted = attrs.evolve(suggesting, remedy="Pass {below:>9}.")
    with pytest.raises(BundleError, match="and no format"):
        limit_data(formatted, "kinfolk-fork", scope)


@attrs.frozen(kw_only=True)
class Related(ForkRequest):
    relations: ClassVar = (
        Relation(
            field="length",
            condition=LENGTH * HEADS <= 2**62,
            rule="at most {most} a head {{here}}",
            remedy="Pass fewer.",
            numbers={"most": 2**62 // HEADS},
        ),
    )


def test_a_request_class_reads_back_with_its_rules():
    made = request_class("fork", request_data(Related))
    for given in ({}, {"heads": True}, {"heads": 0}, {"length": 2**62}, {"dtype": "i8"}, {"candidate": ""}):
        told = []
        for kind in (Related, made):
            try:
                told.append(kind(**given).to_dict())
            except (TypeError, ValueError) as error:
                told.append((type(error), str(error), error.remedy))
        assert told[0] == told[1]
    with pytest.raises(
        ValueError, match=r"must be at most 288230376151711744 a head \{here\}, got 4611686018427387904"
    ):
        made(length=2**62)


def test_rules_that_only_python_knows_are_refused_by_name():
    @attrs.frozen(kw_only=True)
    class Checked(ForkRequest):
        def check(self):
            pass

    @attrs.frozen(kw_only=True)
    class Validated(ForkRequest):
        odd: int = attrs.field(default=1, validator=attrs.validators.instance_of(int))

    with pytest.raises(BundleError, match=r"Checked\.check is Python.*Declare `relations`"):
        request_data(Checked)
    with pytest.raises(BundleError, match=r"Validated\.odd is checked by .*Use a validator of kinfolk\.fields"):
        request_data(Validated)
