"""All that is compiled into the kernel that puts segments together."""

from __future__ import annotations

from typing import ClassVar

import attrs

from kinfolk.fields import ExactInt, OneOf
from kinfolk.ir.types import F32, FLOAT_TYPES, I32, SCALARS, PointerType
from kinfolk.parameters import Parameter
from kinfolk.spec import Spec
from kinfolk_attention_fwd.segmented.spec import AttentionSegmentSpec


@attrs.frozen(kw_only=True)
class AttentionReduceSpec(Spec):
    """A workgroup serves one row, a query head of a token: `head_size` columns, which become `dtype`. Its `waves` take
    turns at segments, `together` of which are all asked for before the first is used.
    """

    lanes: ClassVar[int] = 64
    waves: ClassVar[int] = 4
    together: ClassVar[int] = 64
    most_heads: ClassVar[int] = AttentionSegmentSpec.most_heads
    most_rows: ClassVar[int] = AttentionSegmentSpec.most_rows
    most_segments: ClassVar[int] = AttentionSegmentSpec.most_segments

    head_size: int = attrs.field(validator=ExactInt(minimum=16, maximum=256, step=16))
    dtype: str = attrs.field(validator=OneOf(FLOAT_TYPES))

    @property
    def columns_per_lane(self) -> int:
        """Columns of a row that a lane has; lanes past the last have none."""
        return 2 if self.head_size <= 2 * self.lanes else 4

    def symbol(self) -> str:
        """Return a short readable name; it is no key."""
        return f"attention_reduce_{self.head_size}_{self.dtype}_{self.digest()[:8]}"

    def parameters(self) -> tuple[Parameter, ...]:
        """Return what the kernel takes.

        `part_out` [tokens, heads, segments, head] and `part_ml` [tokens, heads, segments, 2] are what segments left:
        sums of weighted values, and the largest score with the sum of the weights under it. Of a segment without tiles
        nothing is read. Where `sinks` is 1 heads have logits in `sink`. `window_left` is as many rows as there can be
        where there is no window.
        """
        floats, integers = PointerType(F32), PointerType(I32)
        return (
            Parameter(name="cu_seqlens_q", type=integers, alignment=4),
            Parameter(name="seqused_k", type=integers, alignment=4),
            Parameter(name="part_out", type=floats, alignment=16),
            Parameter(name="part_ml", type=floats, alignment=8),
            Parameter(name="out", type=PointerType(SCALARS[self.dtype]), access="write", alignment=16),
            Parameter(name="lse", type=floats, access="write", alignment=4),
            Parameter(name="sink", type=PointerType(SCALARS[self.dtype]), alignment=2),
            Parameter(name="v_scale", type=F32),
            Parameter(name="total_q", type=I32, minimum=0, maximum=self.most_rows),
            Parameter(name="max_seqlen_q", type=I32, minimum=0, maximum=self.most_rows // self.most_heads),
            Parameter(name="max_seqlen_k", type=I32, minimum=0, maximum=self.most_rows),
            Parameter(name="num_heads", type=I32, minimum=1, maximum=self.most_heads),
            Parameter(name="window_left", type=I32, minimum=0, maximum=self.most_rows),
            Parameter(name="num_segments", type=I32, minimum=1, maximum=self.most_segments),
            Parameter(name="sinks", type=I32, minimum=0, maximum=1),
        )
