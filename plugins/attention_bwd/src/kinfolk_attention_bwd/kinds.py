"""What kernels there are, and their schedules by what an arch declares."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

import attrs

from kinfolk.schedule import ScheduleSpace
from kinfolk_attention_bwd.schedules import SCHEDULES
from kinfolk_attention_bwd.spec import GradientSpec, KeysSpec, QueriesSpec, RowTermsSpec

if TYPE_CHECKING:
    from kinfolk.arch import Arch
    from kinfolk.spec import Spec

DTYPES: Final = ("bf16", "f16")
WIDTHS: Final = (64, 128)


@attrs.frozen(kw_only=True)
class Schedule:
    """The fields of a `GradientSpec` that say how, not what."""

    blocks: int
    tile_rows: int = 64
    row_read_ahead: int
    column_read_ahead: int
    fence_every: int = 0
    units_after_barrier: int = 2


@attrs.frozen
class Choice:
    """A schedule for archs that read 16-bit elements transposed, and one for others, by width."""

    transposing: Mapping[int, Schedule]
    other: Mapping[int, Schedule]

    def on(self, arch: Arch, head_size: int) -> Schedule:
        """Return the one for an arch and a width."""
        return (self.transposing if "transpose_read_16" in arch.roles else self.other)[head_size]


_KEYS: Final = Choice(
    {
        64: Schedule(blocks=4, row_read_ahead=4, column_read_ahead=4),
        128: Schedule(blocks=2, row_read_ahead=5, column_read_ahead=6),
    },
    {
        64: Schedule(blocks=3, row_read_ahead=4, column_read_ahead=4),
        128: Schedule(blocks=3, tile_rows=32, row_read_ahead=3, column_read_ahead=3, fence_every=2),
    },
)
"""Of 128 columns both images of tiles of 64 rows are more than 64 KiB. Sums of 192 keys take 192 registers."""
_QUERIES: Final = Choice(
    {
        64: Schedule(blocks=4, row_read_ahead=4, column_read_ahead=4),
        128: Schedule(blocks=4, row_read_ahead=5, column_read_ahead=4, units_after_barrier=1),
    },
    {
        64: Schedule(blocks=4, row_read_ahead=4, column_read_ahead=4),
        128: Schedule(blocks=3, row_read_ahead=4, column_read_ahead=2, units_after_barrier=1),
    },
)


def row_terms_spec(head_size: int, dtype: str) -> RowTermsSpec:
    """Return the spec of the kernel of rows' terms."""
    return RowTermsSpec(head_size=head_size, dtype=dtype)


def keys_spec(arch: Arch, head_size: int, dtype: str) -> KeysSpec:
    """Return the spec of gradients of keys and values, in the arch's default schedule."""
    return KeysSpec(head_size=head_size, dtype=dtype, **attrs.asdict(_KEYS.on(arch, head_size)))


def queries_spec(arch: Arch, head_size: int, dtype: str) -> QueriesSpec:
    """Return the spec of gradients of queries, in the arch's default schedule."""
    return QueriesSpec(head_size=head_size, dtype=dtype, **attrs.asdict(_QUERIES.on(arch, head_size)))


def all_specs(arch: Arch, flavor: str) -> Iterator[Spec]:
    """Yield every spec that a plan can name."""
    for head_size in WIDTHS:
        for dtype in DTYPES:
            yield row_terms_spec(head_size, dtype)
            yield keys_spec(arch, head_size, dtype)
            yield queries_spec(arch, head_size, dtype)


def space_of(spec: type[GradientSpec]) -> ScheduleSpace:
    """Return the points that a search looks at for specs of a class."""
    return ScheduleSpace(
        spec=spec,
        values={
            "row_read_ahead": (1, 2, 3, 4, 5, 6),
            "column_read_ahead": (1, 2, 3, 4, 5, 6),
            "fence_every": (0, 1, 2, 4),
            "units_after_barrier": (0, 1, 2, 3, 4),
        },
        table=SCHEDULES,
    )


LEAST_ROWS: Final = GradientSpec.waves * GradientSpec.atom
"""A workgroup of any spec has at least so many rows."""
