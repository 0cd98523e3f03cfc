"""Specs: the declared space covers what is planned, equal identity means equal kernels, in any process."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Mapping
from typing import Any, Final, cast

from kinfolk.analysis import ANALYSES, analyse, loop_divisions
from kinfolk.analysis import spec_fields as known_fields
from kinfolk.analysis.arguments import argument_bounds
from kinfolk.candidate import Candidate
from kinfolk.errors import InternalError
from kinfolk.plan import Plan
from kinfolk.plugins.composition import Composition
from kinfolk.record import fields_of
from kinfolk.request import Request
from kinfolk.spec import Spec
from kinfolk.testing.check import Findings, Outcome
from kinfolk.testing.child import digest, inputs_text, plan_text
from kinfolk.testing.requests import told
from kinfolk.testing.subject import Subject

SEEDS: Final = ("1", "2")
CHILD_SECONDS: Final = 600.0


def spec_space(subject: Subject) -> Outcome:
    """Plan admitted requests: each spec that a plan names is one of those that its candidate declares, and each of
    those that the arch can have is named by some plan."""
    found = Findings("spec_space", "admitted requests", each=subject.serving)
    arch, flavor = subject.arch, subject.flavor_name
    spaces = {
        each.name: {spec.identity() for spec in each.spec_space(arch, flavor)} for each in subject.requests.candidates
    }
    named: dict[str, set[str]] = {name: set() for name in spaces}
    for request, verdict in subject.requests.admitted(400 if subject.full else 100):
        plan, name = cast("Plan", verdict.plan), verdict.candidate.name
        found.looked_at(of=name)
        for launch in plan.launches:
            named[name].add(launch.spec.identity())
            if launch.spec.identity() not in spaces[name]:
                problem = f"a plan names {launch.spec}, which Candidate.specs does not give"
                remedy = "Yield it from Candidate.specs, or refuse the request: what is not there is never compiled"
                found.wrong(name, problem, remedy, told(request), kind="not in the space")
    for candidate in subject.requests.candidates:
        if subject.requests.bases(candidate):
            _judge_unnamed(subject, candidate, named[candidate.name], found)
    return found.outcome()


def _judge_unnamed(subject: Subject, candidate: Candidate, named: set[str], found: Findings) -> None:
    """Look for admitted requests whose plans name what is left of a candidate's space: a spec that none names is
    compiled, gated and blessed for nobody, while a limit refuses those it could serve."""
    legal = [spec for spec in subject.specs if spec in candidate.spec_space(subject.arch, subject.flavor_name)]
    for spec in legal:
        refused: list[tuple[Request, str]] = []
        for request in subject.requests.naming(candidate, spec) if spec.identity() not in named else ():
            verdict = subject.requests.verdict(request, candidate)
            if verdict.admitted:
                named.update(launch.spec.identity() for launch in cast("Plan", verdict.plan).launches)
            refused += [(request, refusal.code) for refusal in verdict.refusals[:1]]
            if spec.identity() in named:
                break
        if spec.identity() not in named:
            by = f"; one with its values is refused by {refused[0][1]}" if refused else ""
            problem = f"no admitted request is found whose plan names {spec}, which Candidate.specs gives{by}"
            remedy = "Widen the limit that keeps requests from it, or leave it out of Candidate.specs"
            found.wrong(candidate.name, problem, remedy, told(refused[0][0]) if refused else "", kind="unnamed")


def identity(subject: Subject) -> Outcome:
    """Emit specs: the same identity gives the same text again, another identity another text and another symbol."""
    found = Findings("identity", "kernels")
    texts: dict[str, Spec] = {}
    symbols: dict[str, Spec] = {}
    for spec in subject.sampled_specs:
        found.looked_at()
        where, text = type(spec).__name__, subject.kernel_text(spec)
        again = digest(subject.composed, type(spec).from_json(spec.to_json()))
        if hashlib.sha256(text.encode()).hexdigest() != again:
            remedy = "Build a kernel from its spec and arch alone, and keep no state between emissions"
            found.wrong(where, "emitting the same spec twice gives two kernels", remedy, str(spec), kind="twice")
        other = texts.setdefault(text.replace(spec.symbol(), "symbol"), spec)
        if other is not spec:
            problem = f"two identities emit one kernel; they differ in {_differing(spec, other)}"
            remedy = "Drop the field, or let the kernel depend on it: each identity is compiled and tuned on its own"
            found.wrong(where, problem, remedy, f"{spec} and {other}", kind="one kernel")
        other = symbols.setdefault(spec.symbol(), spec)
        if other is not spec:
            problem = f"two specs are called {spec.symbol()}"
            found.wrong(where, problem, "Put the digest into the symbol", f"{spec} and {other}", kind="symbol")
    return found.outcome()


def analyses(subject: Subject) -> Outcome:
    """Run every static analysis on kernels; what plans pass to them lies within what they declare."""
    found = Findings("analyses", "analyses of kernels")
    for spec in subject.sampled_specs:
        found.looked_at(len(ANALYSES))
        for defect in analyse(subject.kernel(spec), arch=subject.arch, spec=spec):
            problem = f"{defect.check}: {defect.problem}"
            found.wrong(defect.where, problem, defect.remedy, defect.example or spec.symbol())
        for division in loop_divisions(subject.kernel(spec)):
            found.note(str(division))
    for request, verdict in subject.requests.admitted(40 if subject.full else 10):
        found.looked_at()
        for defect in argument_bounds(cast("Plan", verdict.plan), verdict.candidate, subject.arch, subject.kernel):
            found.wrong(defect.where, f"{defect.check}: {defect.problem}", defect.remedy, told(request))
    return found.outcome()


def no_spec_fields(subject: Subject) -> str:
    """Return that specs have no fields, where none of them has one."""
    return "" if not subject.specs or any(fields_of(type(spec)) for spec in subject.specs) else "its specs have none"


def spec_fields(subject: Subject) -> Outcome:
    """Change one field at a time: some other value that is legal, or that the emitter takes, gives another kernel."""
    found = Findings("spec_fields", "fields of specs")
    arch, composed = subject.arch, subject.composed
    fields = known_fields(subject.specs, subject.kernel, legal=lambda spec: not composed.validate_spec(spec))
    for each in fields:
        found.looked_at()
        where = f"{each.owner.__name__}.{each.name}"
        if each.dead:
            problem = f"{each.tried} pairs of specs that differ in it alone have equal kernels on {arch.name}"
            found.wrong(where, problem, "Drop the field, or let the kernel depend on it")
        elif each.pair is None:
            found.note(f"{where} has one value that can be emitted on {arch.name}, so nothing is compared")
    return found.outcome()


def _differing(spec: Spec, other: Spec) -> str:
    mine, theirs = cast("Mapping[str, Any]", spec.data())["fields"], cast("Mapping[str, Any]", other.data())["fields"]
    return ", ".join(name for name in mine if mine[name] != theirs.get(name))


def determinism(subject: Subject) -> Outcome:
    """Emit, plan and draw inputs in other processes, in another order too: the bytes are those of this one."""
    found = Findings("determinism", "kernels, plans and inputs in other processes")
    specs = subject.sampled_specs if subject.full else subject.sampled_specs[:4]
    requests = [request for request, _ in subject.requests.admitted(10)]
    here = {spec.identity(): hashlib.sha256(subject.kernel_text(spec).encode()).hexdigest() for spec in specs}
    plans = {request.to_json(): plan_text(subject.composed, request, subject.flavor) for request in requests}
    first = [base for each in subject.requests.candidates for base in subject.requests.bases(each)[:1]]
    inputs = {request.to_json(): inputs_text(subject.composed, request) for request in first}
    for request in first:
        if inputs_text(subject.composed, request) != inputs[request.to_json()]:
            problem = "a scenario gives other inputs when it is asked again"
            remedy = "Draw from the generator that Scenario.build is given alone, and keep no state"
            found.wrong(subject.title, problem, remedy, told(request))
    for seed in SEEDS:
        order = -1 if seed == SEEDS[-1] else 1  # whatever comes first must not matter
        asked = _asked(subject, list(here)[::order], list(plans)[::order], list(inputs)[::order])
        there = _answers(json.dumps(asked), seed)
        for kept, told_there, noun in (
            (here, there["specs"], "kernel"),
            (plans, there["plans"], "plan"),
            (inputs, there["inputs"], "scenario"),
        ):
            for name, value in kept.items():
                found.looked_at()
                if told_there[name] != value:
                    problem = f"a {noun} differs in a process with PYTHONHASHSEED={seed}"
                    remedy = "Iterate over sorted or ordered things, never over a set; read nothing of the process"
                    found.wrong(subject.title, problem, remedy, name, kind=noun)
    return found.outcome()


def _asked(subject: Subject, specs: list[str], requests: list[str], inputs: list[str]) -> dict[str, Any]:
    return {
        "path": sys.path,
        "members": [_address(each) for each in _members(subject.composed)],
        "arch": subject.arch.name,
        "flavor": subject.flavor_name,
        "specs": specs,
        "requests": requests,
        "inputs": inputs,
    }


def _members(composition: Composition) -> tuple[Any, ...]:
    return tuple(each.offer for each in composition.members[1:])


def _address(offer: Any) -> dict[str, str]:
    return {name: getattr(offer, name) for name in ("kind", "name", "value", "distribution", "version")}


def _answers(asked: str, seed: str) -> dict[str, dict[str, str]]:
    command = [sys.executable, "-c", "from kinfolk.testing.child import main; main()"]
    environment = child_environment(seed)
    done = subprocess.run(
        command, input=asked, env=environment, capture_output=True, text=True, check=False, timeout=CHILD_SECONDS
    )
    if done.returncode:
        raise InternalError(f"the process that emits again failed: {done.stderr[-2000:]}")
    return json.loads(done.stdout)


def child_environment(seed: str) -> dict[str, str]:
    """Return the environment of a process that emits again: where Python finds modules, and its hash seed."""
    import kinfolk

    first = next(iter(kinfolk.__path__)).rpartition("/")[0]
    return {"PYTHONHASHSEED": seed, "PYTHONPATH": first, "PATH": ""}
