"""A candidate's plan as data: a request stands in that has no values yet, and each field that Python asks for forks it.

What a plan reads through expressions stays an expression. What it asks in Python forks the stand-in: a field that it
reads (`request.num_heads`, to choose a spec) takes every value that the candidate's own limits leave it, a condition
that it evaluates is true on one side and false on the other.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any, Final, cast

import attrs

from kinfolk.candidate import Candidate
from kinfolk.dispatch.composed import Composed
from kinfolk.dispatch.select import completed
from kinfolk.errors import PluginError
from kinfolk.expr import Expr, ExprOverflow, Scope, Value, all_of, eq, field, not_
from kinfolk.expr.condition import AllOf, AnyOf, Comparison, Eq, Ge, Gt, Le, Lt, OneOf
from kinfolk.expr.node import Const, Field
from kinfolk.fields import ExactBool, ExactInt
from kinfolk.fields import OneOf as OneOfValues
from kinfolk.flavor import flavor_named
from kinfolk.plan import Plan
from kinfolk.plugins.containment import contained
from kinfolk.record import fields_of
from kinfolk.refusal import Limit, Refusal
from kinfolk.request import Request
from kinfolk_runtime.bundles.document import BundleError, Values

NOTHING: Final[Values] = {}
MOST_CASES: Final = 4096
MOST_VALUES: Final = 1024
"""How many values of one integer field are tried where its limits are a range."""

_MIRRORED: Final[dict[type[Expr], type[Expr]]] = {Le: Ge, Lt: Gt, Ge: Le, Gt: Lt, Eq: Eq}


@attrs.frozen(kw_only=True)
class Pending(Refusal):
    """What stands for a limit in a plugin's answer while limits are recorded."""

    of: Limit


@attrs.frozen(kw_only=True)
class Case:
    """The plan of a candidate where `when` holds, what it is judged by there, in order, and what to know of it."""

    when: Expr
    plan: Plan
    judged: tuple[Refusal, ...]
    notes: tuple[str, ...] = ()

    @property
    def refused(self) -> bool:
        """Whether every request of the case is refused."""
        return any(not isinstance(each, Pending) for each in self.judged)


@attrs.frozen
class Assumed:
    """What a stand-in answers: values of fields, and truths of conditions."""

    fields: Mapping[str, Any] = attrs.field(factory=dict[str, Any])
    truths: Mapping[Expr, bool] = attrs.field(factory=dict[Expr, bool])

    @property
    def when(self) -> Expr:
        """The condition on requests for which this is so."""
        values = (eq(field(name), value) for name, value in self.fields.items())
        return all_of(*values, *(expr if truth else not_(expr) for expr, truth in self.truths.items()))

    def with_field(self, name: str, value: Any) -> Assumed:
        """Return the same with one more field."""
        return Assumed({**self.fields, name: value}, self.truths)

    def with_truth(self, condition: Expr, truth: bool) -> Assumed:
        """Return the same with one more condition."""
        return Assumed(self.fields, {**self.truths, condition: truth})


class Unassumed(PluginError):  # passes through the containment of plugins as it is
    """Python asked a stand-in for a field, or the truth of a condition, that nothing is assumed of yet."""

    def __init__(self, asked: str | Expr) -> None:
        super().__init__(f"{asked} is asked in Python")
        self.asked = asked


class _Recorder:
    def pending(self, limit: Limit, plugin: str) -> Refusal:
        """Return what stands for the limit."""
        return Pending(
            code=limit.code,
            kind=limit.kind,
            field=limit.field,
            value=None,
            limit=limit.limit,
            because=limit.because,
            remedy=limit.remedy,
            plugin=plugin,
            of=limit,
        )


_RECORDER: Final = _Recorder()


@attrs.frozen
class _Decider:
    assumed: Assumed

    def value_of(self, expr: Expr, scope: Scope) -> Value:
        """Return the value of an expression as far as it is assumed; else ask for what it depends on."""
        if expr in self.assumed.truths:
            return self.assumed.truths[expr]
        plain = attrs.evolve(scope, request=SimpleNamespace(**self.assumed.fields))
        missing = [
            leaf.name for leaf in expr.leaves() if isinstance(leaf, Field) and leaf.name not in self.assumed.fields
        ]
        if not missing:
            return expr.value_in(plain)
        raise Unassumed(expr if expr.kind == "bool" else missing[0])


