"""What mutation found, schema `kinfolk.mutation/1`: per candidate and kernel how many mutants were killed by what."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Literal

import attrs

from kinfolk_runtime.mutation.outcome import Outcome

SCHEMA: Final = "kinfolk.mutation/1"


@attrs.frozen(kw_only=True)
class KernelScore:
    """One kernel: how many classes of mutants (site and operator) it has, by operator, and how many were sampled.

    `ir` is the digest of its IR.
    """

    spec: str
    symbol: str
    ir: str
    classes: Mapping[str, int]


@attrs.frozen(kw_only=True)
class CandidateReport:
    """One candidate on one arch: its kernels, and what became of each mutant that was run.

    `applied` are operators that were applied to another candidate, whose sample this one's is drawn together with.
    `others` are the candidates whose kernels it launches, where it has none of its own: it needs no mutants then.
    """

    candidate: str
    kernels: tuple[KernelScore, ...]
    outcomes: tuple[Outcome, ...]
    error: str = ""
    applied: frozenset[str] = frozenset()
    others: tuple[str, ...] = ()

    @property
    def survivors(self) -> tuple[Outcome, ...]:
        """The mutants that nothing noticed, and that are not shown to be equivalent."""
        return tuple(outcome for outcome in self.outcomes if outcome.status == "survived")

    @property
    def unapplied(self) -> tuple[str, ...]:
        """The operators that apply at some site, none of whose mutants was run."""
        offered = {name for kernel in self.kernels for name in kernel.classes}
        return tuple(sorted(offered - self.applied - {outcome.operator for outcome in self.outcomes}))

    @property
    def killers(self) -> dict[str, int]:
        """How many mutants each tool killed, the most first."""
        found = Counter(outcome.kill.by for outcome in self.outcomes if outcome.kill is not None)
        return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))

    def count(self, status: str) -> int:
        """Return how many mutants have a status."""
        return sum(outcome.status == status for outcome in self.outcomes)

    @property
    def status(self) -> Literal["pass", "fail"]:
        """`fail` for a survivor, an operator never applied, an error, or nothing run of kernels of its own."""
        nothing = not self.outcomes and not self.others
        return "fail" if self.error or self.survivors or self.unapplied or nothing else "pass"

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object."""
        return {
            "candidate": self.candidate,
            "status": self.status,
            "error": self.error,
            "others": list(self.others),
            "mutants": len(self.outcomes),
            "killed": self.count("killed"),
            "equivalent": self.count("equivalent"),
            "survived": self.count("survived"),
            "killers": self.killers,
            "unapplied": list(self.unapplied),
            "kernels": [{**attrs.asdict(kernel), "classes": dict(kernel.classes)} for kernel in self.kernels],
            "outcomes": [outcome.to_dict() for outcome in self.outcomes],
        }


@attrs.frozen(kw_only=True)
class MutationReport:
    """A family on an arch. `seed` is None where every class was run, not a sample."""

    family: str
    arch: str
    flavor: str
    seed: int | None
    candidates: tuple[CandidateReport, ...]

    @property
    def status(self) -> Literal["pass", "fail"]:
        """`fail` where a candidate fails, or there is none."""
        return "pass" if self.candidates and all(each.status == "pass" for each in self.candidates) else "fail"

    def outcomes(self) -> Iterator[Outcome]:
        """Yield every outcome."""
        for each in self.candidates:
            yield from each.outcomes

    def to_dict(self) -> dict[str, Any]:
        """Return the document."""
        return {
            "schema": SCHEMA,
            "status": self.status,
            "family": self.family,
            "arch": self.arch,
            "flavor": self.flavor,
            "seed": self.seed,
            "candidates": [each.to_dict() for each in self.candidates],
        }


def first_lines(diff: Sequence[str], most: int = 12) -> tuple[str, ...]:
    """Return the beginning of a diff, and how much of it is left out."""
    more = [f"... and {len(diff) - most} lines"] if len(diff) > most else []
    return (*diff[:most], *more)
