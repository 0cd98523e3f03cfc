"""Tiles of keys and values on their way from rows that lie anywhere: each thread finds those that it takes some of."""

from __future__ import annotations

from collections.abc import Sequence as Many
from typing import TYPE_CHECKING

import attrs

from kinfolk.ir.builder import constant, current_builder
from kinfolk.ir.ops import arithmetic, lanes, memory, vector
from kinfolk.ir.types import F32, I32, SCALARS
from kinfolk.ir.value import Value
from kinfolk.tile.attention.rows import Carried
from kinfolk.tile.attention.values import Values
from kinfolk.tile.paging import PageTable
from kinfolk.tile.reduction import across_lanes
from kinfolk.tile.softmax import mask_scores
from kinfolk.tile.state import branch
from kinfolk.tile.timeline import Job
from kinfolk_attention_fwd.scores import SeenKeys, mask_before
from kinfolk_attention_fwd.sequence import wide
from kinfolk_attention_fwd.tiles import KeyRing, StagedTiles

if TYPE_CHECKING:
    from kinfolk_attention_fwd.paged.kernel import PagedArguments
    from kinfolk_attention_fwd.paged.spec import AttentionGatheredSpec
    from kinfolk_attention_fwd.paged.table import Census
    from kinfolk_attention_fwd.queries import Queries

ABSENT = -1
WORD = 32


@attrs.frozen(eq=False)
class Numbers:
    """The rows of all pages (i32) that this thread takes vectors of, `ABSENT` for those that are not there."""

    keys: list[Value]
    values: list[Value]


@attrs.frozen(eq=False)
class RowFeed(StagedTiles):
    """Of each row of a tile that a thread takes a vector of it looks up the page a round ahead.

    As `kinfolk_attention_fwd.tiles.TileFeed`; `census` says whether all keys are there.
    """

    spec: AttentionGatheredSpec
    arguments: PagedArguments
    queries: Queries
    table: PageTable
    census: Census
    of_keys: list[Carried]
    of_values: list[Carried]

    @classmethod
    def of(
        cls,
        spec: AttentionGatheredSpec,
        arguments: PagedArguments,
        queries: Queries,
        table: PageTable,
        census: Census,
        values: Values,
    ) -> RowFeed:
        """Reserve the ring of keys and find this thread's part of a tile."""
        ring = KeyRing.of(spec, queries.frame, lambda: None)
        carried = ring.columns.carried(), values.carried()
        return cls(ring, values, spec, arguments, queries, table, census, *carried)

    def mask(self, seen: SeenKeys) -> GatheredKeys:
        """As `TileFeed` says."""
        return GatheredKeys(self.spec, seen, self.table)

    def whole(self, tiles: Value) -> Value:
        """As `TileFeed` says: where a page is not there, every tile is looked at."""
        return arithmetic.select(self.census.all_there(), tiles, constant(0, I32))

    def lookups(self, tile: Value) -> list[Value]:
        """As `Feed` says: the page id of each row."""
        return [self.table.lookup(key) for key in self._keys(tile)]

    def resolve(self, found: Many[Value], tile: Value) -> Numbers:
        """As `Feed` says: which row of all pages each is."""
        rows = [row_number(self.table, each, key) for each, key in zip(found, self._keys(tile), strict=True)]
        return Numbers(rows[: len(self.of_keys)], rows[len(self.of_keys) :])

    def _keys(self, tile: Value) -> list[Value]:
        """Return which keys of the sequence a thread's rows of a tile are; the one past its last for more."""
        first = tile * self.spec.tile_keys
        return [arithmetic.umin(first + each.row, self.table.tiles) for each in (*self.of_keys, *self.of_values)]

    def key_loads(self, place: Numbers, tile: Value, loaded: list[Value]) -> list[Job]:
        """As `Feed` says."""
        return self._loads(self.arguments.k, self.spec.head_size, self.of_keys, place.keys, loaded)

    def value_place(self, place: Numbers) -> Numbers:
        """As `Feed` says: the rows of values are."""
        return Numbers([], place.values)

    def value_loads(self, place: Numbers | None, tile: Value, loaded: list[Value]) -> list[Job]:
        """As `Feed` says."""
        assert place is not None
        return self._loads(self.arguments.v, self.spec.head_size_v, self.of_values, place.values, loaded)

    def _loads(
        self, tensor: Value, width: int, carried: Many[Carried], numbers: Many[Value], loaded: list[Value]
    ) -> list[Job]:
        element = SCALARS[self.spec.dtype]

        def load(each: Carried, number: Value) -> Job:
            def vector_of() -> list[Value]:
                row = memory.offset(tensor, wide(number) * wide(self.arguments.num_kv_heads * width))
                place = memory.offset(row, self.queries.kv_head * width + each.column)
                return [memory.load(place, count=each.width, alignment=each.width * element.bytes, invariant=True)]

            def nothing() -> list[Value]:
                return [vector.splat(current_builder().constant_bits(0, element), count=each.width)]

            def job() -> None:
                loaded.extend(branch((number >= 0) & (each.column < width), vector_of, nothing))

            return job

        return [load(each, number) for each, number in zip(carried, numbers, strict=True)]


