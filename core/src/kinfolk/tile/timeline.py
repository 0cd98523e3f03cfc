"""One round of a software pipeline, laid out in order: units of matrix work, reads ahead of their use, jobs between.

LLVM keeps the order it is given, so the order is decided here. A round is a sequence of sections, each a sequence of
units. A read stands some units before the unit that uses it, if need be in the section before; the earliest reads of a
round may stand at the end of the round before, and are carried. Where the waves meet follows from the tiles that
streams read and jobs write: each access stands on the side of the barrier that its `Rotation` leaves it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs

from kinfolk.errors import IRError
from kinfolk.expr import Expr, minimum
from kinfolk.ir.builder import current_builder, op_for_role
from kinfolk.ir.meaning import LanePermutation
from kinfolk.ir.ops.control import barrier, meet, schedule_fence
from kinfolk.ir.value import Value, walked
from kinfolk.tile.rotation import BEFORE, PAST, Rotation, Side

Read = Callable[[int], Sequence[Value]]
"""Issues the read of a unit, by its number in the section, and returns what it gives."""
Use = Callable[[int, Sequence[Value]], None]
"""Builds a unit's matrix operations on what was read for it."""
Job = Callable[[], None]
"""A few operations that no unit waits for at once."""


@attrs.frozen(kw_only=True, eq=False)
class Stream:
    """Reads of a section, one a unit, each `ahead` units before its use.

    `tile` is how many tiles ahead of the round's own the one they read is; None where they read no tile of the ring.
    """

    read: Read
    ahead: int
    tile: int | None = None


@attrs.frozen(kw_only=True, eq=False)
class Spread:
    """Jobs spread evenly, in order, over the part of a section from `begin` to `end`, both in [0, 1].

    Of jobs that write the tile `writes` ahead, the part is of what the section has on their side of the barrier. Jobs
    that are steps of a chain have a `gap`: one that follows an exchange between lanes by the workgroup memory's pipe
    stands at least so many units later, if need be past the section; behind the round's last unit all that are left
    follow at once.
    """

    jobs: Sequence[Job]
    begin: float = 0.0
    end: float = 1.0
    writes: int | None = None
    gap: int = 0

    def __attrs_post_init__(self) -> None:
        if self.gap and self.writes is not None:
            raise IRError("jobs that write a tile keep to their side of the barrier, and have no gap")


@attrs.frozen(kw_only=True, eq=False)
class Section:
    """`units` units in order, `use` building each on what every stream read for it, all values in order.

    A schedule fence closes every `fence_every` units, 0 for none.
    """

    units: int
    use: Use
    streams: Sequence[Stream]
    fence_every: int = 1
    spreads: Sequence[Spread] = ()


@attrs.frozen(kw_only=True, eq=False)
class Meeting:
    """The barrier of a round: `units_after` units are left when the waves meet; None for the middle of what is legal.

    With `place`, waves at another barrier of that place meet those at this one.
    """

    rotation: Rotation
    units_after: int | None = None
    place: str = ""

    def __attrs_post_init__(self) -> None:
        if self.rotation.meetings != 1:
            raise IRError(f"a round places one barrier, the rotation has {self.rotation.meetings}: place them by hand")

    def build(self) -> None:
        """Wait for the tiles that come directly, and meet. `round_of` tells the wait what may stay on its way."""
        if self.rotation.direct:
            wait_for_tiles()
        if self.place:
            meet(self.place)
        else:
            barrier()


