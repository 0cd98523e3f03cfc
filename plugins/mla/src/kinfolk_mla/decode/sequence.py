"""What a workgroup works on: its part of a sequence, its rows of the query, and the pages the keys lie in."""

from __future__ import annotations

from typing import Final

import attrs

from kinfolk.ir.builder import constant
from kinfolk.ir.ops import arithmetic, convert, lanes, memory
from kinfolk.ir.types import I32, I64
from kinfolk.ir.value import Value
from kinfolk.tile.paging import PageTable, Parts
from kinfolk_mla.decode.geometry import Geometry
from kinfolk_mla.spec import INVERSE_BITS


@attrs.frozen(eq=False)
class Arguments:
    """The kernel's parameters as values, in declared order."""

    qa: Value
    c_kv: Value
    k_rope: Value
    cu_seqlens_q: Value
    cu_seqlens_k: Value
    block_table: Value
    status: Value
    out: Value
    lse: Value
    scale: Value
    k_scale: Value
    block_table_stride: Value
    num_pages: Value
    total_q: Value
    max_seqlen_q: Value
    max_seqlen_k: Value
    num_heads: Value
    heads_inverse: Value
    part_out: Value
    part_ml: Value
    num_segments: Value
    segment_pages: Value
    page_shift: Value | None = None


@attrs.frozen(eq=False)
class Work:
    """One segment of a sequence's keys and, of the rows of its query, those of this workgroup.

    A row is a head of a query token: of a sequence that begins at token t, rows 0 and on are rows t * num_heads and on
    of [tokens * num_heads, ...]. The workgroup has `count` of them from `first_row` on, a wave its share of these; of
    a workgroup past the sequence's last row nothing is asked. What a wave loads past the last row is 0, what it stores
    there is dropped. Later rows come first in the grid: where attention is causal, they see more keys.

    The segment has `length` keys that the last of the rows sees, its first on page `first_page` of the sequence, and
    that row sees `ahead` keys from there on, in this segment or later ones; where there is one segment, it is the
    sequence. Offsets that fall make a sequence without keys, or without a query; so do rows that the query does not
    have. No sequence has more than `max_seqlen_k` keys, so that no slot past its row of the page table is read, or more
    than `max_seqlen_q` tokens, whatever the offsets are.
    """

    arguments: Arguments
    geometry: Geometry
    sequence: Value
    token: Value
    first_row: Value
    count: Value
    has_rows: Value
    segment: Value
    first_page: Value
    length: Value
    ahead: Value
    wave: Value

    @classmethod
    def of(cls, arguments: Arguments, geometry: Geometry) -> Work:
        """Read the sequence's offsets."""
        spec, zero, sequence = geometry.spec, constant(0, I32), lanes.block_id(axis=1)
        token, queries = queries_of(arguments.cu_seqlens_q, sequence, arguments.total_q, arguments.max_seqlen_q)
        rows = queries * arguments.num_heads
        blocks = (rows + (spec.rows - 1)) // spec.rows
        block = blocks - 1 - lanes.block_id(axis=0, below=spec.most_blocks)
        first_row = arithmetic.smax(block, zero) * spec.rows
        has_rows = block >= 0
        left = arithmetic.smin(arithmetic.smax(rows - first_row, zero), constant(spec.rows, I32))
        count = arithmetic.select(has_rows, left, zero)
        first_key, next_key = offsets_of(arguments.cu_seqlens_k, sequence)
        later = tokens_after(arguments, arithmetic.smax(rows - first_row - spec.rows, zero))
        seen = arithmetic.smax(keys_between(first_key, next_key, arguments.max_seqlen_k) - later, zero)
        segment = lanes.block_id(axis=2)
        first_page, ahead = _segment_of(seen, segment, arguments.segment_pages, spec.page_size)
        length = _keys_held(ahead, arguments.segment_pages, spec.page_size)
        wave = lanes.wave_id()
        return cls(
            arguments, geometry, sequence, token, first_row, count, has_rows, segment, first_page, length, ahead, wave
        )

    @property
    def group(self) -> Value:
        """This wave's group; the groups of a workgroup take turns at the tiles."""
        return self.wave // self.geometry.spec.row_waves

    @property
    def member(self) -> Value:
        """This wave's place in its group."""
        spec = self.geometry.spec
        return self.wave % spec.row_waves if spec.key_groups > 1 else self.wave

    @property
    def wave_row(self) -> Value:
        """The first of this wave's rows among those of the workgroup."""
        return self.member * self.geometry.spec.rows_per_wave

    @property
    def wave_has_rows(self) -> Value:
        """Whether this wave has rows; one that has none stages keys and joins barriers only."""
        return self.wave_row < self.count

    @property
    def counts_pages(self) -> Value:
        """Whether this wave says how many page ids are refused: of those of a sequence, one that sees all keys."""
        return lanes.block_id(axis=0).eq(0) & self.member.eq(0)

    @property
    def is_split(self) -> Value:
        """Whether other workgroups have other keys of the sequence, so that another kernel has the last word."""
        return self.arguments.num_segments > 1

    @property
    def stores_rows(self) -> Value:
        """Whether this wave has the last word on its rows: it has some, and no other group merges them."""
        if self.geometry.spec.key_groups == 1:
            return self.wave_has_rows
        return (self.wave * self.geometry.spec.rows_per_wave < self.count) & self.group.eq(0)

    def pages(self) -> PageTable:
        """Return the segment's page table: of slots from its first on, or with pages that may reach into others."""
        table, shift = self.arguments.block_table, self.arguments.page_shift
        return PageTable.of_sequence(
            memory.offset(table, self.first_page) if shift is None else table,
            self.arguments.block_table_stride,
            self.sequence,
            length=self.length,
            page_size=self.geometry.spec.page_size,
            num_pages=self.arguments.num_pages,
            parts=None if shift is None else Parts(shift, self.first_page),
        )

    def sight(self) -> Sight:
        """Return what each row sees of the segment."""
        zero, inverse = constant(0, I32), self.arguments.heads_inverse
        first = self.first_row % self.arguments.num_heads
        last = _token(first, arithmetic.smax(self.count - 1, zero), inverse)
        whole = arithmetic.smax(self.ahead - last, zero) // self.geometry.spec.tile_keys
        return Sight(inverse, self.ahead, first, last, whole)

    def rows_of(self, tensor: Value, width: int) -> Value:
        """Return a view of the workgroup's rows of a tensor [tokens, num_heads, width]: of none where it has none."""
        return self._rows(tensor, self._first(), width)

    def rows_of_segment(self, tensor: Value, width: int) -> Value:
        """Return a view of the workgroup's rows of a tensor [segments, tokens, num_heads, width]."""
        arguments = self.arguments
        before = wide(self.segment) * (wide(arguments.total_q) * wide(arguments.num_heads))
        return self._rows(tensor, before + self._first(), width)

    def _first(self) -> Value:
        """Return the number (i64) of the first row among those of all sequences."""
        return wide(self.token) * wide(self.arguments.num_heads) + wide(self.first_row)

    def _rows(self, tensor: Value, number: Value, width: int) -> Value:
        return memory.bound(memory.offset(tensor, number * width), self.count * width)