@functools.cache
def _stand_in_type(kind: type[Request]) -> type[Request]:
    names = frozenset(each.name for each in fields_of(kind))

    def getattribute(self: object, name: str) -> Any:
        if name == "__class__":
            return kind
        if name == "__kinfolk_recorder__":
            return _RECORDER
        assumed = cast("Assumed", object.__getattribute__(self, "_assumed"))
        if name == "__kinfolk_observer__":
            return _Decider(assumed)
        if name in names:
            if name not in assumed.fields:
                raise Unassumed(name)
            return assumed.fields[name]
        return object.__getattribute__(self, name)

    namespace: dict[str, Any] = {
        "__slots__": ("_assumed",),
        "__getattribute__": getattribute,
        "__module__": kind.__module__,
        "__qualname__": kind.__qualname__,
    }
    return cast("type[Request]", type(kind.__name__, (kind,), namespace))


def _stand_in(kind: type[Request], assumed: Assumed) -> Request:
    request = object.__new__(_stand_in_type(kind))
    object.__setattr__(request, "_assumed", assumed)
    return request


def cases(composition: Composed, candidate: Candidate, flavor: str, fixed: Values = NOTHING) -> tuple[Case, ...]:
    """Return the plans of a candidate, one per answer to what its plan asks in Python.

    `fixed` are the fields that have one value only; a candidate that does not take them has no case. Raises
    BundleError, naming candidate and field, where a field that Python reads has no finite list of values.
    """
    found: list[Case] = []
    for case in _forked(composition, candidate, flavor, fixed, Assumed()):
        found.append(case)
        if len(found) > MOST_CASES:
            raise BundleError(
                f"{candidate.name}: its plan has more than {MOST_CASES} cases. Read fields through expressions."
            )
    return tuple(found)


def _forked(
    composition: Composed, candidate: Candidate, flavor: str, fixed: Values, assumed: Assumed
) -> Iterator[Case]:
    if not _possible(candidate, composition, {**fixed, **assumed.fields}):
        return
    request = _stand_in(composition.request_type, assumed)
    try:
        plan = candidate.with_schedules(_planned(candidate, request, composition), composition.arch, flavor)
        plan = completed(plan, composition, candidate, flavor_named(flavor))
        specs = dict.fromkeys(launch.spec for launch in plan.launches)
        judged = [refusal for spec in specs for refusal in composition.validate_spec(spec)]
        judged += composition.admit(request, candidate, plan)
    except Unassumed as error:
        asked = error.asked
        if isinstance(asked, str):
            values = values_of(composition, candidate, asked, {**fixed, **assumed.fields})
            branches = [assumed.with_field(asked, value) for value in values]
        else:
            truths = _truths(asked, composition, {**fixed, **assumed.fields})
            branches = [assumed.with_truth(asked, truth) for truth in truths]
    else:
        notes = candidate.untuned(plan, composition.arch, flavor)
        yield Case(when=assumed.when, plan=plan, judged=tuple(judged), notes=notes)
        return
    for branch in branches:
        yield from _forked(composition, candidate, flavor, fixed, branch)


def _planned(candidate: Candidate, request: Request, composition: Composed) -> Plan:
    def take(answer: Any) -> Plan:
        if not isinstance(answer, Plan):
            raise BundleError(f"Candidate.plan of {candidate.name} returned {type(answer).__name__}, it returns a Plan")
        return answer

    call = f"Candidate.plan of {candidate.name}"
    passing = (Unassumed, BundleError)
    return contained(candidate.plugin, call, candidate.plan, request, composition.arch, take=take, passing=passing)


def _reads_only(condition: Expr, names: Mapping[str, Any] | tuple[str, ...]) -> bool:
    return all(leaf.name in names for leaf in condition.leaves() if isinstance(leaf, Field))


def _truths(condition: Expr, composition: Composed, chosen: Mapping[str, Any]) -> tuple[bool, ...]:
    """Return what a condition may be: one of both where all fields that it reads are chosen already."""
    if _reads_only(condition, chosen):
        with contextlib.suppress(ExprOverflow):
            return (condition.holds(Scope(request=SimpleNamespace(**chosen), arch=composition.arch)),)
    return (True, False)


def _possible(candidate: Candidate, composition: Composed, chosen: Mapping[str, Any]) -> bool:
    """Return whether no limit of the candidate's capability refuses the values that are chosen already."""
    scope = Scope(request=SimpleNamespace(**chosen), arch=composition.arch)
    judged = [limit.condition for limit in candidate.capability if _reads_only(limit.condition, chosen)]
    try:
        return all(condition.holds(scope) for condition in judged)
    except ExprOverflow:
        return False


