"""Mutants of a family's kernels: its scenarios must notice each."""

from __future__ import annotations

from typing import Final

from kinfolk.request import Request
from kinfolk.testing.check import Findings, Outcome
from kinfolk.testing.subject import Subject
from kinfolk_runtime.conformance.small import mutation_requests
from kinfolk_runtime.mutation import mutate, own_requests

FEW: Final = 16
MANY: Final = 48
"""Mutants of a candidate, by level."""
REMEDY: Final = "Add a scenario that notices it, or drop what changes nothing; kinfolk mutate shows more"


def mutation(subject: Subject) -> Outcome:
    """Draw mutants by the subject's seed and run them; a survivor is a defect of the scenarios or of the kernel."""
    count = MANY if subject.full else FEW
    begun: list[str] = []

    def step(name: str, of: int) -> None:
        begun.append(name)
        subject.progress(f"mutant {len(begun)}, {name} ({of} of this candidate)")

    requests = _requests(subject)
    report = mutate(subject.composed, subject.flavor_name, requests=requests, seed=subject.seed, count=count, step=step)
    shared = {candidate.candidate for candidate in report.candidates if candidate.others}
    found = Findings("mutation", "mutants", each=[each for each in subject.serving if each not in shared])
    for candidate in report.candidates:
        if candidate.others:
            found.note(f"{candidate.candidate} has no kernel of its own: those of {', '.join(candidate.others)}")
            continue
        found.looked_at(len(candidate.outcomes), of=candidate.candidate)
        if candidate.error:
            found.wrong(candidate.candidate, candidate.error, "Let the kernel pass its own scenarios first")
        for outcome in candidate.survivors:
            problem = f"mutant {outcome.mutant} survived: {outcome.change}"
            found.wrong(f"{candidate.candidate}, {outcome.site}", problem, REMEDY, "; ".join(outcome.diff))
        for operator in candidate.unapplied:
            problem = f"operator {operator} applies and was never applied"
            found.wrong(candidate.candidate, problem, "Raise the count of mutants, or run kinfolk mutate --all")
    return found.outcome()


def _requests(subject: Subject) -> tuple[Request, ...]:
    """Return the requests that the family names for this, else small ones that are made up."""
    return own_requests(subject.composed, subject.flavor_name) or mutation_requests(subject)
