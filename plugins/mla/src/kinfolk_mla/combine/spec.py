"""All that is compiled into one combine kernel."""

from __future__ import annotations

from typing import ClassVar

import attrs

from kinfolk.fields import ExactInt, OneOf
from kinfolk.ir.types import F32, FLOAT_TYPES, I32, SCALARS, PointerType
from kinfolk.parameters import Parameter
from kinfolk.spec import Spec


@attrs.frozen(kw_only=True)
class MlaCombineSpec(Spec):
    """The kernel that puts together what the segments of a sequence's keys give for one row, a head of a query token.

    A workgroup serves one row of `latent_width` columns, a lane `columns_per_lane` of them: 16 bytes of a segment's
    row, and so many rounded to `dtype` of the output. `segments_ahead` segments are asked for before the first is
    added.
    """

    columns_per_lane: ClassVar[int] = 4
    waves_per_simd: ClassVar[int] = 8
    most_heads: ClassVar[int] = 2**10
    most_queries: ClassVar[int] = 2**20
    """Rows of a sequence are numbered in 32 bits."""
    most_segments: ClassVar[int] = 2**20

    latent_width: int = attrs.field(validator=ExactInt(minimum=4, step=4))
    dtype: str = attrs.field(validator=OneOf(FLOAT_TYPES))
    segments_ahead: int = attrs.field(validator=ExactInt(maximum=8))

    @property
    def threads(self) -> int:
        """Lanes of a workgroup: as many as have columns."""
        return self.latent_width // self.columns_per_lane

    def symbol(self) -> str:
        """Return a short readable name; it is no key."""
        return f"mla_combine_{self.dtype}_{self.digest()[:8]}"

    def parameters(self) -> tuple[Parameter, ...]:
        """Return what the kernel takes.

        `part_out` [segments, tokens, heads, latent] and `part_ml` [segments, tokens, heads, 2] are what the segments
        left: sums of weighted latent rows, and the maximum of raw scores under which the weights were formed with the
        sum of these, elements of the cache taken as they are. Of a segment whose sum is 0 nothing else is read. A
        sequence whose queries are rows outside [0, total_q) has none, and no more than `max_seqlen_q` are seen.
        """
        floats = PointerType(F32)
        return (
            Parameter(name="cu_seqlens_q", type=PointerType(I32), alignment=4),
            Parameter(name="part_out", type=floats, alignment=16),
            Parameter(name="part_ml", type=floats, alignment=8),
            Parameter(name="out", type=PointerType(SCALARS[self.dtype]), access="write", alignment=16),
            Parameter(name="lse", type=floats, access="write", alignment=4),
            Parameter(name="scale", type=F32),
            Parameter(name="k_scale", type=F32),
            Parameter(name="total_q", type=I32, minimum=0),
            Parameter(name="max_seqlen_q", type=I32, minimum=0, maximum=self.most_queries),
            Parameter(name="num_heads", type=I32, minimum=1, maximum=self.most_heads),
            Parameter(name="num_segments", type=I32, minimum=0, maximum=self.most_segments),
        )
