"""Which requests a family's kernels are run on: small ones, made from what it declares, of every candidate."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from typing import Any, Final, cast

import numpy as np

from kinfolk.candidate import Candidate
from kinfolk.errors import KinfolkError
from kinfolk.fields import ExactFloat, ExactInt
from kinfolk.plan import Plan
from kinfolk.request import Request
from kinfolk.testing.subject import Subject
from kinfolk.testing.values import inner, numbers_in
from kinfolk_runtime.memory import needed_bytes

MOST_BYTES: Final = 6 * 2**20
"""A run that holds more is left to level full."""
FULL_BYTES: Final = 16 * 2**20
LEAST_BYTES: Final = 64 * 2**20
"""Where a candidate has nothing that takes less than the level has, what takes no more than this is run all the same,
and scenarios of up to twice as much as the least."""
OTHER_KERNELS: Final = 2
"""So many further values of each compiled field are run at level quick."""
FEW: Final = (1, 2, 3, 5, 7)
"""What launch fields of the smallest requests are lowered to, where that leaves something to do."""


def most_bytes(subject: Subject, candidate: str) -> int:
    """Return how much a run of a candidate may hold: what the level allows, or what the least that there is takes."""
    level = FULL_BYTES if subject.full else MOST_BYTES
    return max(level, subject.kept.get(_allowance(candidate), 0))


def _allowance(candidate: str) -> str:
    return f"bytes of {candidate}"


def run_requests(subject: Subject) -> list[Request]:
    """Return the requests that are run: of each candidate one that is as large as the level allows, those with nothing
    to do, those with a number at an end of its range, and those whose kernels are others. At level quick a candidate
    adds to the first what its kernels are for that did not run for those before it."""
    return subject.once("run requests", lambda: _run_requests(subject))


def _run_requests(subject: Subject) -> list[Request]:
    chosen: dict[str, Request] = {}
    ran: set[str] = set()
    for candidate in subject.requests.candidates:
        fitting = runnable_plans(subject, candidate)
        if not fitting:
            continue
        largest = [plan.request for plan in fitting[-2 if subject.full else -1 :]]
        own = _specs_of_all(subject, candidate, largest)
        seen = own if subject.full else own | ran
        small = _shrunk(subject, candidate, _working(fitting)[0]).request
        found = (
            *largest,
            *(_ends(subject, candidate, small) if subject.full or own - ran else ()),
            *_other_kernels(subject, candidate, seen, small),
            *_left_out(subject, candidate, [*fitting[-1:], _planned(subject, candidate, small)]),
        )
        chosen |= {each.to_json(): each for each in found}
        ran |= _specs_of_all(subject, candidate, found)
    return list(chosen.values())


def runnable_plans(subject: Subject, candidate: Candidate) -> list[Plan]:
    """Return plans of small requests that a candidate admits and the level has memory for, by how much is in them.

    Where the fullest that were drawn need more, a smaller one that fills as many axes is among them; where all need
    more, one of other kernels, of which the least is compiled in.
    """
    return subject.once(f"runnable plans of {candidate.name}", lambda: _runnable_plans(subject, candidate))


def _runnable_plans(subject: Subject, candidate: Candidate) -> list[Plan]:
    plans = [plan for plan in _drawn_plans(subject) if plan.candidate == candidate.name]
    fullest = _working(sorted(plans, key=_filled)) if plans else []
    if all(needed_bytes(plan) > most_bytes(subject, candidate.name) for plan in fullest):
        plans += [_shrunk(subject, candidate, plan) for plan in fullest[:1]]
    if all(needed_bytes(plan) > most_bytes(subject, candidate.name) for plan in plans):
        plans += [_shrunk(subject, candidate, _least(subject, candidate, plan)) for plan in fullest[:1]]
        least = min(map(needed_bytes, plans), default=0)
        subject.kept[_allowance(candidate.name)] = 2 * least if least <= LEAST_BYTES else 0
    return sorted((plan for plan in plans if needed_bytes(plan) <= most_bytes(subject, candidate.name)), key=_filled)


def _least(subject: Subject, candidate: Candidate, plan: Plan) -> Plan:
    """Return the plan of a request near one, each number that is compiled in as small as takes less memory."""
    for name in (name for name in subject.requests.pools if name not in subject.requests.launch):
        now = getattr(plan.request, name)
        for value in sorted(value for value in subject.requests.pools[name] if type(value) is type(now) is int):
            request = subject.requests.beside(plan.request, candidate, name, value) if value < now else None
            if request is not None and needed_bytes(_planned(subject, candidate, request)) < needed_bytes(plan):
                plan = _planned(subject, candidate, request)
                break
    return plan


def _drawn_plans(subject: Subject) -> list[Plan]:
    return subject.once("drawn plans", lambda: _plans_of_drawn(subject))


def _plans_of_drawn(subject: Subject) -> list[Plan]:
    drawn = subject.requests.admitted(400 if subject.full else 150, small=True)
    plans = {request.to_json(): cast("Plan", verdict.plan) for request, verdict in drawn}
    for candidate in subject.requests.candidates:
        for request in subject.requests.bases(candidate):
            plans[request.to_json()] = cast("Plan", subject.requests.verdict(request, candidate).plan)
    return list(plans.values())


def _working(fitting: list[Plan]) -> list[Plan]:
    """Return those of sorted plans that have no less to do than the last: as many axes of more than one element."""
    return [plan for plan in fitting if _filled(plan)[0] == _filled(fitting[-1])[0]]


def _filled(plan: Plan) -> tuple[int, int]:
    """Return how much of a plan's work is there: axes of more than one element, then bytes."""
    scope = plan.scope()
    wide = 0
    for binding in plan.bindings:
        try:
            wide += sum(axis.extent.integer(scope) > 1 for axis in binding.shape)
        except KinfolkError:
            continue
    return wide, needed_bytes(plan)


