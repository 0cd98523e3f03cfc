"""Units of work over SSA values, laid out in order: reads issued some units ahead of their use, the rest spread
between.

LLVM keeps the order it is given; units closed by a schedule fence stay apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import attrs

from kinfolk.errors import IRError
from kinfolk.ir.ops.control import schedule_fence
from kinfolk.ir.value import Value

Read = Callable[[], Sequence[Value]]
Use = Callable[[Sequence[Value]], None]
Filler = Callable[[], None]


@attrs.frozen(eq=False)
class Unit:
    """Reads of operands, one per stream, and the operations that use them, all streams' values in order."""

    reads: tuple[Read, ...]
    use: Use


@attrs.frozen(kw_only=True)
class UnitSchedule:
    """`ahead`: per stream, how many units a read is issued before its use. `fence_every`: units between schedule
    fences, 0 for none.
    """

    ahead: tuple[int, ...]
    fence_every: int = 1


def lay_out(
    units: Sequence[Unit], schedule: UnitSchedule, fillers: Sequence[Filler] = (), lead: Filler | None = None
) -> None:
    """Build the units in order, `fillers` spread evenly over them, and `lead` once the first reads are under way."""
    if any(len(unit.reads) != len(schedule.ahead) for unit in units):
        raise IRError(f"the schedule has {len(schedule.ahead)} streams, a unit reads {[len(u.reads) for u in units]}")
    streams = [_Stream([unit.reads[number] for unit in units], ahead) for number, ahead in enumerate(schedule.ahead)]
    for stream in streams:
        stream.start()
    if lead is not None:
        schedule_fence()
        lead()
    spread = _spread(fillers, len(units))
    for position, unit in enumerate(units):
        for stream in streams:
            stream.advance(position)
        unit.use([value for stream in streams for value in stream.take()])
        for filler in next(spread):
            filler()
        if schedule.fence_every and (position + 1) % schedule.fence_every == 0:
            schedule_fence()
    if not units:
        for filler in fillers:
            filler()


class _Stream:
    """Reads of one stream that are issued and not yet used."""

    def __init__(self, reads: Sequence[Read], ahead: int) -> None:
        self._reads, self._ahead = reads, ahead
        self._pending: list[Sequence[Value]] = []

    def start(self) -> None:
        self._pending = [read() for read in self._reads[: self._ahead]]

    def advance(self, position: int) -> None:
        if position + self._ahead < len(self._reads):
            self._pending.append(self._reads[position + self._ahead]())

    def take(self) -> Sequence[Value]:
        return self._pending.pop(0)


def _spread(fillers: Sequence[Filler], count: int) -> Iterator[Sequence[Filler]]:
    for position in range(count):
        yield fillers[len(fillers) * position // count : len(fillers) * (position + 1) // count]
