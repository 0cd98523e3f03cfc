"""Online softmax over tiles of scores (Milakov and Gimelshein, arXiv:1805.02867), with a lazy rescale.

The running maximum is one of raw scores, so that any finite score is a score: weights are exp2((score - maximum) * c)
with c = scale * log2 e. A masked score is -inf. The maximum starts at the lowest finite number, which no score lies
below. It is raised only when a tile's maximum exceeds it by more than `threshold` in log2 units; until then weights may
exceed 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import attrs

from kinfolk.ir.builder import constant
from kinfolk.ir.ops import arithmetic, control, convert, vector
from kinfolk.ir.types import F32, I32
from kinfolk.ir.value import Value
from kinfolk.tile.reduction import across_lanes, in_lane

LOWEST = -3.4028234663852886e38
LOG2_E = 1.4426950408889634
LN_2 = 0.6931471805599453


@attrs.frozen(eq=False)
class RowState:
    """What is carried per softmax row: the raised `maximum` (of raw scores) and this lane's share of the `total`
    weight.
    """

    maximum: Value
    total: Value

    @classmethod
    def start(cls) -> RowState:
        """The state before the first score."""
        return cls(constant(LOWEST, F32), constant(0.0, F32))


@attrs.frozen(eq=False)
class OnlineSoftmax:
    """Softmax of rows whose scores lie in several slots of a lane, and in the lanes that differ in the bits of `masks`.

    `scale` multiplies raw scores, a positive f32; `scale_log2` is scale * log2 e. Keys and values that are kept in
    another unit stand for themselves times `unit`, a positive f32, which is part of `scale_log2` then.
    """

    scale: Value
    scale_log2: Value
    masks: tuple[int, ...]
    threshold: float = 8.0
    unit: Value | None = None

    @classmethod
    def of(cls, scale: Value, masks: tuple[int, ...], threshold: float = 8.0, unit: Value | None = None) -> Self:
        """Return the softmax for a scale, and a unit of keys and values, known at launch."""
        whole = scale if unit is None else scale * unit
        return cls(scale, whole * LOG2_E, masks, threshold, unit)

    def start(self) -> RowState:
        """The state before the first score."""
        return RowState.start()

    def weight(self, state: RowState, score: Value) -> Value:
        """Return the weight of a score."""
        return arithmetic.exp2((score - state.maximum) * self.scale_log2)

    def tile_maximum(self, scores: Sequence[Value]) -> Value:
        """Return the largest raw score of the tile's row; -inf where all are masked. No score is NaN."""
        return across_lanes(in_lane(scores, arithmetic.fmax), self.masks, arithmetic.fmax)

    def exceeds(self, state: RowState, tile_maximum: Value) -> Value:
        """Whether the row's maximum must be raised before the tile's weights are formed."""
        return (tile_maximum - state.maximum) * self.scale_log2 > self.threshold

    def begun(self, tile_maximum: Value) -> RowState:
        """Return the state of a row that has no weight yet, under the maximum of its first tile."""
        start = RowState.start()
        return attrs.evolve(start, maximum=arithmetic.fmax(start.maximum, tile_maximum))

    def raise_maximum(self, state: RowState, tile_maximum: Value) -> tuple[RowState, Value]:
        """Return the state under the larger maximum, and the factor by which everything accumulated shrinks."""
        return self.under(state, arithmetic.fmax(state.maximum, tile_maximum))

    def under(self, state: RowState, maximum: Value) -> tuple[RowState, Value]:
        """Return the state under a maximum not below its own, and the factor as `raise_maximum` has it."""
        factor = arithmetic.exp2((state.maximum - maximum) * self.scale_log2)
        return RowState(maximum, state.total * factor), factor

    def weights(self, state: RowState, scores: Sequence[Value]) -> tuple[RowState, list[Value]]:
        """Return the weights of a tile's scores, and the state with them added."""
        weights = [self.weight(state, score) for score in scores]
        return attrs.evolve(state, total=state.total + in_lane(weights, arithmetic.fadd)), weights

    def total(self, state: RowState) -> Value:
        """Return the row's total weight under its maximum, the same in each of its lanes."""
        return across_lanes(state.total, self.masks, arithmetic.fadd)

    def finish(self, state: RowState) -> tuple[Value, Value]:
        """Return (1 / total weight, natural-log sum of exp of scaled scores) of the row; the first times the unit.

        Of a row without a score, whose total is 0, (the largest finite number, -inf): what it has accumulated is 0, and
        stays that.
        """
        total, scale = self.total(state), self.scale
        inverse = arithmetic.rcp(total)
        if self.unit is not None:
            hidden = control.opaque(convert.bitcast(self.unit, to=I32))  # what follows takes no register before
            unit = convert.bitcast(hidden, to=F32)
            inverse, scale = inverse * unit, scale * unit
        inverse = arithmetic.fmin(inverse, constant(-LOWEST, F32))
        return inverse, arithmetic.fma(state.maximum, scale, arithmetic.log2(total) * LN_2)


def mask_scores(scores: Sequence[Value], key: Sequence[Value], valid: Value) -> list[Value]:
    """Return the scores with -inf where the key's index in the tile is not below `valid` (i32)."""
    masked = constant(float("-inf"), F32)
    return [arithmetic.select(index < valid, score, masked) for score, index in zip(scores, key, strict=True)]


def scale_accumulators(accumulators: Sequence[Value], factor: Value) -> list[Value]:
    """Return f32 vectors multiplied by one factor per lane."""
    return [accumulator * _splat_like(factor, accumulator) for accumulator in accumulators]


def _splat_like(factor: Value, model: Value) -> Value:
    from kinfolk.ir.types import VectorType

    return vector.splat(factor, count=model.type.count) if isinstance(model.type, VectorType) else factor