def kernels_with_work(plan: Plan) -> int:
    """Return how many kernels of a plan have workgroups in some launch."""
    return len(_with_work(plan))


def _with_work(plan: Plan) -> set[str]:
    return {launch.spec.identity() for launch in plan.launches if math.prod(plan.grid(launch)) > 0}


def compared_kernels(plan: Plan) -> int:
    """Return how many kernels of a plan have workgroups; 0 where an output that can be told has no element."""
    scope = plan.scope()
    for name in plan.outputs:
        try:
            if not math.prod(extent.integer(scope) for extent in plan.binding(name).extents()):
                return 0
        except KinfolkError:  # an extent that depends on tensors
            continue
    return kernels_with_work(plan)


def _ends(subject: Subject, candidate: Candidate, request: Request) -> Iterator[Request]:
    """Yield the request with a launch field at 0, where that is something, and with a float at an end of its range."""
    for name in subject.requests.launch:
        match inner(subject.requests.fields[name]):
            case ExactInt(0):
                values: tuple[Any, ...] = (0,)
            case ExactFloat(minimum, maximum) if abs(minimum) != np.inf and abs(maximum) != np.inf:
                values = (minimum, maximum)
            case _:
                continue
        for value in values:
            found = subject.requests.beside(request, candidate, name, value)
            if found is not None:
                yield found


def _other_kernels(subject: Subject, candidate: Candidate, seen: set[str], request: Request) -> Iterator[Request]:
    """Yield the request with another value of each compiled field, where that has a kernel not seen so far: at level
    quick the first two of each field, from both ends of its values."""
    seen = set(seen)
    for name, pool in subject.requests.pools.items():
        if name in subject.requests.launch:
            continue
        kernels = 0
        for value in _from_both_ends(pool):
            other = subject.requests.beside(request, candidate, name, value)
            if other is None or (kernels == OTHER_KERNELS and not subject.full):
                continue
            specs = _specs_of(subject, candidate, other)
            if not specs <= seen:
                seen |= specs
                kernels += 1
                yield other


def _specs_of(subject: Subject, candidate: Candidate, request: Request) -> set[str]:
    plan = cast("Plan", subject.requests.verdict(request, candidate).plan)
    return {launch.spec.identity() for launch in plan.launches}


def _specs_of_all(subject: Subject, candidate: Candidate, requests: Iterable[Request]) -> set[str]:
    return {spec for each in requests for spec in _specs_of(subject, candidate, each)}


def _from_both_ends(values: list[Any]) -> list[Any]:
    half = (len(values) + 1) // 2
    pairs = itertools.zip_longest(values[:half], values[half:][::-1], fillvalue=None)
    return [value for pair in pairs for value in pair][: len(values)]


def smallest_requests(subject: Subject) -> list[Request]:
    """Return the smallest requests of every candidate that have something to do everywhere: one, three at level
    full."""
    return subject.once("smallest requests", lambda: list(_smallest_requests(subject)))


