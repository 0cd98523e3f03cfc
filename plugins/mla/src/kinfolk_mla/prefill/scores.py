"""Scores of prefill: which keys of a tile a query sees."""

from __future__ import annotations

from collections.abc import Sequence as Many
from typing import TYPE_CHECKING

import attrs

from kinfolk.ir.builder import constant
from kinfolk.ir.ops import arithmetic, vector
from kinfolk.ir.types import I32
from kinfolk.ir.value import Value
from kinfolk.tile.attention.scores import TileScores
from kinfolk.tile.softmax import mask_scores

if TYPE_CHECKING:
    from kinfolk_mla.prefill.paged import PagedTiles
    from kinfolk_mla.prefill.spec import MlaPrefillSpec


@attrs.frozen(eq=False)
class SeenKeys:
    """That a lane's query sees the first `seen` keys of its sequence, but for those of pages that are not there."""

    spec: MlaPrefillSpec
    tiles: PagedTiles
    scores: TileScores
    seen: Value

    def ask(self, tile: Value) -> list[Value]:
        """As `Mask` says."""
        return self.tiles.lookup_all(tile)

    def first(self, scores: list[Value], asked: Many[Value]) -> list[Value]:
        """As `Mask` says."""
        return self.masked(scores, self.seen, self.tiles.rows_of_all(asked))

    def following(self, scores: list[Value], asked: Many[Value], tile: Value) -> list[Value]:
        """As `Mask` says."""
        valid = self.tiles.rows_of_all(asked)
        return self.masked(scores, self.seen - (tile + 1) * self.spec.tile_keys, valid)

    def masked(self, scores: Many[Value], seen: Value, valid: Many[Value]) -> list[Value]:
        """Return the scores with -inf for keys not below `seen`, or not of a part's `valid` rows.

        Keys are counted from a lane's first one, so that they are constants: no register holds them.
        """
        part = self.spec.part
        rows = self.scores.frame.atom.shape.c.rows // part
        found: list[Value] = []
        for block, block_scores in enumerate(scores):
            elements = self.scores.elements([block_scores])
            masked: list[Value] = []
            for number in range(self.spec.atom // part):
                slots = [slot for slot in range(rows.shape[1]) if rows[0, slot] == number]
                assert (rows[:, slots] == number).all() and slots == list(range(len(masked), len(masked) + len(slots)))
                first = block * self.spec.atom
                bound = valid[block * (self.spec.atom // part) + number] + number * part
                below = arithmetic.smin(seen - first if first else seen, bound) - self.scores.first_key
                places = [constant(self.scores.places[slot], I32) for slot in slots]
                masked += mask_scores([elements[slot] for slot in slots], places, below)
            found.append(vector.pack(*masked))
        return found
