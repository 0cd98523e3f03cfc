"""The tiles of a wave: which page each is part of, and what of it there is, found for 64 of them at once.

One vector load brings the page ids of as many tiles as a wave has lanes. What a round must know of a tile is computed
from them, lane by lane, and put into workgroup memory, from where rounds read a tile's words to scalar registers. The
ids of the next tiles are on their way meanwhile.
"""

from __future__ import annotations

from typing import Final

import attrs

from kinfolk.ir.builder import constant
from kinfolk.ir.ops import arithmetic, control, lanes, memory, vector
from kinfolk.ir.types import I32
from kinfolk.ir.value import Value
from kinfolk.tile.paging import Parts, bounded
from kinfolk_attention_fwd.segmented.division import wide
from kinfolk_attention_fwd.segmented.frame import Frame
from kinfolk_attention_fwd.segmented.work import Work

WORDS: Final = 2
"""Of a tile: its number among those of all pages, and its rows."""
PARTIAL: Final = 32
"""Added to the rows of a tile of which some row of queries does not see all keys: more than a tile has."""


@attrs.frozen(eq=False)
class Place:
    """Where a tile lies: its first element in the cache of a head (i64), and its rows as `Tiles` says (i32)."""

    first: Value
    rows: Value

    @property
    def existing(self) -> Value:
        """How many rows can be read."""
        return self.rows & (PARTIAL - 1)


@attrs.frozen(eq=False)
class Tiles:
    """Tile x of this wave is tile `begin` + wave + waves * x of the sequence, as far as the segment has it.

    `words` hold WORDS of each of as many tiles as there are lanes, those of this wave from `base` on. Rows are as many
    as the sequence has of a tile: none of one past the segment's last, or whose page's id lies outside the cache. A
    tile that is not read and seen whole has PARTIAL more of them.
    """

    work: Work
    frame: Frame
    words: Value
    base: Value
    table: Value
    parts: Parts
    count: Value
    row: Value

    @classmethod
    def of(cls, work: Work, frame: Frame, words: Value) -> Tiles:
        """Find the sequence's part of the page table."""
        arguments, spec, length = work.arguments, work.spec, work.sequence.length
        parts = Parts(arguments.page_shift)
        slots = parts.slots((length + (spec.tile_keys - 1)) // spec.tile_keys)
        row = wide(work.number) * wide(arguments.block_table_stride)
        wave = lanes.wave_id()
        left = arithmetic.smax(work.end - work.begin - wave, constant(0, I32))
        return cls(
            work,
            frame,
            words,
            wave * (spec.lanes * WORDS),
            memory.bound(memory.offset(arguments.block_table, row), slots),
            parts,
            (left + (spec.waves - 1)) >> (spec.waves.bit_length() - 1),
            arguments.num_kv_heads * spec.head_size,
        )

    def number(self, tile: Value) -> Value:
        """Return the number in the sequence of a tile of this wave."""
        return self.work.begin + lanes.wave_id() + tile * self.work.spec.waves

    def lookup(self, first: Value) -> Value:
        """Ask for the page ids of as many tiles as there are lanes, from `first` on."""
        tile = self.number(first + lanes.lane_id())
        return memory.view_load(self.table, self.parts.slot(tile))

    def describe(self, identifiers: Value, first: Value) -> None:
        """Write what is known of tiles whose page ids have come, and count ids that lie outside the cache."""
        work, spec, zero = self.work, self.work.spec, constant(0, I32)
        tile = self.number(first + lanes.lane_id())
        exists = tile < work.end
        inside = arithmetic.icmp(identifiers, work.arguments.num_pages, predicate="ult")
        first_key = tile * spec.tile_keys
        rows = bounded(work.sequence.length - first_key, spec.tile_keys)
        rows = arithmetic.select(exists & inside, rows, zero)
        seen = rows.eq(spec.tile_keys) & (first_key + spec.tile_keys <= work.seen_by_all())
        seen = seen & (first_key >= work.before_last())
        known = arithmetic.select(inside, identifiers, zero)
        number = (known << work.arguments.page_shift) + self.parts.place(tile)
        words = vector.pack(number, arithmetic.select(seen, rows, rows + PARTIAL))
        memory.workgroup_store(self.words, self.base + lanes.lane_id() * WORDS, words, alignment=WORDS * I32.bytes)
        opens = self.parts.place(tile).eq(0) | tile.eq(work.first_tile)
        outside = arithmetic.icmp(identifiers, work.arguments.num_pages, predicate="uge")
        refused = exists & outside & opens & work.counts_pages

        def count() -> tuple[()]:
            memory.atomic_add(work.arguments.status, constant(1, I32))
            return ()

        control.if_else(refused, count, cold=True)

    def read(self, tile: Value) -> Value:
        """Ask for the words of a tile, the same for all lanes."""
        index = self.base + (tile & (self.work.spec.lanes - 1)) * WORDS
        return memory.workgroup_load(self.words, index, count=WORDS, alignment=WORDS * I32.bytes)

    def place(self, words: Value) -> Place:
        """Return where a tile lies whose words have come."""
        number, rows = (lanes.uniform(vector.extract(words, index=index)) for index in range(WORDS))
        return Place(wide(number) * wide(self.row * self.work.spec.tile_keys), rows)

    def rows_of(self, tensor: Value, place: Place) -> Value:
        """Return a view of a tile's rows of all heads: those that do not exist read as 0."""
        return memory.bound(memory.offset(tensor, place.first), place.existing * self.row)