@attrs.frozen(kw_only=True, eq=False)
class Round:
    """Sections in order, and where the waves meet; None for a round without a barrier.

    The first reads of the first section's first stream are `carried` from the round before; those it does not carry
    stand at the start.
    `following` is what the next round reads first.
    """

    sections: Sequence[Section]
    carried: Sequence[Sequence[Value]] = ()
    following: Stream | None = None
    meeting: Meeting | None = None

    def units_after(self) -> range:
        """Return how many units may be left when the waves meet, by what stands where; empty where nothing fits.

        Raises IRError for a round without a barrier.
        """
        if self.meeting is None:
            raise IRError("a round without a barrier has no place for it")
        first, last = _legal(self, self.meeting.rotation)
        total = sum(section.units for section in self.sections)
        return range(total - last, total - first + 1)

    def lay_out(self) -> list[Sequence[Value]]:
        """Build the round; return the next round's first reads.

        Raises IRError where the barrier is asked for outside of `units_after`.
        """
        plan = _Plan.of(self)
        pending: dict[tuple[int, int, int], Sequence[Value]] = {
            (0, 0, unit): values for unit, values in enumerate(self.carried)
        }
        ahead: list[Sequence[Value]] = []
        waiting = _Waiting()
        for place, (number, unit) in enumerate(plan.units):
            if place == plan.barrier:
                self._meet()
            for source, wanted in plan.reads[place]:
                if source is None:
                    ahead.append(self._following(wanted))
                else:
                    pending[*source, wanted] = self.sections[source[0]].streams[source[1]].read(wanted)
            section = self.sections[number]
            read = [pending.pop((number, stream, unit)) for stream in range(len(section.streams))]
            section.use(unit, [value for values in read for value in values])
            waiting.do(plan.jobs[place], place)
            if section.fence_every and (unit + 1) % section.fence_every == 0:
                schedule_fence()
        if plan.barrier == len(plan.units):
            self._meet()
        waiting.do(plan.jobs[-1])
        return ahead + [self._following(unit) for unit in range(len(ahead), plan.following)]

    def _meet(self) -> None:
        assert self.meeting is not None
        self.meeting.build()

    def _following(self, unit: int) -> Sequence[Value]:
        assert self.following is not None
        return self.following.read(unit)


class _Waiting:
    """Jobs whose place has come, in order, those of a chain until its last exchange is far enough behind."""

    def __init__(self) -> None:
        self._jobs: dict[Spread, list[Job]] = {}
        self._ready: dict[Spread, int] = {}

    def do(self, due: Sequence[tuple[Spread, Job]], place: int | None = None) -> None:
        """Do what may stand at a place, `due` being new; all there is without a place."""
        for spread, job in due:
            self._jobs.setdefault(spread, []).append(job)
        for spread, jobs in self._jobs.items():
            while jobs and (place is None or place >= self._ready.get(spread, 0)):
                if _exchanges(jobs.pop(0)) and place is not None:
                    self._ready[spread] = place + spread.gap


def _exchanges(job: Job) -> bool:
    """Do a job; return whether an operation of it hands values between lanes the long way, by the op table."""
    emitted = current_builder().operations
    begin = len(emitted)
    job()
    built = (op.definition for op in walked(emitted[begin:]))
    return any(isinstance(op.meaning, LanePermutation) and op.issue == "workgroup_memory" for op in built)


def first_reads(stream: Stream) -> list[Sequence[Value]]:
    """Issue the reads that a first round is handed, before a loop."""
    return [stream.read(unit) for unit in range(stream.ahead)]


def wait_for_tiles() -> None:
    """Wait until all bytes that this wave has asked for are in workgroup memory, by an op of the arch."""
    op_for_role("wait_staged").add(outstanding=0)


def _stands(rotation: Rotation | None, stream: Stream, side: Side) -> bool:
    """Whether reads of a stream may stand on a side of the barrier."""
    return rotation is None or stream.tile is None or rotation.reads_may_stand(stream.tile, side)


def _uncarried(round_: Round, number: int, stream: int) -> range:
    """Return the units of a section for which a stream's reads are the round's own."""
    return range(0 if number or stream else len(round_.carried), round_.sections[number].units)


