"""Tiles of keys whose rotated rows lie one after the other, as `gathered` leaves them, and the masks of those."""

from __future__ import annotations

from collections.abc import Sequence as Many
from typing import TYPE_CHECKING

import attrs

from kinfolk.ir.builder import constant
from kinfolk.ir.ops import arithmetic, lanes, memory, vector
from kinfolk.ir.types import F32, I32
from kinfolk.ir.value import Value
from kinfolk.tile.attention.scores import TileScores
from kinfolk.tile.attention.values import Values
from kinfolk.tile.softmax import mask_scores
from kinfolk.tile.timeline import Job
from kinfolk_mla.prefill.batch import Sequence
from kinfolk_mla.prefill.tiles import RowKeys, Tiles

if TYPE_CHECKING:
    from kinfolk_mla.prefill.spec import MlaGatheredPrefillSpec


@attrs.frozen(eq=False)
class Rows:
    """The rotated rows of a sequence, and the words that say which of its keys there are."""

    rotated: Value
    words: Value


@attrs.frozen(eq=False)
class RowTiles(Tiles[Rows, None]):
    """All waves stage rotated rows too."""

    @classmethod
    def found(cls, spec: MlaGatheredPrefillSpec, given: RowKeys, sequence: Sequence, values: Values) -> RowTiles:
        """Reserve the ring of keys and find this thread's part of a tile."""

        def rows() -> Rows:
            rotated = sequence.shared_rows(given.rotated, spec.rope_width)
            return Rows(rotated, sequence.words(given.present, spec.word_keys, sequence.length))

        return cls.of(spec, sequence, values, 1, rows)

    def mask(self, scores: TileScores, seen: Value) -> PresentKeys:
        """Return which keys of a tile a lane's query sees."""
        return PresentKeys(self, scores, seen)

    def lookups(self, tile: Value) -> list[Value]:
        """Return nothing: where a tile lies follows from its number."""
        return []

    def resolve(self, found: Many[Value], tile: Value) -> None:
        """As `lookups`."""

    def key_loads(self, place: None, tile: Value, loaded: list[Value]) -> list[Job]:
        """Return the jobs that issue this thread's loads of a tile of keys."""
        rope, first = self.stagings[1], self.spec.tile_keys * self.spec.rope_width

        def load_rope(piece: int) -> Job:
            return lambda: loaded.append(rope.load_piece(self.rotated.rotated, self.sources[1] + tile * first, piece))

        return [*self.expanded_loads(tile, loaded), *map(load_rope, range(rope.pieces))]


@attrs.frozen(eq=False)
class PresentKeys:
    """That a lane's query sees the first `seen` keys of its sequence, but for those that are not there.

    A word says it of the keys of a block.
    """

    tiles: RowTiles
    scores: TileScores
    seen: Value

    def ask(self, tile: Value) -> list[Value]:
        """As `Mask` says."""
        first = tile * self.scores.blocks
        words = self.tiles.rotated.words
        return [memory.view_load(words, first + block if block else first) for block in range(self.scores.blocks)]

    def first(self, scores: list[Value], asked: Many[Value]) -> list[Value]:
        """As `Mask` says."""
        return self._masked(scores, asked, self.seen)

    def following(self, scores: list[Value], asked: Many[Value], tile: Value) -> list[Value]:
        """As `Mask` says."""
        return self._masked(scores, asked, self.seen - (tile + 1) * self.tiles.spec.tile_keys)

    def _masked(self, scores: Many[Value], asked: Many[Value], seen: Value) -> list[Value]:
        """Return the scores with -inf for keys not below `seen`, counted from the tile's first, or without a bit."""
        lowest = constant(float("-inf"), F32)
        places = [constant(place, I32) for place in self.scores.places]
        found: list[Value] = []
        for block, (block_scores, asked_word) in enumerate(zip(scores, asked, strict=True)):
            first = block * self.scores.block_keys
            below = (seen - first if first else seen) - self.scores.first_key
            word = arithmetic.lshr(lanes.uniform(asked_word), self.scores.first_key)
            masked = [
                arithmetic.select((word & (1 << place)).eq(0), lowest, score)
                for place, score in zip(
                    self.scores.places, mask_scores(self.scores.elements([block_scores]), places, below), strict=True
                )
            ]
            found.append(vector.pack(*masked))
        return found
