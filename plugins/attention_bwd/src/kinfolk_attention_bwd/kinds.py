"""What kernels there are, and their schedules by what an arch declares."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import attrs

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
    tile_rows: int
    row_read_ahead: int = 3
    column_read_ahead: int = 3
    fence_every: int = 1
    units_after_barrier: int = 2


_KEYS: Final = {64: Schedule(blocks=2, tile_rows=64), 128: Schedule(blocks=2, tile_rows=32)}
_QUERIES: Final = {64: Schedule(blocks=2, tile_rows=64), 128: Schedule(blocks=2, tile_rows=64)}


def row_terms_spec(head_size: int, dtype: str) -> RowTermsSpec:
    """Return the spec of the kernel of rows' terms."""
    return RowTermsSpec(head_size=head_size, dtype=dtype)


def keys_spec(arch: Arch, head_size: int, dtype: str) -> KeysSpec:
    """Return the spec of gradients of keys and values, in the arch's default schedule."""
    return KeysSpec(head_size=head_size, dtype=dtype, **attrs.asdict(_KEYS[head_size]))


def queries_spec(arch: Arch, head_size: int, dtype: str) -> QueriesSpec:
    """Return the spec of gradients of queries, in the arch's default schedule."""
    return QueriesSpec(head_size=head_size, dtype=dtype, **attrs.asdict(_QUERIES[head_size]))


def all_specs(arch: Arch, flavor: str) -> Iterator[Spec]:
    """Yield every spec that a plan can name."""
    for head_size in WIDTHS:
        for dtype in DTYPES:
            yield row_terms_spec(head_size, dtype)
            yield keys_spec(arch, head_size, dtype)
            yield queries_spec(arch, head_size, dtype)


LEAST_ROWS: Final = GradientSpec.waves * GradientSpec.atom
"""A workgroup of any spec has at least so many rows."""
