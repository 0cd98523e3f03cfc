"""Tiles of keys whose rotated rows are staged from pages of the cache, and the masks of those."""

from __future__ import annotations

from collections.abc import Sequence as Many
from typing import TYPE_CHECKING

import attrs

from kinfolk.ir.value import Value
from kinfolk.tile.attention.scores import TileScores
from kinfolk.tile.attention.values import Values
from kinfolk.tile.paging import Page, PageTable
from kinfolk.tile.timeline import Job
from kinfolk_mla.prefill.batch import Sequence
from kinfolk_mla.prefill.scores import SeenKeys
from kinfolk_mla.prefill.tiles import PagedKeys, Tiles

if TYPE_CHECKING:
    from kinfolk_mla.prefill.spec import MlaPrefillSpec


@attrs.frozen(eq=False)
class Pages:
    """The page table of a sequence, in parts of pages, and the rotated part of the cache."""

    table: PageTable
    k_rope: Value


@attrs.frozen(eq=False)
class PagedTiles(Tiles[Pages, Page]):
    """A part of a tile is a part of a page."""

    @classmethod
    def found(cls, spec: MlaPrefillSpec, given: PagedKeys, sequence: Sequence, values: Values) -> PagedTiles:
        """Reserve the ring of keys and find this thread's part of a tile."""
        return cls.of(spec, sequence, values, spec.tile_parts, lambda: Pages(sequence.pages(given), given.k_rope))

    def mask(self, scores: TileScores, seen: Value) -> SeenKeys:
        """Return which keys of a tile a lane's query sees."""
        return SeenKeys(self.spec, self, scores, seen)

    def lookups(self, tile: Value) -> list[Value]:
        """Return the page id of this wave's part of a tile."""
        return [self.rotated.table.lookup(tile * self.spec.tile_parts + self.own)]

    def resolve(self, found: Many[Value], tile: Value) -> Page:
        """Return the part of a page that this wave's part of a tile is."""
        return self.rotated.table.resolve(found[0], tile * self.spec.tile_parts + self.own)

    def lookup_all(self, tile: Value) -> list[Value]:
        """Return the page ids of all parts of a tile."""
        table, first = self.rotated.table, tile * self.spec.tile_parts
        return [table.lookup(first + part if part else first) for part in range(self.spec.tile_parts)]

    def rows_of_all(self, identifiers: Many[Value]) -> list[Value]:
        """Return how many rows of each part of a tile are there: all or none. No query sees a key past the last."""
        return [self.rotated.table.rows_held(each) for each in identifiers]

    def key_loads(self, place: Page, tile: Value, loaded: list[Value]) -> list[Job]:
        """Return the jobs that issue this thread's loads of a tile of keys, `place` being its part of it."""
        rope = self.stagings[1]

        def load_rope(piece: int) -> Job:
            def job() -> None:
                view = place.view(self.rotated.k_rope, self.spec.rope_width, self.spec.part)
                loaded.append(rope.load_piece(view, self.sources[1], piece))

            return job

        return [*self.expanded_loads(tile, loaded), *map(load_rope, range(rope.pieces))]
