"""What a model of time says of a launch of machine code, as data: clocks by cause, per wave, loop and instruction.

A model is an arch's. Nothing in here was measured on a device; each constant that a model counts with says where it
comes from, and a launch that was traced can be timed again with others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal, Protocol

import attrs

Cause = Literal[
    "matrix",
    "vector",
    "scalar",
    "workgroup_memory",
    "memory_latency",
    "memory_bandwidth",
    "barrier",
    "branch",
]
"""What clocks of a wave go to: issuing an instruction of that kind, or standing still because of it."""
CAUSES: Final[Mapping[Cause, str]] = {
    "matrix": "matrix instructions: the unit is busy, or a result is not there yet",
    "vector": "vector instructions",
    "scalar": "scalar instructions, waits that find all there, idle instructions",
    "workgroup_memory": "accesses to workgroup memory, with their bank conflicts",
    "memory_latency": "accesses to memory that are on their way, scalar loads too",
    "memory_bandwidth": "accesses to memory that stand behind others",
    "barrier": "the other waves of the workgroup have not arrived",
    "branch": "branches",
}


@attrs.frozen(kw_only=True)
class Constant:
    """A number that a model counts with."""

    name: str
    value: float
    unit: str
    meaning: str
    source: str


@attrs.frozen(kw_only=True)
class Spent:
    """Clocks of waves: those in which instructions issue, and those in which waves stand still, each by cause."""

    issue: Mapping[Cause, float] = attrs.field(factory=dict[Cause, float])
    stalls: Mapping[Cause, float] = attrs.field(factory=dict[Cause, float])

    @property
    def clocks(self) -> float:
        """All of them."""
        return sum(self.issue.values()) + sum(self.stalls.values())

    def of(self, cause: Cause) -> float:
        """Return the clocks that go to a cause, issuing or standing still."""
        return self.issue.get(cause, 0.0) + self.stalls.get(cause, 0.0)

    @property
    def bound(self) -> Cause | None:
        """The cause that most clocks go to; None where there are none."""
        return max(CAUSES, key=self.of) if self.clocks else None

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object; causes without a clock are left out."""
        return {
            "clocks": self.clocks,
            "bound": self.bound,
            "issue": {cause: self.issue[cause] for cause in CAUSES if self.issue.get(cause)},
            "stalls": {cause: self.stalls[cause] for cause in CAUSES if self.stalls.get(cause)},
        }


@attrs.frozen(kw_only=True)
class InstructionTiming:
    """One instruction of the code: how often waves ran it, and the clocks of all of them.

    A clock in which a wave stands still counts at the instruction that could not issue. `conflicts` are clocks of
    workgroup memory beyond the fewest that its accesses could take.
    """

    offset: int
    text: str
    count: int
    spent: Spent
    conflicts: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON row."""
        row: dict[str, Any] = {"offset": self.offset, "text": self.text, "count": self.count, **self.spent.to_dict()}
        return {**row, "conflicts": self.conflicts} if self.conflicts else row


@attrs.frozen(kw_only=True)
class LoopTiming:
    """A loop, entered at the instruction at `begin`, that the one at `end` leads back to; compilers may put it before.

    `rounds` are those of all waves; where it is `innermost`, no other loop is inside.
    """

    begin: int
    end: int
    rounds: int
    matrix_instructions: int
    innermost: bool
    spent: Spent

    @property
    def clocks_per_round(self) -> float:
        """Clocks that a wave takes for a round."""
        return self.spent.clocks / self.rounds if self.rounds else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON row."""
        return {
            "begin": self.begin,
            "end": self.end,
            "rounds": self.rounds,
            "clocks_per_round": self.clocks_per_round,
            "matrix_instructions": self.matrix_instructions,
            "innermost": self.innermost,
            **self.spent.to_dict(),
        }


@attrs.frozen
class Span:
    """A stretch of a wave's time that goes to one cause."""

    begin: float
    end: float
    cause: Cause
    stalled: bool


