"""The default schedules of kernels of `AttentionSpec`, and the points around them that are searched."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from kinfolk.schedule import ScheduleSpace
from kinfolk_attention_fwd.schedules import SCHEDULES

if TYPE_CHECKING:
    from kinfolk.arch import Arch
    from kinfolk_attention_fwd.kinds import Kind
    from kinfolk_attention_fwd.spec import AttentionSpec


@attrs.frozen(kw_only=True)
class Schedule:
    """The fields of a spec that say how, not what."""

    waves: int = 8
    tile_keys: int = 64
    key_slots: int
    reads_together: int = 1
    key_read_ahead: int
    value_read_ahead: int
    fence_every: int = 1
    weights_after: int
    units_after_barrier: int


@attrs.frozen
class Choice:
    """A schedule for archs that read 16-bit elements transposed, and one for others."""

    transposing: Schedule
    other: Schedule

    def on(self, arch: Arch) -> Schedule:
        """Return the one for an arch."""
        return self.transposing if "transpose_read_16" in arch.roles else self.other


_PLAIN: Final = Choice(
    Schedule(
        key_slots=2, reads_together=2, key_read_ahead=2, value_read_ahead=3, weights_after=3, units_after_barrier=3
    ),
    Schedule(key_slots=1, key_read_ahead=3, value_read_ahead=3, weights_after=4, units_after_barrier=3),
)
_BENT: Final = Choice(
    Schedule(key_slots=2, key_read_ahead=2, value_read_ahead=3, weights_after=2, units_after_barrier=3),
    _PLAIN.other,
)
"""What is made of products takes registers: less is read ahead."""
_LONG_KEYS_WINDOWED: Final = Choice(
    attrs.evolve(_PLAIN.transposing, key_read_ahead=1, value_read_ahead=2, units_after_barrier=2),
    attrs.evolve(_PLAIN.other, key_read_ahead=2, value_read_ahead=2, units_after_barrier=2),
)
_LONG_KEYS_BENT: Final = Choice(attrs.evolve(_BENT.transposing, waves=4), attrs.evolve(_BENT.other, waves=4))
"""A query of 192 columns and the output of 128 leave a wave of eight no registers to bend scores in."""
_192: Final = Choice(
    attrs.evolve(_PLAIN.transposing, waves=4),
    Schedule(tile_keys=32, key_slots=1, key_read_ahead=2, value_read_ahead=2, weights_after=3, units_after_barrier=2),
)
"""Beside the output a wave of eight has registers for the scores of half a tile, a wave of four for those of one."""
_256: Final = Choice(
    _192.transposing,
    Schedule(
        waves=4,
        tile_keys=32,
        key_slots=1,
        reads_together=2,
        key_read_ahead=3,
        value_read_ahead=3,
        weights_after=2,
        units_after_barrier=3,
    ),
)
"""The output alone is half of what a wave of eight has. Two tiles of 64 values are more than 64 KiB."""


_LONG_KEYS_PAGED: Final = Choice(
    attrs.evolve(_PLAIN.transposing, value_read_ahead=2, units_after_barrier=2),
    attrs.evolve(_PLAIN.other, key_read_ahead=2, value_read_ahead=2, weights_after=3, units_after_barrier=2),
)


def schedule_of_pages(arch: Arch, kind: Kind) -> Schedule:
    """Return the default schedule of a kind over pages: what names them takes registers of the widest queries."""
    if kind.head_size > 128 >= kind.head_size_v and not kind.bent:
        return (_LONG_KEYS_BENT if kind.windowed else _LONG_KEYS_PAGED).on(arch)
    return schedule_for(arch, kind)


def schedule_of_rows(arch: Arch, kind: Kind) -> Schedule:
    """Return the default schedule of a kind over pages of a few rows: numbers of rows take registers of four waves."""
    return attrs.evolve(schedule_of_pages(arch, kind), waves=4)


def schedule_for(arch: Arch, kind: Kind) -> Schedule:
    """Return the default schedule of a kind on an arch, by what it declares."""
    if kind.head_size_v > 128:
        return (_256 if kind.head_size_v > 192 else _192).on(arch)
    if kind.head_size > 128 and kind.windowed:
        return (_LONG_KEYS_BENT if kind.bent else _LONG_KEYS_WINDOWED).on(arch)
    return (_BENT if kind.bent else _PLAIN).on(arch)


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
