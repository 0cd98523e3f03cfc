"""Tiles of keys and values on their way from pages: a view of the part of a page that a wave stages, one per tensor."""

from __future__ import annotations

from collections.abc import Sequence as Many
from typing import TYPE_CHECKING

import attrs

from kinfolk.ir.builder import constant
from kinfolk.ir.ops import arithmetic, lanes, memory
from kinfolk.ir.types import I32
from kinfolk.ir.value import Value
from kinfolk.tile.attention.rows import Strided
from kinfolk.tile.attention.values import Values
from kinfolk.tile.paging import Page, PageTable
from kinfolk.tile.timeline import Job
from kinfolk_attention_fwd.paged.mask import PagedKeys
from kinfolk_attention_fwd.scores import SeenKeys
from kinfolk_attention_fwd.sequence import wide
from kinfolk_attention_fwd.tiles import KeyRing, StagedTiles

if TYPE_CHECKING:
    from kinfolk_attention_fwd.paged.kernel import PagedArguments
    from kinfolk_attention_fwd.paged.spec import AttentionPagedSpec
    from kinfolk_attention_fwd.paged.table import Census
    from kinfolk_attention_fwd.queries import Queries


@attrs.frozen(eq=False)
class PageFeed(StagedTiles):
    """The rows of a tile that a wave stages are some of its part `own`, whose page it looks up a round ahead.

    As `kinfolk_attention_fwd.tiles.TileFeed`; `census` says whether all keys are there.
    """

    spec: AttentionPagedSpec
    arguments: PagedArguments
    table: PageTable
    own: Value
    census: Census

    @classmethod
    def of(
        cls,
        spec: AttentionPagedSpec,
        arguments: PagedArguments,
        queries: Queries,
        table: PageTable,
        census: Census,
        values: Values,
    ) -> PageFeed:
        """Reserve the ring of keys and find this thread's part of a tile."""
        ring = KeyRing.of(spec, queries.frame, lambda: rows_of(spec, arguments, queries, spec.head_size))
        return cls(ring, values, spec, arguments, table, own_part(spec), census)

    def mask(self, seen: SeenKeys) -> PagedKeys:
        """As `TileFeed` says."""
        return PagedKeys(self.spec, seen, self.table)

    def whole(self, tiles: Value) -> Value:
        """As `TileFeed` says: where a page is not there, every tile is looked at."""
        return arithmetic.select(self.census.all_there(), tiles, constant(0, I32))

    def lookups(self, tile: Value) -> list[Value]:
        """As `Feed` says: the page id of this wave's part of a tile."""
        return [self.table.lookup(self._part(tile))]

    def resolve(self, found: Many[Value], tile: Value) -> Page:
        """As `Feed` says: the part of a page that this wave's part of a tile is."""
        return self.table.resolve(found[0], self._part(tile))

    def _part(self, tile: Value) -> Value:
        """Return which part of the sequence's pages this wave's part of a tile is; the first one past them for more."""
        return arithmetic.umin(tile * self.spec.tile_parts + self.own, self.table.tiles)

    def key_loads(self, place: Page, tile: Value, loaded: list[Value]) -> list[Job]:
        """As `Feed` says."""
        return self.ring.columns.loads(lambda: self._rows(self.arguments.k, place, self.spec.head_size), None, loaded)

    def value_place(self, place: Page) -> Page:
        """As `Feed` says: all of it is."""
        return place

    def value_loads(self, place: Page | None, tile: Value, loaded: list[Value]) -> list[Job]:
        """As `Feed` says."""
        assert place is not None
        return self.values.loads(lambda: self._rows(self.arguments.v, place, self.spec.head_size_v), None, loaded)

    def _rows(self, tensor: Value, page: Page, width: int) -> Value:
        """Return a view of the rows of a part of a page that the sequence has: those past its last read as 0."""
        row = self.arguments.num_kv_heads * width
        first = page.identifier * wide(row * self.spec.part)
        return memory.bound(memory.offset(tensor, first), page.rows * row)


def own_part(spec: AttentionPagedSpec) -> Value:
    """Return which part of a tile this wave stages some of."""
    return lanes.wave_id() // (spec.waves // spec.tile_parts)


def rows_of(spec: AttentionPagedSpec, arguments: PagedArguments, queries: Queries, width: int) -> Strided:
    """Return where rows of a tile lie in a view of this wave's part of it, whose first row is none of the tile's."""
    pitch = arguments.num_kv_heads * width
    return Strided(pitch, queries.kv_head * width - own_part(spec) * (pitch * spec.part), parted=True)