@attrs.frozen(kw_only=True)
class WaveTiming:
    """One wave: its workgroup's number in the grid, its own in the workgroup, its SIMD, when it ran, on what.

    `spans` are empty where nobody asked for them.
    """

    workgroup: int
    number: int
    simd: int
    begin: float
    end: float
    spent: Spent
    spans: tuple[Span, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON row."""
        place = {"workgroup": self.workgroup, "wave": self.number, "simd": self.simd}
        return {**place, "begin": self.begin, "end": self.end, **self.spent.to_dict()}


@attrs.frozen(kw_only=True)
class Timing:
    """A launch by a model: what the compute unit with most to do takes for its share of the workgroups.

    The launch ends when that unit does. Of its `share` of workgroups `timed` were timed, at most `resident` of them at
    the same time, in `clocks`; `clocks_of_grid` has the others in proportion to the instructions that they ran.
    `busy` is the part of those clocks in which each unit worked, of those that there are several of on average.
    """

    symbol: str
    workgroups: int
    compute_units: int
    share: int
    timed: int
    resident: int
    waves_per_simd: int
    clocks: float
    clocks_of_grid: float
    busy: Mapping[str, float]
    waves: tuple[WaveTiming, ...]
    loops: tuple[LoopTiming, ...]
    instructions: tuple[InstructionTiming, ...]

    @property
    def spent(self) -> Spent:
        """The clocks of all waves that were timed."""
        return added(wave.spent for wave in self.waves)

    @property
    def main_loop(self) -> LoopTiming | None:
        """The innermost loop with most matrix instructions, of those with none the one of most clocks; None without."""
        inner = [each for each in self.loops if each.innermost]
        return max(inner, key=lambda each: (each.matrix_instructions, each.spent.clocks), default=None)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object."""
        return {
            "symbol": self.symbol,
            "workgroups": {
                "grid": self.workgroups,
                "compute_units": self.compute_units,
                "share": self.share,
                "timed": self.timed,
                "resident": self.resident,
            },
            "waves_per_simd": self.waves_per_simd,
            "clocks": self.clocks,
            "clocks_of_grid": self.clocks_of_grid,
            "busy": dict(self.busy),
            "spent": self.spent.to_dict(),
            "loops": [each.to_dict() for each in self.loops],
            "waves": [each.to_dict() for each in self.waves],
            "instructions": [each.to_dict() for each in self.instructions],
        }


def added(parts: Iterable[Spent]) -> Spent:
    """Return the sum of clocks."""
    issue: dict[Cause, float] = {}
    stalls: dict[Cause, float] = {}
    for part in parts:
        for total, more in ((issue, part.issue), (stalls, part.stalls)):
            for cause, clocks in more.items():
                total[cause] = total.get(cause, 0.0) + clocks
    return Spent(issue=issue, stalls=stalls)


class LaunchTrace(Protocol):
    """What waves of a launch issued, in order, with what their accesses reached."""

    @property
    def constants(self) -> tuple[Constant, ...]:
        """What the model counts with, for this kernel on its arch."""
        ...

    @property
    def conflict_clocks(self) -> int:
        """Clocks of workgroup memory beyond the fewest that accesses could take, of all workgroups of the grid."""
        ...

    def timing(
        self, scaled_by: Mapping[str, float] | None = None, *, workgroups: int | None = None, spans: bool = False
    ) -> Timing:
        """Return what the model says, with constants multiplied by `scaled_by` by name.

        At most `workgroups` of the compute unit's share are timed; `spans` keeps each wave's. Raises ValueError for a
        constant that there is none of, or a factor that is not above 0.
        """
        ...


def sensitivity(trace: LaunchTrace, by: float = 0.5, workgroups: int | None = None) -> dict[str, tuple[float, float]]:
    """Return per constant the clocks of the launch with it `by` lower and higher, over those with it as it is."""
    usual = trace.timing(workgroups=workgroups).clocks_of_grid or 1.0

    def ratio(name: str, factor: float) -> float:
        return trace.timing({name: factor}, workgroups=workgroups).clocks_of_grid / usual

    return {each.name: (ratio(each.name, 1 - by), ratio(each.name, 1 + by)) for each in trace.constants}