def _legal(round_: Round, rotation: Rotation) -> tuple[int, int]:
    """Return the first and the last unit before which the waves may meet; one past the last unit is the end."""
    first, last, begin = 0, sum(section.units for section in round_.sections), 0
    for number, section in enumerate(round_.sections):
        for place, stream in enumerate(section.streams):
            own = _uncarried(round_, number, place)
            if own and not _stands(rotation, stream, PAST):
                first = max(first, begin + own[-1] - stream.ahead + 1, 1)
            if own and not _stands(rotation, stream, BEFORE):
                last = min(last, begin + own[0])
        if any(
            spread.jobs and spread.writes is not None and rotation.side_of_writes(spread.writes) == BEFORE
            for spread in section.spreads
        ):
            first = max(first, begin + 1)
        begin += section.units
    return first, last


@attrs.frozen(eq=False)
class _Plan:
    """What stands at which place: units in order, per place the reads before it (None: the next round's) and jobs.

    The last jobs stand behind all units.
    """

    units: list[tuple[int, int]]
    reads: list[list[tuple[tuple[int, int] | None, int]]]
    jobs: list[list[tuple[Spread, Job]]]
    barrier: int
    following: int

    @classmethod
    def of(cls, round_: Round) -> _Plan:
        units = [(number, unit) for number, section in enumerate(round_.sections) for unit in range(section.units)]
        total, meeting = len(units), _meeting_place(round_)
        rotation = None if round_.meeting is None else round_.meeting.rotation
        reads: list[list[tuple[tuple[int, int] | None, int]]] = [[] for _ in units]
        jobs: list[list[tuple[Spread, Job]]] = [[] for _ in range(total + 1)]
        begin = 0
        for number, section in enumerate(round_.sections):
            for source, stream in enumerate(section.streams):
                earliest = 0 if _stands(rotation, stream, BEFORE) else meeting
                for unit in _uncarried(round_, number, source):
                    reads[max(begin + unit - stream.ahead, earliest, 0)].append(((number, source), unit))
            end = begin + section.units
            for spread in section.spreads:
                part = range(begin, end)
                if rotation is not None and spread.writes is not None:
                    past = rotation.side_of_writes(spread.writes) == PAST
                    part = range(max(begin, meeting), end) if past else range(begin, min(end, meeting))
                _spread(spread, part, jobs)
            begin = end
        following = round_.following
        if following is None:
            return cls(units, reads, jobs, meeting, 0)
        earliest = 0 if _stands(rotation, following, BEFORE) else meeting
        for unit in range(following.ahead):
            place = max(total + unit - following.ahead, earliest, 0)
            if place < total:
                reads[place].append((None, unit))
        return cls(units, reads, jobs, meeting, following.ahead)


def _meeting_place(round_: Round) -> int:
    """Return the unit before which the waves meet; -1 where they do not."""
    if round_.meeting is None:
        return -1
    legal = round_.units_after()
    left = round_.meeting.units_after
    if not legal or (left is not None and left not in legal):
        asked = "the waves meet somewhere" if left is None else f"{left} units are left when the waves meet"
        told = f"{legal.start} to {legal.stop - 1} may be left" if legal else "there is no place for it"
        raise IRError(f"{asked}; by the tiles they read and write, {told}")
    if left is None:
        left = legal[len(legal) // 2]
    return sum(section.units for section in round_.sections) - left


def _spread(spread: Spread, part: range, jobs: Sequence[list[tuple[Spread, Job]]]) -> None:
    """Put jobs at places of `part`, at its beginning where it is empty."""
    count, width = len(spread.jobs), spread.end - spread.begin
    for index, job in enumerate(spread.jobs):
        at = spread.begin + width * (index + 0.5) / count
        jobs[part.start + min(int(at * len(part)), max(len(part) - 1, 0))].append((spread, job))


def most_units_after(ahead: Expr, units: int) -> Expr:
    """Return how many of a round's `units` may be left when the waves meet, as a limit of a spec can say it.

    It is for rounds whose last section reads `ahead` units before the use what must be read before the waves meet.
    """
    return minimum(ahead, units - 1)
