"""Scores that are more than scaled products: capped, then with a slope added."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from kinfolk.ir.builder import constant
from kinfolk.ir.ops import arithmetic, convert, memory, vector
from kinfolk.ir.types import F32, I32
from kinfolk.ir.value import Value
from kinfolk.tile.attention.scores import TileScores
from kinfolk.tile.softmax import LOG2_E

if TYPE_CHECKING:
    from kinfolk_attention_fwd.queries import Queries
    from kinfolk_attention_fwd.spec import AttentionSpec


@attrs.frozen(eq=False)
class Cap:
    """Scores cap tanh(scale q.k / cap): tanh x = 1 - 2 / (1 + exp 2x), of which neither end overflows to NaN."""

    cap: Value
    factor: Value

    @classmethod
    def of(cls, scale: Value, cap: Value) -> Cap:
        """Return it for a scale and a positive cap, known at launch."""
        return cls(cap, arithmetic.fdiv(scale * (2.0 * LOG2_E), cap))

    def __call__(self, product: Value) -> Value:
        """Return the score of a product."""
        grown = arithmetic.exp2(product * self.factor) + 1.0
        return arithmetic.fma(arithmetic.rcp(grown) * -2.0, self.cap, self.cap)


@attrs.frozen(eq=False)
class Slope:
    """What is added to scores: the head's `slope` times how far a key lies behind the last one before all queries."""

    spec: AttentionSpec
    slope: Value
    scores: TileScores
    queries: Queries

    @classmethod
    def of(cls, spec: AttentionSpec, scores: TileScores, queries: Queries) -> Slope | None:
        """Load that of the head, 0 where none is asked for; None where the kernel adds none."""
        slopes, count = queries.arguments.alibi_slopes, queries.arguments.num_slopes
        if slopes is None or count is None:
            return None
        return cls(spec, memory.view_load(memory.bound(slopes, count), queries.head), scores, queries)

    def begin(self, tile: Value, behind: int) -> Value:
        """Return what is added to a lane's first score of the tile so many behind one."""
        tile_keys = self.spec.tile_keys
        number = tile + behind if behind else tile
        # Of a tile that no query sees nothing matters: less than a bound, so that sums are in 32 bits.
        past = arithmetic.smin(number * tile_keys - self.queries.length, constant(4 * tile_keys, I32))
        place = past + self.queries.sequence.queries + self.scores.first_key
        return self.slope * convert.sitofp(place, to=F32)


@attrs.frozen(eq=False)
class Bend:
    """What makes scores of the products of a tile, as `kinfolk.tile.attention.ahead.ScoresAhead` asks for it."""

    scores: TileScores
    scale: Value
    cap: Cap | None
    slope: Slope | None

    @classmethod
    def of(cls, scores: TileScores, scale: Value, cap: Value | None, slope: Slope | None) -> Bend | None:
        """Return it for what is known at launch; None where scores are scaled products."""
        if cap is None and slope is None:
            return None
        return cls(scores, scale, None if cap is None else Cap.of(scale, cap), slope)

    def __call__(self, products: list[Value], tile: Value, behind: int) -> list[Value]:
        """Return the scores of the tile so many behind one."""
        begin = None if self.slope is None else self.slope.begin(tile, behind)
        found: list[Value] = []
        for number, block in enumerate(products):
            places = [place + number * self.scores.block_keys for place in self.scores.places]
            scored = map(self._score, self.scores.elements([block]), places, [begin] * len(places))
            found.append(vector.pack(*scored))
        return found

    def _score(self, product: Value, place: int, begin: Value | None) -> Value:
        """Return the score of the key `place` behind the lane's first, whose slope adds `begin`."""
        if self.slope is None or begin is None:
            return product * self.scale if self.cap is None else self.cap(product)
        added = arithmetic.fma(self.slope.slope, constant(float(place), F32), begin) if place else begin
        return arithmetic.fma(product, self.scale, added) if self.cap is None else self.cap(product) + added


def unit_scale() -> Value:
    """Return the scale of scores that are scaled already."""
    return constant(1.0, F32)
