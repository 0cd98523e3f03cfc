"""What a profile says, schema `kinfolk.profile/1`: data for tools, strict JSON without NaN or infinities."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import attrs

from kinfolk.banks import BankCost
from kinfolk.ir.meaning import Control
from kinfolk.ir.value import Kernel
from kinfolk.refusal import Refusal, Status, status_of
from kinfolk_runtime.profile.counts import Counts, Instruction, Segments

SCHEMA: Final = "kinfolk.profile/1"
UNDECLARED: Final = "the arch declares no banks of its workgroup memory"


def _costs(cost: BankCost) -> dict[str, Any]:
    """Return cycles as JSON; of an access whose phases nobody has measured, `exact` is false and both are bounds."""
    return {"cycles": cost.cycles, "fewest": cost.fewest, "conflicts": cost.conflicts, "exact": cost.exact}


def _ratio(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _is_branch(each: Instruction) -> bool:
    meaning = each.definition.meaning
    return isinstance(meaning, Control) and meaning.kind == "if"


def _segments(found: tuple[Segments, ...]) -> list[dict[str, Any]]:
    return [{"bytes": each.size, "touched": each.touched, "fewest": each.fewest} for each in found]


@attrs.frozen(kw_only=True, eq=False)
class KernelProfile:
    """One launch: what `measured` of its workgroups did. Counts are those of the measured workgroups.

    Only `flops_of_grid` speaks of all: exact where all were measured, else in proportion.
    """

    kernel: Kernel
    spec_digest: str
    grid: tuple[int, int, int]
    measured: int
    counts: Counts

    @property
    def workgroups(self) -> int:
        """Workgroups of the grid."""
        return math.prod(self.grid)

    @property
    def flops_of_grid(self) -> int:
        """Operations of matrix products that the whole grid issues."""
        return self.counts.flops * self.workgroups // self.measured if self.measured else 0

    @property
    def instructions(self) -> tuple[Instruction, ...]:
        """The instructions that ran."""
        return self.counts.instructions

    def total(self, name: str) -> int:
        """Return the sum of one of the instructions' counts."""
        return sum(getattr(each, name) for each in self.instructions)

    @property
    def minimum_bytes(self) -> int:
        """Each byte that was read once and each that was written once."""
        return self.counts.distinct_read() + self.counts.distinct_written()

    @property
    def times_minimum(self) -> float | None:
        """Bytes moved to and from global memory over the fewest; None where none were."""
        return _ratio(self.total("global_read") + self.total("global_written"), self.minimum_bytes)

    @property
    def vector_instructions(self) -> tuple[Instruction, ...]:
        """Instructions that lanes take part in: all but scalar ones and those that issue nothing."""
        return tuple(each for each in self.instructions if each.definition.issue not in ("none", "scalar"))

    @property
    def active_share(self) -> float | None:
        """Active lanes over lanes of all vector instructions."""
        of = self.vector_instructions
        return _ratio(sum(each.active for each in of), sum(each.lanes for each in of))

    @property
    def branches(self) -> tuple[int, int]:
        """How often waves came to a branch, and how often lanes then went both ways."""
        of = [each for each in self.instructions if _is_branch(each)]
        return sum(each.executions for each in of), sum(each.both_ways for each in of)

    @property
    def worst_banks(self) -> Instruction | None:
        """The instruction whose worst access has the most bank conflicts; None where workgroup memory is unused."""
        known = [each for each in self.instructions if each.worst_cost is not None]
        return max(known, key=lambda each: each.worst_cost.conflicts if each.worst_cost else 0) if known else None

    @property
    def unmeasured(self) -> str:
        """Why some bank cycles are bounds or missing; nothing where all are exact."""
        if self.counts.banks is None:
            return UNDECLARED if self.total("workgroup_read") or self.total("workgroup_written") else ""
        cost = self.counts.bank_cost()
        return "" if cost is None or cost.exact else self.counts.banks.unmeasured

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON row."""
        branches, both = self.branches
        cost = self.counts.bank_cost()
        return {
            "symbol": self.kernel.name,
            "spec_digest": self.spec_digest,
            "grid": list(self.grid),
            "block": self.kernel.block,
            "workgroups": {
                "grid": self.workgroups,
                "measured": self.measured,
                "all": self.measured == self.workgroups,
            },
            "flops": {"issued": self.counts.flops, "issued_of_grid": self.flops_of_grid},
            "global_memory": {
                "read_bytes": self.total("global_read"),
                "written_bytes": self.total("global_written"),
                "distinct_read_bytes": self.counts.distinct_read(),
                "distinct_written_bytes": self.counts.distinct_written(),
                "minimum_bytes": self.minimum_bytes,
                "times_minimum": self.times_minimum,
                "segments": _segments(self.counts.segments()),
            },
            "workgroup_memory": {
                "read_bytes": self.total("workgroup_read"),
                "written_bytes": self.total("workgroup_written"),
                "banks": None if cost is None else _costs(cost),
                "unmeasured": self.unmeasured,
            },
            "divergence": {"active_share": self.active_share, "branches": branches, "both_ways": both},
            "issued": dict(sorted(self.counts.issued().items())),
            "instructions": [_instruction(each) for each in self.instructions if each.definition.issue != "none"],
        }


def _instruction(each: Instruction) -> dict[str, Any]:
    """Return the row of an instruction; what it has no part in is left out."""
    row: dict[str, Any] = {
        "op": each.name,
        "source": each.source,
        "issue": each.definition.issue,
        "executions": each.executions,
    }
    if each.definition.issue != "scalar":
        row["active_share"] = each.active / each.lanes
    if each.flops:
        row["flops"] = each.flops
    if each.segments[0].touched:
        row["global_memory"] = {
            "read_bytes": each.global_read,
            "written_bytes": each.global_written,
            "segments": _segments(each.segments),
            "worst_segments": _segments(each.worst_segments),
        }
    if each.workgroup_read or each.workgroup_written:
        row["workgroup_memory"] = {
            "read_bytes": each.workgroup_read,
            "written_bytes": each.workgroup_written,
            "banks": _costs(each.banks) if each.banks else None,
            "worst_banks": _costs(each.worst_cost) if each.worst_cost else None,
        }
    return row


@attrs.frozen(kw_only=True)
class Profile:
    """What became of a request: refused or failed with reasons, or measured on one scenario.

    `useful_flops` are what the scenario's inputs need by the family's definition, None where it does not say.
    """

    family: str
    arch: str
    flavor: str
    candidate: str | None
    request: Mapping[str, Any]
    scenario: str | None = None
    useful_flops: int | None = None
    kernels: tuple[KernelProfile, ...] = ()
    refusals: tuple[Refusal, ...] = ()

    @property
    def status(self) -> Status:
        """`pass`, `refused`, or `fail`, which an error among the refusals is, and a run without a workgroup."""
        return status_of(self.refusals, passed=any(kernel.measured for kernel in self.kernels))

    @property
    def issued_flops(self) -> int:
        """Operations of matrix products that all launches issue."""
        return sum(kernel.flops_of_grid for kernel in self.kernels)

    @property
    def useful_share(self) -> float | None:
        """Useful operations over issued ones; None where either is unknown or nothing was issued."""
        return None if self.useful_flops is None else _ratio(self.useful_flops, self.issued_flops)

    def to_dict(self) -> dict[str, Any]:
        """Return the document."""
        return {
            "schema": SCHEMA,
            "status": self.status,
            "family": self.family,
            "arch": self.arch,
            "flavor": self.flavor,
            "candidate": self.candidate,
            "request": dict(self.request),
            "scenario": self.scenario,
            "flops": {"useful": self.useful_flops, "issued": self.issued_flops, "useful_share": self.useful_share},
            "kernels": [kernel.to_dict() for kernel in self.kernels],
            "refusals": [refusal.to_dict() for refusal in self.refusals],
        }
