"""All that is compiled into the kernel of one segment of a sequence's keys."""

from __future__ import annotations

from typing import ClassVar

import attrs

from kinfolk.fields import ExactBool, ExactInt, OneOf
from kinfolk.ir.types import F32, FLOAT_TYPES, I32, SCALARS, PointerType
from kinfolk.parameters import Parameter
from kinfolk.spec import LoopWork, Spec


@attrs.frozen(kw_only=True)
class AttentionSegmentSpec(Spec):
    """A workgroup has one head of keys, `columns` rows of queries that read it, a row being a query head of a token,
    and one segment of a sequence's keys. Its `waves` take turns at tiles of `tile_keys` keys, `ring` of which each of
    them has on their way.

    Rows have `head_size` columns of `dtype`, those of keys and values of `kv_dtype`, which are widened in registers.
    `capped`: scores are. Pages have 2^n times `unit` rows. `workgroups_per_cu` are what registers are budgeted for. The
    `lanes` of a wave write `vector_bytes` each at once; a staged row is followed by `row_padding_bytes` unused ones.
    """

    lanes: ClassVar[int] = 64
    waves: ClassVar[int] = 4
    columns: ClassVar[int] = 16
    tile_keys: ClassVar[int] = 16
    vector_bytes: ClassVar[int] = 16
    row_padding_bytes: ClassVar[int] = 32
    most_heads: ClassVar[int] = 2**10
    most_rows: ClassVar[int] = 2**28
    """How many keys a sequence may have, and a batch queries: they are counted in 32 bits, segments past the last."""
    most_pages: ClassVar[int] = 2**27
    most_shift: ClassVar[int] = 3
    """Tiles of all pages are numbered in 32 bits."""
    most_segments: ClassVar[int] = 2**12
    most_elements: ClassVar[int] = 2**30 - 2**19
    """Of a cache in small pages, in which places are counted in bytes by 32 bits."""

    head_size: int = attrs.field(validator=ExactInt(minimum=16, step=16))
    dtype: str = attrs.field(validator=OneOf(FLOAT_TYPES))
    kv_dtype: str = attrs.field(validator=OneOf(FLOAT_TYPES))
    capped: bool = attrs.field(validator=ExactBool())
    unit: int = attrs.field(validator=OneOf((1, 16)))
    ring: int = attrs.field(validator=ExactInt(minimum=1, maximum=4))
    workgroups_per_cu: int = attrs.field(validator=ExactInt(minimum=1, maximum=3))

    def work_per_round(self) -> LoopWork:
        """Return the keys of a round of all waves, for as many query heads as a workgroup has rows."""
        return LoopWork(tokens=self.waves * self.ring * self.tile_keys, heads=self.columns)

    def symbol(self) -> str:
        """Return a short readable name; it is no key."""
        kind = "" if self.kv_dtype == self.dtype else f"_{self.kv_dtype}"
        kind += ("_capped" if self.capped else "") + ("_rows" if self.unit == 1 else "")
        return f"attention_segment_{self.head_size}_{self.dtype}{kind}_{self.digest()[:8]}"

    def parameters(self) -> tuple[Parameter, ...]:
        """Return what the kernel takes.

        `q` and `out` [tokens, heads, head], `k` and `v` [pages, page_size, heads of keys, head], a page having
        2^`page_shift` times `unit` rows, `lse` [heads, tokens]. With `causal` 1 the last query sees all keys, each one
        before it a key less; with 0 all see all. Of the keys before its own a query sees the last `window_left`. A head
        has a logit in `sink`, read where `sinks` is 1, and a slope, read of `num_slopes` heads, all or none.
        `part_out` [tokens, heads, segments, head] and `part_ml` [tokens, heads, segments, 2] are all that is written
        where there are several segments.
        """
        data, cache = (PointerType(SCALARS[name]) for name in (self.dtype, self.kv_dtype))
        floats, integers = PointerType(F32), PointerType(I32)
        return (
            Parameter(name="q", type=data, alignment=16),
            Parameter(name="k", type=cache, alignment=16),
            Parameter(name="v", type=cache, alignment=16),
            Parameter(name="block_table", type=integers, alignment=4),
            Parameter(name="cu_seqlens_q", type=integers, alignment=4),
            Parameter(name="seqused_k", type=integers, alignment=4),
            Parameter(name="status", type=integers, access="readwrite", alignment=4),
            Parameter(name="out", type=data, access="write", alignment=16),
            Parameter(name="lse", type=floats, access="write", alignment=4),
            Parameter(name="sink", type=data, alignment=2),
            Parameter(name="alibi_slopes", type=floats, alignment=4),
            Parameter(name="part_out", type=floats, access="write", alignment=16),
            Parameter(name="part_ml", type=floats, access="write", alignment=8),
            Parameter(name="scale", type=F32),
            Parameter(name="k_scale", type=F32),
            Parameter(name="v_scale", type=F32),
            *([Parameter(name="softcap", type=F32)] if self.capped else []),
            Parameter(name="block_table_stride", type=I32, minimum=0),
            Parameter(name="num_pages", type=I32, minimum=0, maximum=self.most_pages),
            Parameter(name="page_shift", type=I32, minimum=0, maximum=self.most_shift),
            Parameter(name="total_q", type=I32, minimum=0, maximum=self.most_rows),
            Parameter(name="max_seqlen_q", type=I32, minimum=0, maximum=self.most_rows // self.most_heads),
            Parameter(name="max_seqlen_k", type=I32, minimum=0, maximum=self.most_rows),
            Parameter(name="num_kv_heads", type=I32, minimum=1, maximum=self.most_heads),
            Parameter(name="heads_per_kv", type=I32, minimum=1, maximum=self.most_heads),
            Parameter(name="num_heads", type=I32, minimum=1, maximum=self.most_heads),
            Parameter(name="causal", type=I32, minimum=0, maximum=1),
            Parameter(name="window_left", type=I32, minimum=0, maximum=self.most_rows),
            Parameter(name="num_segments", type=I32, minimum=1, maximum=self.most_segments),
            Parameter(name="sinks", type=I32, minimum=0, maximum=1),
            Parameter(name="num_slopes", type=I32, minimum=0, maximum=self.most_heads),
        )
