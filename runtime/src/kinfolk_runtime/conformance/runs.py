"""Kernels on the simulator: a family's scenarios on requests that the kit makes, both engines, all sanitizers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

import attrs
import numpy as np
import numpy.typing as npt

from kinfolk.candidate import Candidate
from kinfolk.check import Expected, Scenario, ScenarioReport, compare
from kinfolk.dispatch import selections
from kinfolk.errors import BindError, InternalError, KinfolkError, Refused, SimulationError
from kinfolk.fields import ExactFloat, ExactInt
from kinfolk.plan import Plan
from kinfolk.request import Request
from kinfolk.testing.check import Findings, Outcome
from kinfolk.testing.requests import told
from kinfolk.testing.subject import Subject
from kinfolk.testing.values import inner
from kinfolk_runtime.artifact import Artifact
from kinfolk_runtime.binder import bind
from kinfolk_runtime.compilation import compile as compile_plan
from kinfolk_runtime.memory import needed_bytes
from kinfolk_runtime.simulator.engine import Simulator
from kinfolk_runtime.simulator.sanitizers import SANITIZERS
from kinfolk_runtime.verify import Fitting, run_scenario, runners_of

Array = npt.NDArray[Any]
MOST_BYTES: Final = 6 * 2**20
"""A run that holds more is left to level full."""
FULL_BYTES: Final = 16 * 2**20
FAULTS: Final = ("simulation", "unwritten", "bind")
ORDERS: Final = {False: (0, 1), True: (0, 1, 2)}


@attrs.frozen(kw_only=True)
class Ran:
    """A scenario that was run on the fast engine in several orders."""

    request: Request
    scenario: Scenario
    report: ScenarioReport


@attrs.frozen(kw_only=True)
class Runs:
    """All runs of a subject, and what could not be run, with the reason."""

    ran: tuple[Ran, ...]
    failed: tuple[tuple[Request, str], ...]
    notes: tuple[str, ...]


def reference(subject: Subject) -> Outcome:
    """Compare every output of every run with the reference."""
    found = Findings("reference", "compared elements")
    runs = runs_of(subject)
    for request, why in runs.failed:
        problem = f"an admitted request cannot be run: {why}"
        found.wrong(subject.title, problem, "Mend what it names, or refuse the request", told(request))
    for ran in runs.ran:
        found.looked_at(sum(output.elements for output in ran.report.outputs))
        for finding in ran.report.findings:
            if finding.code not in FAULTS:
                where = f"scenario {ran.scenario.name} ({ran.scenario.about})"
                output = f"{finding.output}: " if finding.output else ""
                remedy = "Mend the kernel, or derive the reference's tolerance anew if that is what is wrong"
                found.wrong(where, f"{output}{finding.message}", remedy, told(ran.request), kind=finding.code)
    for note in runs.notes:
        found.note(note)
    return found.outcome()


def sanitizers(subject: Subject) -> Outcome:
    """Count what the sanitizers looked for in every run, and tell each fault once."""
    found = Findings("sanitizers", "sanitizers in runs")
    orders = len(ORDERS[subject.full])
    if not runs_of(subject).ran:
        for request, why in runs_of(subject).failed[:1]:
            found.wrong(subject.title, f"nothing could be run: {why}", "Mend what it names", told(request))
    for ran in runs_of(subject).ran:
        found.looked_at(len(SANITIZERS) * orders)
        for finding in ran.report.findings:
            if finding.code in FAULTS:
                where = f"scenario {ran.scenario.name} ({ran.scenario.about})"
                remedy = "Mend the access: a barrier, a bound, a mask or a store is missing"
                found.wrong(where, finding.message, remedy, told(ran.request), kind=finding.code)
    return found.outcome()


def runs_of(subject: Subject) -> Runs:
    """Return the runs, made once for all checks of a subject."""
    return subject.once("runs", lambda: _runs(subject))


def _runs(subject: Subject) -> Runs:
    runners = runners_of(order_seeds=ORDERS[subject.full])
    ran: list[Ran] = []
    failed: list[tuple[Request, str]] = []
    notes: list[str] = []
    for request in run_requests(subject):
        try:
            artifact = artifact_of(subject, request)
            fitting = Fitting.of(
                subject.composed, subject.composed.scenarios(request), subject.flavor_name, sparse=subject.full
            )
            for scenario in fitting.scenarios:
                if needed_bytes(fitting.plans[scenario.name], scenario.sparse) > _most(subject):
                    notes.append(f"scenario {scenario.name} of {told(request)} is too large for this level")
                    continue
                report = run_scenario(subject.composed, artifact, scenario, runners)
                ran.append(Ran(request=request, scenario=scenario, report=report))
        except KinfolkError as error:
            failed.append((request, f"{type(error).__name__}: {error}"))
    return Runs(ran=tuple(ran), failed=tuple(failed), notes=tuple(dict.fromkeys(notes)))


def artifact_of(subject: Subject, request: Request) -> Artifact:
    """Return the compiled plan of a request, gated."""
    plan = selections.plan(subject.composed, request, subject.flavor_name)
    return compile_plan(plan, composition=subject.composed)


def _most(subject: Subject) -> int:
    return FULL_BYTES if subject.full else MOST_BYTES


def run_requests(subject: Subject) -> list[Request]:
    """Return the requests that are run: of each candidate one that is as large as the level allows, then those with
    nothing to do and those with a number at an end of its range."""
    return subject.once("run requests", lambda: _run_requests(subject))


def _run_requests(subject: Subject) -> list[Request]:
    drawn = subject.requests.admitted(400 if subject.full else 150, small=True)
    plans = {request.to_json(): cast("Plan", verdict.plan) for request, verdict in drawn}
    for candidate in subject.requests.candidates:
        for request in subject.requests.bases(candidate):
            plans[request.to_json()] = cast("Plan", subject.requests.verdict(request, candidate).plan)
    chosen: dict[str, Request] = {}
    for candidate in subject.requests.candidates:
        own = [plan for plan in plans.values() if plan.candidate == candidate.name]
        fitting = sorted((plan for plan in own if needed_bytes(plan) <= _most(subject)), key=_filled)
        if not fitting:
            continue
        full_axes = [plan for plan in fitting if _filled(plan)[0] == _filled(fitting[-1])[0]]
        largest = [plan.request for plan in fitting[-2 if subject.full else -1 :]]
        chosen |= {each.to_json(): each for each in (*largest, *_ends(subject, full_axes[0].request))}
    return list(chosen.values())


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


def _ends(subject: Subject, request: Request) -> Iterator[Request]:
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
            found = subject.requests.beside(request, name, value)
            if found is not None:
                yield found


def engines(subject: Subject) -> Outcome:
    """Run small scenarios on both engines, and compare the bytes of every output and each with the reference."""
    found = Findings("engines", "outputs of both engines")
    pair = Simulator(1, engine="fast"), Simulator(1, engine="reference")
    for request, scenario in _small_scenarios(subject):
        try:
            plan = selections.plan(subject.composed, scenario.request, subject.flavor_name)
            inputs = scenario.inputs()
            outputs = [_outputs(plan, inputs, subject, each) for each in pair]
        except InternalError as error:
            found.wrong(scenario.name, str(error), "An op's two meanings differ: mend its declaration", told(request))
            continue
        except (SimulationError, BindError, Refused):
            continue  # the check of sanitizers tells it
        expected = cast("Mapping[str, Expected]", subject.composed.reference(scenario.request, inputs))
        for name, array in outputs[0].items():
            found.looked_at()
            other = outputs[1][name]
            where = f"scenario {scenario.name}, output {name}"
            if array.tobytes() != other.tobytes():
                wrong = int(np.count_nonzero(_bits(array) != _bits(other)))
                problem = f"{wrong} of {array.size} elements differ in bits between the engines"
                found.wrong(where, problem, "An op's two meanings differ: mend its declaration", told(request))
            elif not compare(name, plan.binding(name).dtype, other, expected[name]).passed:
                found.wrong(where, "is outside the reference's tolerance", "See the check reference", told(request))
    for note in pair[0].notes:
        found.note(note)
    return found.outcome()


def smallest_requests(subject: Subject) -> Iterator[Request]:
    """Yield the smallest requests of every candidate: one, three at level full."""
    for candidate in subject.requests.candidates:
        bases = [(_bytes_of(subject, candidate, each), each) for each in subject.requests.bases(candidate)]
        yield from (request for _, request in sorted(bases, key=lambda pair: pair[0])[: 3 if subject.full else 1])


def _small_scenarios(subject: Subject) -> Iterator[tuple[Request, Scenario]]:
    """Yield the scenarios of the smallest requests: the reference engine takes its time."""
    for request in smallest_requests(subject):
        scenarios = subject.composed.scenarios(request)
        offered = Fitting.of(subject.composed, scenarios, subject.flavor_name, sparse=False)
        for scenario in offered.scenarios:
            if needed_bytes(offered.plans[scenario.name]) <= _most(subject):
                yield request, scenario


def _bytes_of(subject: Subject, candidate: Candidate, request: Request) -> int:
    return needed_bytes(cast("Plan", subject.requests.verdict(request, candidate).plan))


def _outputs(plan: Plan, inputs: Mapping[str, Any], subject: Subject, simulator: Simulator) -> dict[str, Array]:
    return bind(plan, inputs, executor=simulator, composition=subject.composed)()


def _bits(array: Array) -> npt.NDArray[np.uint8]:
    flat = np.ascontiguousarray(array)
    return flat.view(np.uint8).reshape(flat.size, -1)
