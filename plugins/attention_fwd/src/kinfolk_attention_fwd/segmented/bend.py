"""Scores of a row of queries: products scaled, or capped, then with the slope of the row's head added."""

from __future__ import annotations

from collections.abc import Sequence as Many

import attrs

from kinfolk.ir.builder import constant
from kinfolk.ir.ops import arithmetic, control, convert, memory
from kinfolk.ir.types import F32, I32
from kinfolk.ir.value import Value
from kinfolk.tile.lane_index import lane_index
from kinfolk_attention_fwd.bending import Cap
from kinfolk_attention_fwd.segmented.frame import Frame
from kinfolk_attention_fwd.segmented.rows import Row
from kinfolk_attention_fwd.segmented.work import Work


@attrs.frozen(eq=False)
class Bend:
    """What makes scores of a lane's products with the keys of a tile; `slope` is 0 where none is asked for.

    The lane's first key of the wave's first tile is `place` (i32) keys behind the last one before all queries, its
    others of a tile are `others` behind the first; the wave's tiles are `step` keys apart.
    """

    scale: Value
    cap: Cap | None
    slope: Value
    place: Value
    others: tuple[int, ...]
    step: int

    @classmethod
    def of(cls, work: Work, frame: Frame, first_tile: Value) -> Bend:
        """Load the slope of the lane's row; the wave's first tile is such a one of the sequence."""
        arguments, sequence = work.arguments, work.sequence
        first, others = frame.score_keys
        scale, cap = arguments.scale * arguments.k_scale, arguments.softcap
        slopes = memory.bound(arguments.alibi_slopes, arguments.num_slopes)
        return cls(
            scale=scale,
            cap=None if cap is None else Cap.of(scale, cap),
            slope=memory.view_load(slopes, Row.of(work, lane_index(frame.column)).head),
            place=first_tile * work.spec.tile_keys - (sequence.length - sequence.queries) + lane_index(first),
            others=others,
            step=work.spec.waves * work.spec.tile_keys,
        )

    def kept(self) -> Bend:
        """Return it with its slope in a register of its own from here on: it has come."""
        return attrs.evolve(self, slope=convert.bitcast(control.opaque(convert.bitcast(self.slope, to=I32)), to=F32))

    def __call__(self, products: Many[Value], tile: Value) -> list[Value]:
        """Return the scores of a tile of this wave."""
        begin = self.slope * convert.sitofp(tile * self.step + self.place, to=F32)
        return [self._score(product, place, begin) for product, place in zip(products, self.others, strict=True)]

    def _score(self, product: Value, place: int, begin: Value) -> Value:
        added = arithmetic.fma(self.slope, constant(float(place), F32), begin) if place else begin
        return arithmetic.fma(product, self.scale, added) if self.cap is None else self.cap(product) + added