def values_of(composition: Composed, candidate: Candidate, name: str, chosen: Values) -> tuple[Any, ...]:
    """Return the values that a candidate takes of one field beside those of others that are chosen; BundleError where
    they are no finite list.
    """
    if name in chosen:
        return (chosen[name],)
    validator = next(each.validator for each in fields_of(composition.request_type) if each.name == name)
    conditions = tuple(_conjuncts([limit.condition for limit in candidate.capability]))
    known = {**_forced(conditions), **chosen}
    listed, low, high = _own_values(validator)
    for condition in conditions:
        if (found := _listed(condition, name, known, composition)) is not None:
            listed.append(found)
        match condition:
            case Comparison(left, right) if Field(name) in (left, right):
                kind, bound = type(condition), right
                if left != Field(name):
                    kind, bound = _MIRRORED.get(kind, Expr), left
                if any(isinstance(leaf, Field) for leaf in bound.leaves()):
                    continue
                value = bound.evaluate(Scope(arch=composition.arch))
                if kind in (Le, Lt) and isinstance(value, int):
                    high = min(value - (kind is Lt), value if high is None else high)
                elif kind in (Ge, Gt) and isinstance(value, int):
                    low = max(value + (kind is Gt), value if low is None else low)
            case _:
                pass
    if not listed and low is not None and high is not None and high - low < MOST_VALUES:
        listed.append(tuple(range(low, high + 1)))
    if not listed:
        raise BundleError(
            f"the plan of {candidate.name} reads request.{name} in Python, and no limit of its capability lists the "
            f"values of {name}. Read it through field({name!r}), or declare a limit that lists them with one_of; a "
            "condition on it is asked with holds."
        )
    return tuple(value for value in min(listed, key=len) if _taken(composition.request_type, name, value))


def _forced(conditions: Iterable[Expr]) -> dict[str, Any]:
    """Return the fields that a condition says the one value of."""
    return {
        condition.left.name: condition.right.value
        for condition in conditions
        if isinstance(condition, Eq) and isinstance(condition.left, Field) and isinstance(condition.right, Const)
    }


def _listed(condition: Expr, name: str, known: Values, composition: Composed) -> tuple[Any, ...] | None:
    """Return the values of a field beside which a condition may hold; None where it lists none.

    Conditions on what is `known` alone are judged: one that does not hold leaves no value.
    """
    match condition:
        case OneOf(term, values) if term == Field(name):
            return values
        case Eq(left, right) if Field(name) in (left, right):
            bound = right if left == Field(name) else left
            if not any(isinstance(leaf, Field) for leaf in bound.leaves()):
                return (bound.evaluate(Scope(arch=composition.arch)),)
        case AllOf(terms):
            found = [each for term in terms if (each := _listed(term, name, known, composition)) is not None]
            return min(found, key=len, default=None)
        case AnyOf(terms):
            each = [_listed(term, name, known, composition) for term in terms]
            if None not in each:
                return tuple(dict.fromkeys(value for values in each for value in values or ()))
        case _ if _reads_only(condition, known) and condition.leaves():
            with contextlib.suppress(ExprOverflow):
                scope = Scope(request=SimpleNamespace(**known), arch=composition.arch)
                return None if condition.holds(scope) else ()
        case _:
            pass
    return None


def _own_values(validator: object) -> tuple[list[tuple[Any, ...]], int | None, int | None]:
    """Return what a field's validator says: lists of its values, or the ends of its range."""
    match validator:
        case OneOfValues(values):
            return [values], None, None
        case ExactBool():
            return [(False, True)], None, None
        case ExactInt(minimum, maximum):
            return [], minimum, maximum
        case _:
            return [], None, None


def _conjuncts(conditions: list[Expr]) -> Iterator[Expr]:
    for condition in conditions:
        if isinstance(condition, AllOf):
            yield from _conjuncts(list(condition.terms))
        else:
            yield condition


def _taken(kind: type[Request], name: str, value: Any) -> bool:
    """Return whether the request's own class takes a value."""
    found = next(each for each in fields_of(kind) if each.name == name)
    try:
        cast("Callable[..., None]", found.validator)(object.__new__(kind), found, value)
    except (TypeError, ValueError):
        return False
    return True
