"""What a candidate declares is what it takes: limits at their edges, and refusals that say all a caller needs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, cast

import attrs

from kinfolk.candidate import Candidate
from kinfolk.dispatch.select import Verdict
from kinfolk.errors import InternalError, KinfolkError
from kinfolk.expr import Expr, ExprError, Scope, TensorGeometry
from kinfolk.expr.node import Field
from kinfolk.fields import FieldError
from kinfolk.plan import Binding, Plan
from kinfolk.record import Record, fields_of
from kinfolk.refusal import Limit, Refusal
from kinfolk.request import Request
from kinfolk.spec import Spec
from kinfolk.testing.check import Findings, Outcome
from kinfolk.testing.requests import Edge, told
from kinfolk.testing.subject import Subject

GRID_FACTS = ("max_grid_x", "max_grid_y", "max_grid_z")


def limits(subject: Subject) -> Outcome:
    """Ask at both sides of every edge: refused where a limit does not hold, else planned within what can be bound."""
    found = Findings("limits", "requests")
    for candidate in subject.requests.candidates:
        sides: dict[str, set[bool]] = {limit.code: set() for limit in candidate.capability}
        for edge in subject.requests.edges(candidate):
            found.looked_at()
            sides[edge.limit.code].add(edge.holds)
            _judge_edge(subject, edge, found)
        for limit in candidate.capability:
            _judge_sides(subject, candidate, limit, sides[limit.code], found)
        if not subject.requests.bases(candidate):
            _admits_nothing(subject, candidate, found)
    for request, verdict in subject.requests.admitted(200 if subject.full else 60):
        found.looked_at()
        for problem, remedy in unbindable(cast("Plan", verdict.plan), subject):
            found.wrong(verdict.candidate.name, problem, remedy, told(request), kind=remedy)
    return found.outcome()


def _judge_edge(subject: Subject, edge: Edge, found: Findings) -> None:
    candidate, limit, request = edge.candidate, edge.limit, edge.request
    where = f"{candidate.name}, limit {limit.code}"
    try:
        verdict = subject.requests.verdict(request, candidate)
    except KinfolkError as error:
        problem = f"a request that the capability takes makes the candidate fail: {error}"
        remedy = "Declare what the plan cannot do as a Limit of the capability"
        found.wrong(where, problem, remedy, told(request), kind="fails")
        return
    codes = [refusal.code for refusal in verdict.refusals]
    if not edge.holds and limit.code not in codes:
        problem = f"{edge.field}={getattr(request, edge.field)} breaks the limit and is not refused for it"
        found.wrong(where, problem, "Judge requests by the declared limits alone", told(request), kind="lax")
    elif edge.holds and limit.code in codes:
        problem = f"{edge.field}={getattr(request, edge.field)} keeps the limit and is refused for it"
        found.wrong(where, problem, "Judge requests by the declared limits alone", told(request), kind="strict")
    if verdict.admitted:
        for problem, remedy in unbindable(cast("Plan", verdict.plan), subject):
            found.wrong(where, problem, remedy, told(request), kind=remedy)


def _judge_sides(subject: Subject, candidate: Candidate, limit: Limit, sides: set[bool], found: Findings) -> None:
    if not any(isinstance(leaf, Field) for leaf in limit.condition.leaves()):
        return
    if not sides:
        return  # nothing is admitted, which is told of the candidate
    if True not in sides:
        problem = f"no request is found that keeps the limit of {limit.field} ({limit.condition}) and all others"
        found.wrong(f"{candidate.name}, limit {limit.code}", problem, "Let the limits of a candidate agree")
    elif False not in sides and subject.requests.breaking(candidate, limit) is not None:
        found.note(f"{candidate.name}: who breaks the limit of {limit.field} ({limit.condition}) breaks others too")
    elif False not in sides:
        problem = f"no request breaks the limit of {limit.field} ({limit.condition}): it decides nothing"
        remedy = "Drop it, or let the request's class take what it refuses"
        found.wrong(f"{candidate.name}, limit {limit.code}", problem, remedy)


def _admits_nothing(subject: Subject, candidate: Candidate, found: Findings) -> None:
    """Note a candidate whose requests are refused because the arch has none of one kind of spec; else say that it
    admits nothing."""
    by_kind: dict[type[Spec], list[tuple[Refusal, ...]]] = {}
    for spec in candidate.spec_space(subject.arch, subject.flavor_name):
        by_kind.setdefault(type(spec), []).append(tuple(subject.composed.validate_spec(spec)))
    lost = [refusal for each in by_kind.values() if all(each) for refusals in each for refusal in refusals]
    request = subject.requests.within_limits(candidate)
    if lost and request is not None:
        verdict = subject.requests.verdict(request, candidate)
        if {refusal.code for refusal in verdict.refusals} <= {refusal.code for refusal in lost}:
            found.note(f"{candidate.name} serves nothing on {subject.arch.name}: {lost[0].sentence}")
            return
    if request is not None and subject.requests.verdict(request, candidate).admitted:
        problem = "no request is found for which it is chosen: others take all that it admits"
        remedy = "Give it a smaller priority, let the others refuse what it is for, or give requests a field candidate"
        found.wrong(candidate.name, problem, remedy, told(request))
        return
    remedy = "Let its capability and the specs it plans agree with the values that the request's class takes"
    found.wrong(candidate.name, "no request is found that it admits", remedy)


def unbindable(plan: Plan, subject: Subject) -> Iterator[tuple[str, str]]:
    """Yield what binding would refuse of an admitted plan whatever its tensors are: problem and remedy."""
    try:
        tensors = tight_tensors(plan)
        for launch in plan.launches:
            grid = plan.grid(launch, tensors)
            for axis, count, fact in zip("xyz", grid, GRID_FACTS, strict=True):
                most = subject.arch.facts.get(fact)
                if type(most) is int and count > most:
                    yield (
                        f"an admitted request launches {count} workgroups along {axis}, {fact} is {most}",
                        f"Refuse it: a Limit whose condition bounds the grid by fact({fact!r})",
                    )
            plan.arguments(launch, tensors)
        for binding in plan.bindings:
            plan.minimum_bytes(binding.name, tensors)
        plan.workspace_bytes(tensors)
    except (InternalError, ExprError) as error:
        yield f"an admitted request cannot be bound: {error}", "Refuse it: a Limit that bounds what is passed or sized"


def tight_tensors(plan: Plan) -> Mapping[str, TensorGeometry]:
    """Return the geometry of the least tensors that a plan takes: no wider than declared, without gaps."""
    scope = Scope(request=plan.request, arch=plan.facts)
    return {binding.name: _tight(binding, scope) for binding in plan.bindings}


def _tight(binding: Binding, scope: Scope) -> TensorGeometry:
    shape = [axis.extent.integer(scope) for axis in binding.shape]
    strides = [1] * len(shape)
    for index in reversed(range(len(shape))):
        stated = binding.shape[index].stride
        if isinstance(stated, Expr):
            strides[index] = stated.integer(scope)
        elif index + 1 < len(shape):
            strides[index] = strides[index + 1] * shape[index + 1]
    return TensorGeometry(tuple(shape), tuple(strides))


def refusals(subject: Subject) -> Outcome:
    """Read every refusal at the edges as a caller does: are all its parts there, and is what it advises admitted?"""
    found = Findings("refusals", "refusals")
    for candidate in subject.requests.candidates:
        codes = [limit.code for limit in candidate.capability]
        for code in {code for code in codes if codes.count(code) > 1}:
            found.wrong(f"{candidate.name}, limit {code}", "two limits share this code", "Give each its own")
        for edge in subject.requests.edges(candidate):
            if not edge.holds:
                _read_refusals(subject, edge, found)
    return found.outcome()


def _read_refusals(subject: Subject, edge: Edge, found: Findings) -> None:
    verdict = subject.requests.verdict(edge.request, edge.candidate)
    for refusal in verdict.refusals:
        found.looked_at()
        where = f"{edge.candidate.name}, refusal {refusal.code}"
        for problem in incomplete(refusal, edge.request, verdict):
            found.wrong(where, problem, "Fill it in where the limit is declared", told(edge.request), kind=problem)
        if refusal.code == edge.limit.code:
            _follow_advice(edge, refusal, where, subject, found)


def incomplete(refusal: Refusal, request: Request, verdict: Verdict) -> Iterator[str]:
    """Yield what is missing or wrong in a refusal."""
    for name in ("code", "field", "limit", "because", "remedy", "plugin"):
        text = getattr(refusal, name)
        if type(text) is not str or not text.strip():
            yield f"its {name} is empty"
    if "{" in refusal.remedy:
        yield f"its remedy has a place that nothing filled: {refusal.remedy}"
    launches = verdict.plan.launches if verdict.plan else ()
    holders: list[Record] = [request, *(launch.spec for launch in launches)]
    named = [each for each in holders if refusal.field in {field.name for field in fields_of(type(each))}]
    if refusal.field != "flavor" and not any(getattr(each, refusal.field) == refusal.value for each in named):
        yield f"it blames {refusal.field} = {refusal.value!r}, which no field of the request or its specs is"


def _follow_advice(edge: Edge, refusal: Refusal, where: str, subject: Subject, found: Findings) -> None:
    """Put what the remedy names into the request: the limit must hold then."""
    names = {field.name for field in fields_of(type(edge.request))}
    scope = Scope(request=edge.request, arch=subject.arch)
    advised: list[tuple[str, Any]] = []
    for _, expr in edge.limit.suggestions:
        try:
            advised.append((edge.limit.field, expr.evaluate(scope)))
        except ExprError:
            continue
    for name, word in re.findall(r"\b(\w+)=([\w.+-]*\w)", refusal.remedy):
        if name in names:
            advised.append((name, _literal(word)))
    for name, value in advised:
        try:
            changed = attrs.evolve(edge.request, **{name: value})
        except FieldError as error:
            found.wrong(where, f"it advises {name}={value}, which the request refuses: {error}", "Advise what is taken")
            continue
        if not edge.limit.condition.holds(Scope(request=changed, arch=subject.arch)):
            problem = f"it advises {name}={value}, with which the limit does not hold either"
            found.wrong(where, problem, "Advise a value that is admitted", told(edge.request), kind="advice")
        elif others := subject.requests.verdict(changed, edge.candidate).refusals:
            problem = f"it advises {name}={value}, which is refused in turn: {others[0].sentence}"
            found.wrong(where, problem, "Advise a value that is admitted", told(edge.request), kind="advice")


def _literal(word: str) -> Any:
    if word in ("True", "False"):
        return word == "True"
    for kind in (int, float):
        try:
            return kind(word)
        except ValueError:
            continue
    return word