def _smallest_requests(subject: Subject) -> Iterator[Request]:
    for candidate in subject.requests.candidates:
        fitting = runnable_plans(subject, candidate)
        small = sorted(_working(fitting), key=_workgroups)[: 3 if subject.full else 1] if fitting else []
        shrunk = (_shrunk(subject, candidate, plan).request for plan in small)
        yield from {request.to_json(): request for request in shrunk}.values()


def mutation_requests(subject: Subject) -> tuple[Request, ...]:
    """Return requests in which mutants can be run: of each candidate the smallest, and those with other kernels."""
    found: dict[str, Request] = {}
    for candidate in subject.requests.candidates:
        fitting = runnable_plans(subject, candidate)
        if fitting:
            small = _shrunk(subject, candidate, min(_working(fitting), key=_workgroups)).request
            left_out = _left_out(subject, candidate, [_planned(subject, candidate, small)])
            for each in (
                small,
                *_other_kernels(subject, candidate, _specs_of(subject, candidate, small), small),
                *left_out,
            ):
                found[each.to_json()] = each
    return tuple(found.values())


def _shrunk(subject: Subject, candidate: Candidate, plan: Plan) -> Plan:
    """Return the plan of a smaller request that fills as many axes: each number is lowered as far as it may with the
    same kernels, and then one set so that every kernel runs, where one is left out."""
    axes, kernels = _filled(plan)[0], _specs_of(subject, candidate, plan.request)
    for name in subject.requests.pools:
        for value in FEW:
            if type(getattr(plan.request, name)) is not int or getattr(plan.request, name) <= value:
                break
            request = subject.requests.beside(plan.request, candidate, name, value)
            if request is None or _specs_of(subject, candidate, request) != kernels:
                continue
            other = cast("Plan", subject.requests.verdict(request, candidate).plan)
            if _filled(other)[0] >= axes and _workgroups(other) < _workgroups(plan):
                plan = other
                break
    return _launching(subject, candidate, plan)


def _launching(subject: Subject, candidate: Candidate, plan: Plan) -> Plan:
    """Return a plan near one in which more kernels run, by one other number; the plan if there is none."""
    axes, kernels = _filled(plan)[0], _specs_of(subject, candidate, plan.request)
    for other in _with_another_number(subject, candidate, plan):
        if kernels_with_work(plan) == len(kernels):
            break
        if _filled(other)[0] >= axes and kernels_with_work(other) > kernels_with_work(plan):
            plan = other
    return plan


def _left_out(subject: Subject, candidate: Candidate, plans: list[Plan]) -> Iterator[Request]:
    """Yield requests near the last plan in which kernels run that have no work in any: no numbers suit them all."""
    ran = set[str]().union(*map(_with_work, plans))
    missing = {launch.spec.identity() for launch in plans[-1].launches} - ran
    for other in _with_another_number(subject, candidate, plans[-1]) if missing else ():
        if missing & _with_work(other) and needed_bytes(other) <= most_bytes(subject, candidate.name):
            missing -= _with_work(other)
            yield other.request
        if not missing:
            return


def _with_another_number(subject: Subject, candidate: Candidate, plan: Plan) -> Iterator[Plan]:
    """Yield plans of requests near one, by one other number each: small ones first, then those of conditions."""
    for name in (name for name in subject.requests.launch if type(getattr(plan.request, name)) is int):
        edges = [value for value in _edges(plan, name) if value not in FEW]
        for value in (*FEW, *edges):
            request = subject.requests.beside(plan.request, candidate, name, value)
            if request is not None:
                yield _planned(subject, candidate, request)


def _edges(plan: Plan, name: str) -> list[int]:
    """Return the numbers around those that conditions of launches compare a field with."""
    near = [number for launch in plan.launches for number in numbers_in([launch.condition], name, plan.facts)]
    return sorted({number + way for number in near if type(number) is int for way in (-1, 0, 1) if number + way >= 0})


def _planned(subject: Subject, candidate: Candidate, request: Request) -> Plan:
    return cast("Plan", subject.requests.verdict(request, candidate).plan)


def _workgroups(plan: Plan) -> tuple[int, int]:
    """Return how much a simulator has to do: workgroups, then bytes."""
    return sum(math.prod(plan.grid(launch)) for launch in plan.launches), needed_bytes(plan)
