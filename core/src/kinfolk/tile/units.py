"""Units of work over SSA values, laid out in order: reads issued some units ahead of their use, the rest spread
between.

LLVM keeps the order it is given; a unit closed by a schedule fence stays a unit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import attrs

from kinfolk.ir.ops.control import schedule_fence
from kinfolk.ir.value import Value

Read = Callable[[], Sequence[Value]]
Use = Callable[[Sequence[Value]], None]
Filler = Callable[[], None]


@attrs.frozen(eq=False)
class Unit:
    """Reads of operands, and the operations that use them."""

    read: Read
    use: Use


@attrs.frozen(kw_only=True)
class UnitSchedule:
    """`ahead`: how many units a read is issued before its use. `fence_every`: units between schedule fences, 0 for
    none.
    """

    ahead: int
    fence_every: int = 1


def lay_out(
    units: Sequence[Unit], schedule: UnitSchedule, fillers: Sequence[Filler] = (), lead: Filler | None = None
) -> None:
    """Build the units in order, `fillers` spread evenly over them, and `lead` once the first reads are under way."""
    pending: list[Sequence[Value]] = [unit.read() for unit in units[: schedule.ahead]]
    if lead is not None:
        schedule_fence()
        lead()
    spread = _spread(fillers, len(units))
    for position, unit in enumerate(units):
        if position + schedule.ahead < len(units):
            pending.append(units[position + schedule.ahead].read())
        unit.use(pending.pop(0))
        for filler in next(spread):
            filler()
        if schedule.fence_every and (position + 1) % schedule.fence_every == 0:
            schedule_fence()


def _spread(fillers: Sequence[Filler], count: int) -> Iterator[Sequence[Filler]]:
    for position in range(count):
        yield fillers[len(fillers) * position // count : len(fillers) * (position + 1) // count]
