"""The default schedules of kernels of `AttentionSpec`, and the points around them that are searched."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from kinfolk.schedule import ScheduleSpace
from kinfolk_attention_fwd.schedules import SCHEDULES

if TYPE_CHECKING:
    from kinfolk.arch import Arch
    from kinfolk_attention_fwd.spec import AttentionSpec


@attrs.frozen(kw_only=True)
class Schedule:
    """The fields of a spec that say how, not what."""

    tile_keys: int = 64
    key_slots: int
    reads_together: int = 1
    key_read_ahead: int
    value_read_ahead: int
    fence_every: int = 1
    weights_after: int
    units_after_barrier: int


_PLAIN: Final[tuple[tuple[str | None, Schedule], ...]] = (
    (
        "transpose_read_16",
        Schedule(
            key_slots=2,
            reads_together=2,
            key_read_ahead=2,
            value_read_ahead=3,
            weights_after=3,
            units_after_barrier=3,
        ),
    ),
    (None, Schedule(key_slots=1, key_read_ahead=3, value_read_ahead=3, weights_after=4, units_after_barrier=3)),
)
_CAPPED: Final[tuple[tuple[str | None, Schedule], ...]] = (
    (
        "transpose_read_16",
        Schedule(key_slots=2, key_read_ahead=2, value_read_ahead=3, weights_after=2, units_after_barrier=3),
    ),
    (None, Schedule(key_slots=1, key_read_ahead=3, value_read_ahead=3, weights_after=4, units_after_barrier=3)),
)
"""By the role that an arch must have an op in; the last holds everywhere. Caps take registers: less is read ahead."""


def schedule_for(arch: Arch, *, capped: bool) -> Schedule:
    """Return the default schedule on an arch, by what it declares."""
    known = _CAPPED if capped else _PLAIN
    return next(schedule for role, schedule in known if role is None or role in arch.roles)


def space_of(spec: type[AttentionSpec]) -> ScheduleSpace:
    """Return the points that a search looks at for specs of a class."""
    return ScheduleSpace(
        spec=spec,
        values={
            "key_slots": (1, 2),
            "reads_together": (1, 2),
            "key_read_ahead": (1, 2, 3, 4),
            "value_read_ahead": (1, 2, 3, 4, 5),
            "fence_every": (0, 1, 2),
            "weights_after": (1, 2, 3, 4, 5, 6, 7, 8),
            "units_after_barrier": (0, 1, 2, 3, 4, 5, 6),
        },
        table=SCHEDULES,
    )
