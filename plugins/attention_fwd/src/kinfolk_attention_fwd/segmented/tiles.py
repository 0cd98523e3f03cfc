"""The tiles of a wave: in which page each lies, and what of it there is, found for many of them at once.

Vector loads bring page ids, one a lane. What a round must know of a tile is computed from them, lane by lane, and put
into workgroup memory as words, from where rounds read those of a tile. The next ids are on their way meanwhile.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence as Many
from typing import ClassVar, Final

import attrs

from kinfolk.ir.builder import constant
from kinfolk.ir.ops import arithmetic, control, convert, lanes, memory, vector
from kinfolk.ir.types import I32, I64
from kinfolk.ir.value import Value
from kinfolk.tile.lane_index import lane_index
from kinfolk.tile.paging import Parts, bounded
from kinfolk.tile.softmax import mask_scores
from kinfolk_attention_fwd.segmented.division import wide
from kinfolk_attention_fwd.segmented.frame import Frame
from kinfolk_attention_fwd.segmented.spec import AttentionSegmentSpec
from kinfolk_attention_fwd.segmented.work import Work

Places = tuple[tuple[int, tuple[Value, ...]], ...]
"""Of each stretch its width and where a lane reads, a place a load."""
PARTIAL: Final = 32
"""Added to the rows of a tile of which some row of queries does not see all keys: more than a tile has."""


@attrs.frozen(eq=False, kw_only=True)
class Tiles(ABC):
    """Tile x of this wave is tile `begin` + wave + waves * x of the sequence, as far as the segment has it; there are
    `count` of them. The words of this wave begin at `base` of `words`.

    A row of queries sees all keys of tiles that lie from key `whole_begin` to below `whole_end`.
    """

    words_of_wave: ClassVar[int]
    """How many words of tiles a wave has in workgroup memory."""
    covered: ClassVar[int]
    """Of how many tiles, a power of two of at least two rings."""

    work: Work
    frame: Frame
    words: Value
    base: Value
    table: Value
    parts: Parts
    count: Value
    row: Value
    whole_begin: Value
    whole_end: Value

    @classmethod
    def of(cls, work: Work, frame: Frame, words: Value) -> Tiles:
        """Find the sequence's part of the page table."""
        arguments, spec, length = work.arguments, work.spec, work.sequence.length
        parts = Parts(arguments.page_shift)
        slots = parts.slots((length + (spec.unit - 1)) // spec.unit)
        row = wide(work.number) * wide(arguments.block_table_stride)
        left = arithmetic.smax(work.end - work.begin - lanes.wave_id(), constant(0, I32))
        return cls(
            work=work,
            frame=frame,
            words=words,
            base=lanes.wave_id() * cls.words_of_wave,
            table=memory.bound(memory.offset(arguments.block_table, row), slots),
            parts=parts,
            count=(left + (spec.waves - 1)) >> (spec.waves.bit_length() - 1),
            row=arguments.num_kv_heads * spec.head_size,
            whole_begin=work.before_last(),
            whole_end=work.seen_by_all(),
        )

    def number(self, tile: Value) -> Value:
        """Return the number in the sequence of a tile of this wave."""
        return self.work.begin + lanes.wave_id() + tile * self.work.spec.waves

    @abstractmethod
    def lookup(self, first: Value) -> list[Value]:
        """Ask for the page ids of as many tiles as have words, from `first` on."""

    @abstractmethod
    def describe(self, identifiers: Many[Value], first: Value) -> None:
        """Write what is known of tiles whose page ids have come, and count ids that lie outside the cache."""

    @abstractmethod
    def read(self, tile: Value) -> Value:
        """Ask for the words of a tile."""

    @abstractmethod
    def known(self, words: Value) -> list[Value]:
        """Return what is known of a tile whose words have come."""

    @abstractmethod
    def asked(self, tensor: Value, known: Many[Value], places: Places) -> list[Value]:
        """Ask for this lane's part of a tile: rows that do not exist read as 0."""

    @abstractmethod
    def sight(self, known: Many[Value]) -> list[Value]:
        """Return what must be known of a tile when it has come."""

    @abstractmethod
    def is_partial(self, sight: Many[Value], tile: Value) -> Value:
        """Whether some row of queries does not see all keys of a tile of this wave."""

    @abstractmethod
    def masked(self, sight: Many[Value], scores: Many[Value], seen: Value, own: Value) -> list[Value]:
        """Return the scores with -inf for keys that do not exist, or are not below `seen`; the first has key `own`."""

    def refuse(self, outside: Value, slot_opens: Value) -> None:
        """Count a page id that lies outside the cache, where a lane has it first, once a launch."""
        refused = outside & slot_opens & self.work.counts_pages

        def count() -> tuple[()]:
            memory.atomic_add(self.work.arguments.status, constant(1, I32))
            return ()

        control.if_else(refused, count, cold=True)

    @property
    def _places(self) -> list[Value]:
        return [constant(place, I32) for place in self.frame.score_keys[1]]


@attrs.frozen(eq=False, kw_only=True)
class PageTiles(Tiles):
    """Pages of one tile or more. Words are a tile's number among those of all pages, and its rows: as many as the
    sequence has, none of a tile past the segment's last, or whose page's id lies outside the cache. A tile that is not
    read and seen whole has PARTIAL more of them.
    """

    words_of_wave: ClassVar[int] = 2 * AttentionSegmentSpec.lanes
    covered: ClassVar[int] = AttentionSegmentSpec.lanes

    def lookup(self, first: Value) -> list[Value]:
        """As `Tiles` says: one a lane."""
        tile = self.number(first + lanes.lane_id())
        return [memory.view_load(self.table, self.parts.slot(tile))]

    def describe(self, identifiers: Many[Value], first: Value) -> None:
        """As `Tiles` says."""
        [identifier] = identifiers
        work, spec = self.work, self.work.spec
        tile = self.number(first + lanes.lane_id())
        exists = tile < work.end
        inside = arithmetic.icmp(identifier, work.arguments.num_pages, predicate="ult")
        first_key = tile * spec.tile_keys
        rows = bounded(work.sequence.length - first_key, spec.tile_keys)
        rows = arithmetic.select(exists & inside, rows, constant(0, I32))
        seen = rows.eq(spec.tile_keys) & (first_key + spec.tile_keys <= self.whole_end)
        seen = seen & (first_key >= self.whole_begin)
        known = arithmetic.select(inside, identifier, constant(0, I32))
        number = (known << work.arguments.page_shift) + self.parts.place(tile)
        words = vector.pack(number, arithmetic.select(seen, rows, rows + PARTIAL))
        memory.workgroup_store(self.words, lanes.thread_id() * 2, words, alignment=2 * I32.bytes)
        outside = arithmetic.icmp(identifier, work.arguments.num_pages, predicate="uge")
        self.refuse(exists & outside, self.parts.place(tile).eq(0) | tile.eq(work.first_tile))

    def read(self, tile: Value) -> Value:
        """As `Tiles` says: the same for all lanes."""
        index = self.base + (tile & (self.covered - 1)) * 2
        return memory.workgroup_load(self.words, index, count=2, alignment=2 * I32.bytes)

    def known(self, words: Value) -> list[Value]:
        """Return the tile's first element in the cache (i64), and its rows (i32)."""
        number, rows = (lanes.uniform(vector.extract(words, index=index)) for index in range(2))
        return [wide(number) * wide(self.row * self.work.spec.tile_keys), rows]

    def asked(self, tensor: Value, known: Many[Value], places: Places) -> list[Value]:
        """As `Tiles` says: in a view of the tile's rows of all heads."""
        first, rows = known
        view = memory.bound(memory.offset(tensor, first), (rows & (PARTIAL - 1)) * self.row)
        return [memory.view_load(view, place, count=width) for width, every in places for place in every]

    def sight(self, known: Many[Value]) -> list[Value]:
        """Return the rows."""
        return [known[1]]

    def is_partial(self, sight: Many[Value], tile: Value) -> Value:
        """As `Tiles` says."""
        return sight[0].ne(self.work.spec.tile_keys)

    def masked(self, sight: Many[Value], scores: Many[Value], seen: Value, own: Value) -> list[Value]:
        """As `Tiles` says: all of a tile's rows that the sequence has are there, or none."""
        readable = (sight[0] & (PARTIAL - 1)) > 0
        return mask_scores(scores, self._places, arithmetic.select(readable, seen, constant(0, I32)) - own)


@attrs.frozen(eq=False, kw_only=True)
class RowTiles(Tiles):
    """Pages of fewer rows than a tile: each row is looked up. Words are where the rows of tiles begin in the cache, of
    which there is one view, counted in STEP elements; GONE of a row that the segment does not have, or whose page's id
    lies outside the cache.

    What a lane loads of a tile and what it has scores of are the same rows.
    """

    words_of_wave: ClassVar[int] = 4 * AttentionSegmentSpec.lanes
    covered: ClassVar[int] = words_of_wave // AttentionSegmentSpec.tile_keys
    STEP: ClassVar[int] = 16
    GONE: ClassVar[int] = -(2**25)

    def lookup(self, first: Value) -> list[Value]:
        """As `Tiles` says: one a lane and load."""
        return [memory.view_load(self.table, self.parts.slot(key)) for key, _ in self._keys(first)]

    def describe(self, identifiers: Many[Value], first: Value) -> None:
        """As `Tiles` says."""
        work, length, gone = self.work, self.work.sequence.length, constant(self.GONE, I32)
        seen = self.parts.slot(work.sequence.before(constant(0, I32), work.arguments.window_left))
        for number, (identifier, (key, tile)) in enumerate(zip(identifiers, self._keys(first), strict=True)):
            exists = (tile < work.end) & (key < length)
            inside = arithmetic.icmp(identifier, work.arguments.num_pages, predicate="ult")
            known = arithmetic.select(inside, identifier, constant(0, I32))
            row = (known << work.arguments.page_shift) + self.parts.place(key)
            start = arithmetic.select(exists & inside, self._within(wide(row) * wide(self.row)) // self.STEP, gone)
            index = self.base + number * self.work.spec.lanes + lanes.lane_id()
            memory.workgroup_store(self.words, index, start)
            outside = arithmetic.icmp(identifier, work.arguments.num_pages, predicate="uge")
            self.refuse(exists & outside & (self.parts.slot(key) >= seen), self.parts.place(key).eq(0))

    def read(self, tile: Value) -> Value:
        """As `Tiles` says: of the rows that a lane loads."""
        spec, count = self.work.spec, self.frame.keys.shape[1]
        index = self.base + (tile & (self.covered - 1)) * spec.tile_keys + lane_index(self.frame.keys[:, 0])
        return memory.workgroup_load(self.words, index, count=count, alignment=count * I32.bytes)

    def known(self, words: Value) -> list[Value]:
        """Return where the rows begin, those that are GONE far below 0."""
        low, high = constant(self.GONE, I32), constant(AttentionSegmentSpec.most_elements // self.STEP, I32)
        every = (vector.extract(words, index=index) for index in range(self.frame.keys.shape[1]))
        return [arithmetic.smin(arithmetic.smax(each, low), high) for each in every]

    def asked(self, tensor: Value, known: Many[Value], places: Places) -> list[Value]:
        """As `Tiles` says: in a view of the whole cache."""
        arguments = self.work.arguments
        rows = arguments.num_pages << arguments.page_shift
        view = memory.bound(tensor, self._within(wide(rows) * wide(self.row)))
        return [
            memory.view_load(view, begin * self.STEP + place, count=width)
            for width, every in places
            for begin, place in zip(known, every, strict=True)
        ]

    def sight(self, known: Many[Value]) -> list[Value]:
        """Return where the rows begin."""
        return list(known)

    def is_partial(self, sight: Many[Value], tile: Value) -> Value:
        """As `Tiles` says."""
        lowest = sight[0]
        for each in sight[1:]:
            lowest = arithmetic.smin(lowest, each)
        first_key = self.number(tile) * self.work.spec.tile_keys
        unseen = (first_key + self.work.spec.tile_keys > self.whole_end) | (first_key < self.whole_begin)
        return lanes.any_lane(lowest < 0) | unseen

    def masked(self, sight: Many[Value], scores: Many[Value], seen: Value, own: Value) -> list[Value]:
        """As `Tiles` says."""
        zero = constant(0, I32)
        limits = [arithmetic.select(begin < 0, zero, seen) for begin in sight]
        found: list[Value] = []
        for score, place, limit in zip(scores, self._places, limits, strict=True):
            found += mask_scores([score], [place], limit - own)
        return found

    def _within(self, elements: Value) -> Value:
        """Return a number of elements (i64) of the cache as an i32, the most that there may be where it is larger."""
        return convert.trunc(arithmetic.smin(elements, constant(AttentionSegmentSpec.most_elements, I64)), to=I32)

    def _keys(self, first: Value) -> list[tuple[Value, Value]]:
        """Return, a lane and load, a key and the tile of the sequence that it is in."""
        spec = self.work.spec
        per_load = spec.lanes // spec.tile_keys
        row = lanes.lane_id() % spec.tile_keys
        found: list[tuple[Value, Value]] = []
        for load in range(self.words_of_wave // spec.lanes):
            tile = self.number(first + load * per_load + lanes.lane_id() // spec.tile_keys)
            key = arithmetic.smin(tile * spec.tile_keys + row, constant(spec.most_rows, I32))
            found.append((key, tile))
        return found
