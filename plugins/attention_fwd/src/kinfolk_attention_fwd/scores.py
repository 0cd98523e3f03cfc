"""Which keys of a tile a query sees."""

from __future__ import annotations

from collections.abc import Sequence as Many
from typing import TYPE_CHECKING

import attrs

from kinfolk.ir.builder import constant
from kinfolk.ir.ops import arithmetic, vector
from kinfolk.ir.types import F32, I32
from kinfolk.ir.value import Value
from kinfolk.tile.attention.scores import TileScores
from kinfolk.tile.softmax import mask_scores

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
