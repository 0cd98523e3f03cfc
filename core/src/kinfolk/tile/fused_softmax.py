"""Online softmax in which a weight takes one multiply-add: exp2(score * factor - anchor), anchor = maximum * factor.

The anchor is rounded once, and then is what weights are relative to, so that its rounding is in no result. `factor` is
scale * log2 e but where the anchor would be larger than `FARTHEST` by that: then as much smaller that it is about so
large. What is lost there are differences of scores smaller than the roundings of such scores.
"""

from __future__ import annotations

from typing import Final

import attrs

from kinfolk.ir.builder import constant
from kinfolk.ir.ops import arithmetic
from kinfolk.ir.types import F32
from kinfolk.ir.value import Value
from kinfolk.tile.softmax import LN_2, LOWEST, OnlineSoftmax, RowState

FARTHEST: Final = 2.0**26
"""Half a step of an f32 of this size is 4: weights are off by a factor of at most 2^4, all of a row alike."""
_SMALLER: Final = 2.0**-30
"""The reciprocal of a maximum times this is a normal f32."""


@attrs.frozen(eq=False)
class FusedRow(RowState):
    """A row's state, with the `factor` of its scores and `minus` the anchor."""

    factor: Value
    minus: Value


@attrs.frozen(eq=False)
class FusedSoftmax(OnlineSoftmax):
    """As `OnlineSoftmax`, its states being `FusedRow`; keys and values are in their own unit."""

    def start(self) -> FusedRow:
        """The state before the first score."""
        return self._anchored(constant(LOWEST, F32), constant(0.0, F32))

    def begun(self, tile_maximum: Value) -> FusedRow:
        """Return the state of a row that has no weight yet, under the maximum of its first tile."""
        return self._anchored(arithmetic.fmax(constant(LOWEST, F32), tile_maximum), constant(0.0, F32))

    def weight(self, state: RowState, score: Value) -> Value:
        """Return the weight of a score."""
        row = _fused(state)
        return arithmetic.exp2(arithmetic.fma(score, row.factor, row.minus))

    def exceeds(self, state: RowState, tile_maximum: Value) -> Value:
        """Whether the row's maximum must be raised before the tile's weights are formed."""
        row = _fused(state)
        return arithmetic.fma(tile_maximum, row.factor, row.minus) > self.threshold

    def under(self, state: RowState, maximum: Value) -> tuple[FusedRow, Value]:
        """Return the state under a maximum not below its own, and the factor by which what is accumulated shrinks."""
        row = _fused(state)
        raised = self._anchored(maximum, row.total)
        before = arithmetic.fma(row.maximum, row.factor, row.minus)
        shrunk = arithmetic.exp2(arithmetic.fma(row.maximum, raised.factor, raised.minus) - before)
        return attrs.evolve(raised, total=row.total * shrunk), shrunk

    def finish(self, state: RowState) -> tuple[Value, Value]:
        """Return (1 / total weight, natural-log sum of exp of scaled scores) of the row, as `OnlineSoftmax` does."""
        row, total = _fused(state), self.total(state)
        inverse = arithmetic.fmin(arithmetic.rcp(total), constant(-LOWEST, F32))
        off = arithmetic.fma(row.maximum, row.factor, row.minus)
        return inverse, arithmetic.fma(row.maximum, self.scale, (arithmetic.log2(total) - off) * LN_2)

    def _anchored(self, maximum: Value, total: Value) -> FusedRow:
        size = arithmetic.fabs(maximum) * _SMALLER
        factor = arithmetic.fmin(self.scale_log2, arithmetic.rcp(size) * (FARTHEST * _SMALLER))
        return FusedRow(maximum, total, factor, arithmetic.fneg(maximum * factor))


def _fused(state: RowState) -> FusedRow:
    assert isinstance(state, FusedRow)
    return state
