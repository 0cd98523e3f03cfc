"""All that is compiled into the kernels of pages."""

from __future__ import annotations

from typing import ClassVar

import attrs

from kinfolk.fields import OneOf
from kinfolk.ir.types import FLOAT_TYPES, I32, SCALARS, PointerType
from kinfolk.parameters import Parameter
from kinfolk_attention_fwd.spec import AttentionSpec


@attrs.frozen(kw_only=True)
class AttentionPagedSpec(AttentionSpec):
    """Sequences differ in their queries and keys; a page is counted as parts of `part` rows, of which a tile has some.

    What a wave stages of a tile is some of one part. Keys and values are of `kv_dtype`, widened as they are staged.
    """

    part: ClassVar[int] = 16
    most_shift: ClassVar[int] = 3
    """A page has 2^`most_shift` parts at most."""
    most_pages: ClassVar[int] = 2**31 - 1

    kv_dtype: str = attrs.field(validator=OneOf(FLOAT_TYPES))

    @property
    def most_keys(self) -> int:
        """How many keys a sequence may have."""
        return self.most_rows

    @property
    def tile_parts(self) -> int:
        """How many parts of pages a tile has."""
        return self.tile_keys // self.part

    def symbol(self) -> str:
        """Return a short readable name; it is no key."""
        return self.named("paged")

    def reason_for(self, figure: str) -> str | None:
        """Return why scalars may be parked: what the three runs of a window count by leaves none for the others."""
        if figure == "parked" and self.windowed:
            return "scalars that are needed before and behind the loops alone are kept in lanes: no loop moves one"
        return None

    def parameters(self) -> tuple[Parameter, ...]:
        """Return what the kernel takes.

        `q` [total_q, heads, head], `k` and `v` [num_pages, rows, heads of keys, head] in pages of 2^`page_shift` parts,
        `out` as `q` in the width of values, `lse` [heads, total_q]. The queries of a sequence lie between two of
        `cu_seqlens_q`, it has `seqused_k` keys, in the pages that its row of `block_table` names; `status` counts ids
        that name none. The rest is as `AttentionSpec` says.
        """
        ids, cache = PointerType(I32), PointerType(SCALARS[self.kv_dtype])
        return (
            self.data_parameter("q"),
            Parameter(name="k", type=cache, alignment=16),
            Parameter(name="v", type=cache, alignment=16),
            Parameter(name="cu_seqlens_q", type=ids, alignment=4),
            Parameter(name="seqused_k", type=ids, alignment=4),
            Parameter(name="block_table", type=ids, alignment=4),
            Parameter(name="status", type=ids, access="readwrite", alignment=4),
            *self.result_parameters(),
            Parameter(name="total_q", type=I32, minimum=0),
            Parameter(name="max_seqlen_q", type=I32, minimum=0, maximum=self.most_rows),
            Parameter(name="max_seqlen_k", type=I32, minimum=0, maximum=self.most_keys),
            Parameter(name="block_table_stride", type=I32, minimum=0),
            Parameter(name="num_pages", type=I32, minimum=0, maximum=self.most_pages),
            Parameter(name="page_shift", type=I32, minimum=0, maximum=self.most_shift),
            *self.head_parameters(),
        )


@attrs.frozen(kw_only=True)
class AttentionGatheredSpec(AttentionPagedSpec):
    """The same over pages smaller than a part of a tile: each thread finds the rows that it takes some of."""

    part: ClassVar[int] = 1
    most_pages: ClassVar[int] = 2**28
    """Rows of all pages are counted in 32 bits."""
    most_gathered: ClassVar[int] = 2**27
    """Slots of a table are counted in bytes in 32 bits."""

    @property
    def most_keys(self) -> int:
        """How many keys a sequence may have."""
        return self.most_gathered

    def symbol(self) -> str:
        """Return a short readable name; it is no key."""
        return self.named("gathered")
