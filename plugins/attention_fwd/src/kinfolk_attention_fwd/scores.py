"""What becomes of products of queries and keys: which of them a query sees, and how scores are capped."""

from __future__ import annotations

from collections.abc import Sequence as Many
from typing import TYPE_CHECKING, Protocol

import attrs

from kinfolk.ir.builder import constant
from kinfolk.ir.ops import arithmetic, vector
from kinfolk.ir.types import F32, I32
from kinfolk.ir.value import Value
from kinfolk.tile.attention.scores import TileScores
from kinfolk.tile.softmax import LOG2_E, mask_scores

if TYPE_CHECKING:
    from kinfolk_attention_fwd.spec import AttentionSpec


@attrs.frozen(eq=False)
class SeenKeys:
    """That of the keys that are walked a lane's query sees the first `seen`, less the first `before` of them."""

    spec: AttentionSpec
    scores: TileScores
    seen: Value
    before: Value | None

    def ask(self, tile: Value) -> list[Value]:
        """As `kinfolk.tile.attention.ahead.Mask` says: nothing needs to be asked for."""
        return []

    def first(self, scores: list[Value], asked: Many[Value]) -> list[Value]:
        """As `Mask` says."""
        return self._masked(scores, constant(0, I32))

    def following(self, scores: list[Value], asked: Many[Value], tile: Value) -> list[Value]:
        """As `Mask` says."""
        return self._masked(scores, (tile + 1) * self.spec.tile_keys)

    def _masked(self, scores: Many[Value], first_key: Value) -> list[Value]:
        """Return the scores of a tile, which begins with key `first_key`, with -inf for keys that are not seen.

        Keys are counted from a lane's first one, so that they are constants: no register holds them.
        """
        own = first_key + self.scores.first_key
        below = self.seen - own
        found: list[Value] = []
        for block, block_scores in enumerate(scores):
            first = block * self.scores.block_keys
            places = [constant(place + first, I32) for place in self.scores.places]
            masked = mask_scores(self.scores.elements([block_scores]), places, below)
            if self.before is not None:
                masked = mask_before(masked, places, self.before - own)
            found.append(vector.pack(*masked))
        return found


def mask_before(scores: Many[Value], keys: Many[Value], first: Value) -> list[Value]:
    """Return the scores with -inf where the key's index is below `first` (i32)."""
    masked = constant(float("-inf"), F32)
    return [arithmetic.select(index < first, masked, score) for score, index in zip(scores, keys, strict=True)]


class Elements(Protocol):
    """Where scores lie."""

    def elements(self, scores: Many[Value]) -> list[Value]:
        """Return a lane's scores, those of a block after the other."""
        ...


@attrs.frozen(eq=False)
class Cap:
    """Scores cap tanh(scale q.k / cap): tanh x = 1 - 2 / (1 + exp 2x), of which neither end overflows to NaN."""

    scores: Elements
    cap: Value
    factor: Value

    @classmethod
    def of(cls, scores: Elements, scale: Value, cap: Value) -> Cap:
        """Return it for a scale and a positive cap, known at launch."""
        return cls(scores, cap, arithmetic.fdiv(scale * (2.0 * LOG2_E), cap))

    def __call__(self, products: list[Value]) -> list[Value]:
        """Return the scores of products."""
        return [vector.pack(*map(self._capped, self.scores.elements([block]))) for block in products]

    def _capped(self, product: Value) -> Value:
        grown = arithmetic.exp2(product * self.factor) + 1.0
        return arithmetic.fma(arithmetic.rcp(grown) * -2.0, self.cap, self.cap)


def unit_scale() -> Value:
    """Return the scale of scores that are scaled already."""
    return constant(1.0, F32)
