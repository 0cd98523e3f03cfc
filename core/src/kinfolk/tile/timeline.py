"""One round of a software pipeline, laid out in order: units of matrix work, reads ahead of their use, jobs between.

LLVM keeps the order it is given, so the order is decided here. A round is a sequence of sections, each a sequence of
units. A read stands some units before the unit that uses it, if need be in the section before; the earliest reads of a
round may stand at the end of the round before, and are carried. One barrier parts the reads of this round's tiles
from those of the next round's: where it stands follows from the reads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs

from kinfolk.errors import IRError
from kinfolk.ir.ops.control import barrier, meet, schedule_fence
from kinfolk.ir.value import Value

Read = Callable[[int], Sequence[Value]]
"""Issues the read of a unit, by its number in the section."""
Use = Callable[[int, Sequence[Value]], None]
"""Builds a unit's matrix operations on what was read for it."""
Job = Callable[[], None]
"""A few operations that no unit waits for at once."""


@attrs.frozen(kw_only=True, eq=False)
class Stream:
    """Reads of a section, one a unit, each `ahead` units before its use."""

    read: Read
    ahead: int


@attrs.frozen(kw_only=True, eq=False)
class Spread:
    """Jobs spread evenly, in order, over the part of a section from `begin` to `end`, both in [0, 1]."""

    jobs: Sequence[Job]
    begin: float = 0.0
    end: float = 1.0


@attrs.frozen(kw_only=True, eq=False)
class Section:
    """`units` units in order, `use` building each; a schedule fence closes every `fence_every` units, 0 for none."""

    units: int
    use: Use
    stream: Stream
    fence_every: int = 1
    spreads: Sequence[Spread] = ()


@attrs.frozen(kw_only=True, eq=False)
class Round:
    """Sections in order, and how many units are left to do when the waves meet; None for a round without a barrier.

    The first section's first reads are `carried` from the round before; those it does not carry stand at the start.
    `following` is what the next round reads first, once past the barrier. `before_barrier` is done just before the
    waves meet. `outlives_barrier`: what this round reads is overwritten only after the next round's barrier, so that it
    may be read past this round's. With `meeting`, waves at another
    barrier of that place meet those at this one.
    """

    sections: Sequence[Section]
    carried: Sequence[Sequence[Value]] = ()
    following: Stream | None = None
    units_after_barrier: int | None = None
    before_barrier: Job | None = None
    outlives_barrier: bool = False
    meeting: str = ""

    def lay_out(self) -> list[Sequence[Value]]:
        """Build the round; return the next round's first reads.

        Raises IRError where a read of this round would stand past the barrier.
        """
        plan = _Plan.of(self)
        pending: dict[tuple[int, int], Sequence[Value]] = {
            (0, unit): values for unit, values in enumerate(self.carried)
        }
        ahead: list[Sequence[Value]] = []
        for place, (number, unit) in enumerate(plan.units):
            if place == plan.barrier:
                self._meet()
            for source, wanted in plan.reads[place]:
                if source is None:
                    ahead.append(self._following(wanted))
                else:
                    pending[source, wanted] = self.sections[source].stream.read(wanted)
            section = self.sections[number]
            section.use(unit, pending.pop((number, unit)))
            for job in plan.jobs[place]:
                job()
            if section.fence_every and (unit + 1) % section.fence_every == 0:
                schedule_fence()
        if plan.barrier == len(plan.units):
            self._meet()
        first = len(ahead)
        return ahead + [self._following(unit) for unit in range(first, plan.following)]

    def _meet(self) -> None:
        if self.before_barrier is not None:
            self.before_barrier()
        if self.meeting:
            meet(self.meeting)
        else:
            barrier()

    def _following(self, unit: int) -> Sequence[Value]:
        assert self.following is not None
        return self.following.read(unit)


def first_reads(stream: Stream) -> list[Sequence[Value]]:
    """Issue the reads that a first round is handed, before a loop."""
    return [stream.read(unit) for unit in range(stream.ahead)]


@attrs.frozen(eq=False)
class _Plan:
    """What stands at which place: units in order, per place the reads before it (None: the next round's) and jobs."""

    units: list[tuple[int, int]]
    reads: list[list[tuple[int | None, int]]]
    jobs: list[list[Job]]
    barrier: int
    following: int

    @classmethod
    def of(cls, round_: Round) -> _Plan:
        units = [(number, unit) for number, section in enumerate(round_.sections) for unit in range(section.units)]
        total = len(units)
        left = round_.units_after_barrier
        meeting = -1 if left is None else total - left
        reads: list[list[tuple[int | None, int]]] = [[] for _ in units]
        jobs: list[list[Job]] = [[] for _ in units]
        begin = 0
        for number, section in enumerate(round_.sections):
            for unit in range(section.units):
                place = max(begin + unit - section.stream.ahead, 0)
                if number or unit >= len(round_.carried):
                    if 0 <= meeting <= place and not round_.outlives_barrier:
                        raise IRError(
                            f"the read of unit {unit} of section {number} stands at unit {place}, past the barrier "
                            f"before unit {meeting}; read further ahead or meet later"
                        )
                    reads[place].append((number, unit))
            for spread in section.spreads:
                _spread(spread, section.units, jobs[begin : begin + section.units])
            begin += section.units
        ahead = 0 if round_.following is None else round_.following.ahead
        for unit in range(ahead):
            place = max(total + unit - ahead, meeting)
            if place < total:
                reads[place].append((None, unit))
        return cls(units, reads, jobs, meeting, ahead)


def _spread(spread: Spread, units: int, places: Sequence[list[Job]]) -> None:
    count, width = len(spread.jobs), spread.end - spread.begin
    for index, job in enumerate(spread.jobs):
        at = spread.begin + width * (index + 0.5) / count
        places[min(int(at * units), units - 1)].append(job)
