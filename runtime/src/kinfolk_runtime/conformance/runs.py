"""Kernels on the simulator: a family's scenarios on requests that the kit makes, both engines, all sanitizers."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, cast

import attrs
import numpy as np
import numpy.typing as npt

from kinfolk.check import Expected, Finding, Scenario, ScenarioReport, compare
from kinfolk.dispatch import selections
from kinfolk.errors import BindError, InternalError, KinfolkError, Refused, SimulationError
from kinfolk.plan import Plan
from kinfolk.request import Request
from kinfolk.testing.check import Findings, Outcome
from kinfolk.testing.requests import told
from kinfolk.testing.subject import Subject
from kinfolk_runtime.artifact import Artifact
from kinfolk_runtime.binder import bind
from kinfolk_runtime.compilation import compile as compile_plan
from kinfolk_runtime.conformance.references import expected_of, judge_references
from kinfolk_runtime.conformance.small import compared_kernels, most_bytes, run_requests, smallest_requests
from kinfolk_runtime.memory import needed_bytes
from kinfolk_runtime.simulator.engine import Simulator
from kinfolk_runtime.simulator.sanitizers import SANITIZERS
from kinfolk_runtime.verify import Fitting, Runner, run_scenario, runners_of

Array = npt.NDArray[Any]
ENGINES_SCENARIOS: Final = 2
"""So many scenarios of each candidate level quick runs on both engines, of those in which most kernels run."""
OTHER_SCENARIOS: Final = 4
"""So many scenarios level quick runs of each request but a candidate's first, which is its largest and has all; so many
of that, too, where its kernels all ran before."""
KNOWN_SCENARIOS: Final = 2
"""So many of a request but the first whose kernels all ran before: what is new in it is a number."""
FAULTS: Final = ("simulation", "unwritten")
WRONG_VALUES: Final = "Mend the kernel, or derive the reference's tolerance anew if that is what is wrong"
REMEDIES: Final[Mapping[str, str]] = {
    "unwritten": "Store every element of the output, whatever the inputs are",
    "race": "Put a barrier between the two accesses, or let each wave keep to elements of its own",
    "memory": "Bound or mask the index: it leaves the elements that the inputs have",
    "alignment": "Declare a smaller alignment, or begin the access where it is aligned",
    "permission": "Declare the parameter's access as the kernel needs it",
    "initialisation": "Store before it is read, or mask the read",
    "sync": "Let every wave, with all its lanes, come to the same barriers, and wait for what it stages",
    "integer": "Use wider integers, or bound the operands before",
    "float": "Bound the request's numbers so that no step leaves its type, or select before the op that takes no NaN",
    "uniformity": "Let the value be the same in all lanes, or read it from one lane",
    "lane": "Let the lanes that are read or multiplied be active, and be lanes that the wave has",
    "limit": "Let the loop end: its condition must change",
    "indirection": "Clamp the loaded value, or select on a comparison of it, before it becomes an address",
}
"""What to do about a fault, by the kind at its end, else by its code."""
ACCESS: Final = "Mend the access: a barrier, a bound, a mask or a store is missing"
SEE_SANITIZERS: Final = "See the check sanitizers, which tells each fault"
ORDERS: Final = {False: (0, 1), True: (0, 1, 2)}


@attrs.frozen(kw_only=True)
class Ran:
    """A scenario that was run on the fast engine in several orders."""

    candidate: str
    request: Request
    scenario: Scenario
    report: ScenarioReport

    @property
    def elements(self) -> int:
        """How many elements were compared."""
        return sum(output.elements for output in self.report.outputs)


@attrs.frozen(kw_only=True)
class Runs:
    """All runs of a subject, and what could not be run, with the reason."""

    ran: tuple[Ran, ...]
    failed: tuple[tuple[Request, str], ...]
    notes: tuple[str, ...]


def reference(subject: Subject) -> Outcome:
    """Compare every output of every run with the reference."""
    found = Findings("reference", "compared elements", each=subject.serving)
    runs = runs_of(subject)
    for request, why in runs.failed:
        problem = f"an admitted request cannot be run: {why}"
        found.wrong(subject.title, problem, "Mend what it names, or refuse the request", told(request))
    for ran in runs.ran:
        found.looked_at(ran.elements, of=ran.candidate)
    _tell(found, runs, lambda finding: finding.code not in FAULTS, _remedy)
    codes = {finding.code for ran in runs.ran for finding in ran.report.findings}
    if not found.count and codes and codes <= {*FAULTS}:
        found.wrong(subject.title, "nothing was compared: no run came to its end", SEE_SANITIZERS)
    judge_references(subject, smallest_requests(subject), found)
    for note in runs.notes:
        found.note(note)
    return found.outcome()


def sanitizers(subject: Subject) -> Outcome:
    """Count what the sanitizers looked for in every run, and tell each fault once."""
    found = Findings("sanitizers", "sanitizers in runs", each=subject.serving)
    orders = len(ORDERS[subject.full])
    runs = runs_of(subject)
    if not runs.ran:
        for request, why in runs.failed[:1]:
            found.wrong(subject.title, f"nothing could be run: {why}", "Mend what it names", told(request))
    bound = [ran for ran in runs.ran if not any(finding.code == "bind" for finding in ran.report.findings)]
    for ran in bound:
        if ran.elements or ran.report.findings:
            found.looked_at(len(SANITIZERS) * orders, of=ran.candidate)
    if runs.ran and not bound:
        found.wrong(subject.title, "nothing was run: no scenario's inputs bind", "See the check reference")
    _tell(found, runs, lambda finding: finding.code in FAULTS, _remedy)
    return found.outcome()


def _remedy(finding: Finding) -> str:
    """Return what to do about a finding of a run."""
    if finding.code == "bind":
        return "Let scenarios build what the plan declares, or declare what the kernel takes"
    if finding.code not in FAULTS:
        return WRONG_VALUES
    kinds = [kind for kind in re.findall(r"\[(\w+)\]", finding.message) if kind in REMEDIES]
    return REMEDIES.get(kinds[-1] if kinds else finding.code, ACCESS)


def _tell(found: Findings, runs: Runs, concerns: Callable[[Finding], bool], remedy: Callable[[Finding], str]) -> None:
    """Tell findings of runs; those that differ in numbers or kernel alone are one, with all their scenarios."""
    alike: dict[tuple[str, str, str], list[tuple[Ran, Finding]]] = {}
    for ran in runs.ran:
        for finding in filter(concerns, ran.report.findings):
            _, _, of_any_kernel = finding.message.partition(": ")  # a fault begins with the kernel's name
            told_of = of_any_kernel if finding.code in FAULTS and of_any_kernel else finding.message
            words = re.sub(r"[-+]?[0-9][-+.0-9a-zA-Z]*", "#", told_of)
            alike.setdefault((finding.code, finding.output, words), []).append((ran, finding))
    for each in alike.values():
        (ran, finding), names = each[0], list(dict.fromkeys(ran.scenario.name for ran, _ in each))
        where = f"scenario {names[0]} ({ran.scenario.about})"
        others = "" if len(each) == 1 else f" (and {len(each) - 1} more like it"
        others += f", in {', '.join(names[1:])} too)" if len(names) > 1 else ")" if others else ""
        output = f"{finding.output}: " if finding.output else ""
        found.wrong(where, f"{output}{finding.message}{others}", remedy(finding), told(ran.request))


def runs_of(subject: Subject) -> Runs:
    """Return the runs, made once for all checks of a subject."""
    return subject.once("runs", lambda: _runs(subject))


def _runs(subject: Subject) -> Runs:
    runners = _runners(subject)
    ran: list[Ran] = []
    failed: list[tuple[Request, str]] = []
    large: dict[str, int] = {}
    begun: set[str] = set()
    ran_kernels: set[str] = set()
    requests = run_requests(subject)
    for number, request in enumerate(requests, 1):
        subject.progress(f"request {number} of {len(requests)}")
        try:
            artifact = artifact_of(subject, request)
            scenarios = subject.sharing.scenarios_of(artifact.plan)
            fitting = Fitting.of(subject.sharing, scenarios, subject.flavor_name, sparse=subject.full)
            first, kernels = artifact.plan.candidate not in begun, _kernels(artifact.plan)
            known = kernels <= ran_kernels
            begun.add(artifact.plan.candidate)
            ran_kernels |= kernels
            most = KNOWN_SCENARIOS if known and not first else OTHER_SCENARIOS
            whole = subject.full or (first and not known)
            for scenario in fitting.scenarios if whole else _drawn_scenarios(subject, request, fitting.scenarios, most):
                plan = fitting.plans[scenario.name]
                if needed_bytes(plan, scenario.sparse) > most_bytes(subject, plan.candidate):
                    large[scenario.name] = large.get(scenario.name, 0) + 1
                    continue
                report = run_scenario(subject.sharing, artifact, scenario, runners)
                ran.append(Ran(candidate=artifact.plan.candidate, request=request, scenario=scenario, report=report))
        except KinfolkError as error:
            failed.append((request, f"{type(error).__name__}: {error}"))
    notes = [f"scenario {name} is too large for this level in {of} of the requests" for name, of in large.items()]
    return Runs(ran=tuple(ran), failed=tuple(failed), notes=tuple(notes))


def _runners(subject: Subject) -> tuple[Runner, ...]:
    """Return the fast engine in its orders, with the programs that checks before made."""
    return subject.once("runners", lambda: runners_of(order_seeds=ORDERS[subject.full]))


def _kernels(plan: Plan) -> set[str]:
    return {launch.spec.identity() for launch in plan.launches}


def _drawn_scenarios(
    subject: Subject, request: Request, scenarios: Sequence[Scenario], most: int
) -> Sequence[Scenario]:
    """Return at most so many scenarios, drawn by the seed, in their order."""
    if len(scenarios) <= most:
        return scenarios
    chance = random.Random(f"{subject.seed} scenarios {request.to_json()}")
    places = sorted(chance.sample(range(len(scenarios)), most))
    return [scenarios[place] for place in places]


def artifact_of(subject: Subject, request: Request) -> Artifact:
    """Return the compiled plan of a request, gated; plans of one candidate with the same kernels share them."""
    plan = selections.plan(subject.sharing, request, subject.flavor_name)
    kernels = ", ".join(launch.spec.identity() for launch in plan.launches)
    made = subject.once(f"artifact {plan.candidate} {kernels}", lambda: compile_plan(plan, composition=subject.sharing))
    return attrs.evolve(made, plan=plan)


def engines(subject: Subject) -> Outcome:
    """Run small scenarios on both engines, and compare the bytes of every output and each with the reference."""
    requests, shared = _of_own_kernels(subject)
    found = Findings(
        "engines", "outputs of both engines", each=[each for each in subject.serving if each not in shared]
    )
    for name in shared:
        found.note(f"{name} has no kernel of its own: those of candidates before it run")
    pair = cast("Simulator", _runners(subject)[0].executor).with_order(1), Simulator(1, engine="reference")
    faults = 0
    scenarios = list(_small_scenarios(subject, requests))
    for number, (request, scenario) in enumerate(scenarios, 1):
        subject.progress(f"scenario {number} of {len(scenarios)}")
        try:
            artifact, inputs = artifact_of(subject, scenario.request), scenario.inputs()
            outputs = [_outputs(artifact, inputs, subject, each) for each in pair]
        except InternalError as error:
            found.wrong(scenario.name, str(error), "An op's two meanings differ: mend its declaration", told(request))
            continue
        except (SimulationError, BindError, Refused):
            faults += 1  # the check of sanitizers tells it, or that of the reference
            continue
        plan = artifact.plan
        expected = cast("Mapping[str, Expected]", expected_of(subject, scenario))
        for name, array in outputs[0].items():
            found.looked_at(int(array.size > 0), of=plan.candidate)
            other = outputs[1][name]
            where = f"scenario {scenario.name}, output {name}"
            if array.tobytes() != other.tobytes():
                wrong = int(np.count_nonzero(_bits(array) != _bits(other)))
                problem = f"{wrong} of {array.size} elements differ in bits between the engines"
                found.wrong(where, problem, "An op's two meanings differ: mend its declaration", told(request))
            elif not compare(name, plan.binding(name).dtype, other, expected[name]).passed:
                found.wrong(where, "is outside the reference's tolerance", "See the check reference", told(request))
    if faults and not found.count:
        found.wrong(subject.title, "nothing was compared: no scenario came to its end", SEE_SANITIZERS)
    for note in pair[0].notes:
        found.note(note)
    return found.outcome()


def _of_own_kernels(subject: Subject) -> tuple[list[Request], list[str]]:
    """Return the smallest requests, at level quick without those whose kernels are all those of candidates before, and
    the candidates of these."""
    requests: list[Request] = []
    shared: list[str] = []
    ran: set[str] = set()
    for request in smallest_requests(subject):
        plan = selections.plan(subject.sharing, request, subject.flavor_name)
        if _kernels(plan) <= ran and not subject.full:
            shared.append(plan.candidate)
        else:
            requests.append(request)
        ran |= _kernels(plan)
    return requests, shared


def _small_scenarios(subject: Subject, requests: Iterable[Request]) -> Iterator[tuple[Request, Scenario]]:
    """Yield scenarios of small requests, at level quick a few of each in which its kernels run, drawn by the seed: the
    reference engine takes its time."""
    for request in requests:
        scenarios = subject.sharing.scenarios(request)
        offered = Fitting.of(subject.sharing, scenarios, subject.flavor_name, sparse=False)
        drawn = list(offered.scenarios)
        random.Random(f"{subject.seed} engines {request.to_json()}").shuffle(drawn)
        plans = offered.plans
        fitting = [
            each for each in drawn if needed_bytes(plans[each.name]) <= most_bytes(subject, plans[each.name].candidate)
        ]
        if not subject.full:
            fitting.sort(key=lambda each: -compared_kernels(plans[each.name]))
            del fitting[ENGINES_SCENARIOS:]
        for scenario in fitting:
            yield request, scenario


def _outputs(artifact: Artifact, inputs: Mapping[str, Any], subject: Subject, engine: Simulator) -> dict[str, Array]:
    return bind(artifact, inputs, executor=engine, composition=subject.sharing)()


def _bits(array: Array) -> npt.NDArray[np.uint8]:
    flat = np.ascontiguousarray(array)
    return flat.view(np.uint8).reshape(flat.size, -1)