def row_number(table: PageTable, identifier: Value, key: Value) -> Value:
    """Return which row of all pages a key is, or `ABSENT`: where the sequence has none, or its id names no page."""
    parts = table.parts
    assert parts is not None
    inside = arithmetic.icmp(identifier, table.num_pages, predicate="ult")
    known = arithmetic.select(inside, identifier, constant(0, I32))
    number = (known << parts.shift) | parts.place(key)
    return arithmetic.select(inside & (key < table.length), number, constant(ABSENT, I32))


@attrs.frozen(eq=False)
class GatheredKeys:
    """That a lane's query sees the keys of `seen`, but for those whose page is not there: a bit of a word a key."""

    spec: AttentionGatheredSpec
    seen: SeenKeys
    table: PageTable

    def ask(self, tile: Value) -> list[Value]:
        """As `kinfolk.tile.attention.ahead.Mask` says: a lane asks for the page id of a key."""
        key = arithmetic.umin(tile * self.spec.tile_keys + lanes.lane_id() % self.spec.tile_keys, self.table.tiles)
        return [self.table.lookup(key)]

    def first(self, scores: list[Value], asked: Many[Value]) -> list[Value]:
        """As `Mask` says."""
        return self._masked(scores, asked[0], constant(0, I32))

    def following(self, scores: list[Value], asked: Many[Value], tile: Value) -> list[Value]:
        """As `Mask` says."""
        return self._masked(scores, asked[0], (tile + 1) * self.spec.tile_keys)

    def _words(self, identifier: Value) -> list[Value]:
        """Return the words of the blocks of a tile, on all lanes."""
        there = arithmetic.icmp(identifier, self.table.num_pages, predicate="ult")
        lane = lanes.lane_id()
        bit = arithmetic.select(there, constant(1, I32) << (lane & (WORD - 1)), constant(0, I32))
        own = across_lanes(bit, [1 << number for number in range(5)], lambda one, other: one | other)
        if self.spec.tile_keys == WORD:
            return [own]
        other, lower = lanes.shuffle_xor(own, mask=WORD), lane < WORD
        return [arithmetic.select(lower, own, other), arithmetic.select(lower, other, own)]

    def _masked(self, scores: Many[Value], identifier: Value, first_key: Value) -> list[Value]:
        """Return the scores of a tile with -inf for keys that are not seen, or not there."""
        tile, lowest = self.seen.scores, constant(float("-inf"), F32)
        own = first_key + tile.first_key
        found: list[Value] = []
        for block, (block_scores, word) in enumerate(zip(scores, self._words(identifier), strict=True)):
            first = block * tile.block_keys
            places = [constant(place + first, I32) for place in tile.places]
            masked = mask_scores(tile.elements([block_scores]), places, self.seen.seen - own)
            if self.seen.before is not None:
                masked = mask_before(masked, places, self.seen.before - own)
            mine = arithmetic.lshr(word, tile.first_key)
            masked = [
                arithmetic.select((mine & (1 << place)).eq(0), lowest, score)
                for place, score in zip(tile.places, masked, strict=True)
            ]
            found.append(vector.pack(*masked))
        return found