def _keys_held(ahead: Value, segment_pages: Value, page_size: int) -> Value:
    """Return how many of the keys from a segment's first on it has itself."""
    return arithmetic.smin(ahead, segment_pages * page_size)


@attrs.frozen(eq=False)
class Sight:
    """What a workgroup's rows see of a segment: its last row `ahead` keys (i32), each token before it a key less.

    Where attention is not causal all rows see as much, and `inverse` is 0. `first` is the head of the first row, `last`
    how many tokens further the last one is, `whole` how many tiles every row sees whole. All are the same in all lanes.
    """

    inverse: Value
    ahead: Value
    first: Value
    last: Value
    whole: Value

    def is_partial(self, tile: Value, ahead: int = 0) -> Value:
        """Whether some row does not see all keys of tile `tile` + `ahead`."""
        return tile >= (self.whole - ahead if ahead else self.whole)

    def keys(self, row: Value, before: Value) -> Value:
        """Return how many keys behind the first `before` a row of the workgroup sees, at most and at least so many that
        it makes no difference in a tile.
        """
        left = arithmetic.smin(arithmetic.smax(self.ahead - before, constant(0, I32)), constant(_ENOUGH, I32))
        return left - (self.last - _token(self.first, row, self.inverse))


_ENOUGH: Final = 2**16
"""More keys than a tile has, and than a workgroup's rows have tokens."""


def _token(first: Value, row: Value, inverse: Value) -> Value:
    """Return how many tokens further than a workgroup's first row, a token's head `first`, another row is.

    With `inverse` = ceil(2^s / heads), (first + row) * inverse >> s is the quotient: its error, (first + row) *
    (inverse * heads - 2^s) / 2^s / heads, is below 1 / heads for up to 2^10 heads and 2^7 rows.
    """
    return arithmetic.lshr(arithmetic.mul(first + row, inverse), INVERSE_BITS)


def tokens_after(arguments: Arguments, rows_after: Value) -> Value:
    """Return how many of a sequence's tokens come after the one of a workgroup's last row, which `rows_after` rows come
    after, as far as that takes keys from its sight: none where attention is not causal.
    """
    after = rows_after // arguments.num_heads
    return arithmetic.select(arguments.heads_inverse.eq(0), constant(0, I32), after)


def _segment_of(length: Value, segment: Value, segment_pages: Value, page_size: int) -> tuple[Value, Value]:
    """Return a segment's first page, and how many of `length` keys come from there on.

    Pages are counted before keys, so that no product leaves 32 bits: there are no more of them than the sequence has.
    """
    pages = (length + (page_size - 1)) // page_size
    first = convert.trunc(arithmetic.smin(wide(segment) * wide(segment_pages), wide(pages)), to=I32)
    return first, arithmetic.smax(length - first * page_size, constant(0, I32))


def offsets_of(offsets: Value, sequence: Value) -> tuple[Value, Value]:
    """Return where a sequence begins, and where the next one does."""
    return (
        memory.load(memory.offset(offsets, sequence), invariant=True),
        memory.load(memory.offset(offsets, sequence + 1), invariant=True),
    )


def keys_between(begin: Value, end: Value, most: Value) -> Value:
    """Return how many keys a sequence has, from one offset to the next: none where they fall, or where 32 bits do not
    hold how many.
    """
    difference = arithmetic.sub(arithmetic.smax(end, begin), begin)
    return arithmetic.smin(arithmetic.smax(difference, constant(0, I32)), most)


def queries_of(offsets: Value, sequence: Value, total_q: Value, max_seqlen_q: Value) -> tuple[Value, Value]:
    """Return a sequence's first query token, and how many it has: none where its offsets fall or name rows that the
    query does not have, and no more than `max_seqlen_q`.
    """
    token, next_token = offsets_of(offsets, sequence)
    zero = constant(0, I32)
    exist = (token >= 0) & (next_token <= total_q)
    count = arithmetic.sub(arithmetic.smax(next_token, token), token)
    count = arithmetic.smin(arithmetic.smax(count, zero), max_seqlen_q)
    return arithmetic.smin(arithmetic.smax(token, zero), total_q), arithmetic.select(exist, count, zero)


def wide(number: Value) -> Value:
    """Return a number in 64 bits."""
    return convert.sext(number, to=I64)
