"""What a workgroup works on: its part of a sequence, its wave's heads, and the pages the keys lie in."""

from __future__ import annotations

import attrs

from kinfolk.ir.builder import constant
from kinfolk.ir.ops import arithmetic, convert, lanes, memory
from kinfolk.ir.types import I32, I64
from kinfolk.ir.value import Value
from kinfolk.tile.paging import PageTable, Parts
from kinfolk_mla.decode.geometry import Geometry


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
    max_seqlen_k: Value
    part_out: Value
    part_ml: Value
    num_segments: Value
    segment_pages: Value
    page_shift: Value | None = None


@attrs.frozen(eq=False)
class Work:
    """One segment of a sequence's keys and, of its query, the heads of this wave.

    The segment has `length` keys, its first on page `first_page` of the sequence; where there is one segment, it is the
    sequence. `token` is the row of the query, `first_head` the wave's first head. Offsets that fall make a sequence
    without keys, or without a query; so does a row that the query does not have. No sequence has more than
    `max_seqlen_k` keys, so that no slot past its row of the page table is read, whatever the offsets are.
    """

    arguments: Arguments
    geometry: Geometry
    sequence: Value
    token: Value
    has_query: Value
    segment: Value
    first_page: Value
    length: Value
    wave: Value
    first_head: Value

    @classmethod
    def of(cls, arguments: Arguments, geometry: Geometry) -> Work:
        """Read the sequence's offsets."""
        sequence = lanes.block_id(axis=1)
        token, next_token = offsets_of(arguments.cu_seqlens_q, sequence)
        first_key, next_key = offsets_of(arguments.cu_seqlens_k, sequence)
        wave = lanes.wave_id()
        length = keys_between(first_key, next_key, arguments.max_seqlen_k)
        spec = geometry.spec
        segment = lanes.block_id(axis=2)
        first_page, length = _segment_of(length, segment, arguments.segment_pages, spec.page_size)
        member = wave % spec.head_waves if spec.key_groups > 1 else wave
        group = lanes.block_id(axis=0, below=spec.workgroups_per_query)
        first_head = (group * spec.head_waves + member) * spec.heads_per_wave
        has_query = query_exists(token, next_token, arguments.total_q)
        return cls(arguments, geometry, sequence, token, has_query, segment, first_page, length, wave, first_head)

    @property
    def group(self) -> Value:
        """This wave's group; the groups of a workgroup take turns at the tiles."""
        return self.wave // self.geometry.spec.head_waves

    @property
    def member(self) -> Value:
        """This wave's place in its group."""
        spec = self.geometry.spec
        return self.wave % spec.head_waves if spec.key_groups > 1 else self.wave

    @property
    def wave_has_heads(self) -> Value:
        """Whether this wave's heads exist; one that has none stages keys and joins barriers only."""
        return self.first_head < self.geometry.spec.num_heads

    @property
    def is_split(self) -> Value:
        """Whether other workgroups have other keys of the sequence, so that another kernel has the last word."""
        return self.arguments.num_segments > 1

    @property
    def stores_rows(self) -> Value:
        """Whether this wave has the last word on its heads: they exist, and no other group merges them."""
        own = self.wave_has_heads
        return own & self.group.eq(0) if self.geometry.spec.key_groups > 1 else own

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

    def rows_of_token(self, tensor: Value, width: int) -> Value:
        """Return a view of the token's rows [num_heads, width] of a tensor [tokens, num_heads, width].

        It is asked for where the sequence has a query.
        """
        return self._rows(tensor, convert.sext(self.token, to=I64), width)

    def rows_of_query(self, width: int) -> Value:
        """Return a view of the query's rows [num_heads, width]: of none where the sequence has no query."""
        elements = self.geometry.spec.num_heads * width
        count = arithmetic.select(self.has_query, constant(elements, I32), constant(0, I32))
        first = convert.sext(self.token, to=I64) * elements
        return memory.bound(memory.offset(self.arguments.qa, first), count)

    def rows_of_segment(self, tensor: Value, width: int) -> Value:
        """Return a view of the segment's rows of a tensor [tokens, segments, num_heads, width]."""
        token, segments, segment = (
            convert.sext(each, to=I64) for each in (self.token, self.arguments.num_segments, self.segment)
        )
        return self._rows(tensor, token * segments + segment, width)

    def _rows(self, tensor: Value, number: Value, width: int) -> Value:
        elements = self.geometry.spec.num_heads * width
        return memory.bound(memory.offset(tensor, number * elements), constant(elements, I32))


def _segment_of(length: Value, segment: Value, segment_pages: Value, page_size: int) -> tuple[Value, Value]:
    """Return a segment's first page, and how many of a sequence's `length` keys it has.

    Pages are counted before keys, so that no product leaves 32 bits: there are no more of them than the sequence has.
    """
    pages = (length + (page_size - 1)) // page_size
    before = convert.sext(segment, to=I64) * convert.sext(segment_pages, to=I64)
    first = convert.trunc(arithmetic.smin(before, convert.sext(pages, to=I64)), to=I32)
    left = arithmetic.smax(length - first * page_size, constant(0, I32))
    return first, arithmetic.smin(left, segment_pages * page_size)


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


def query_exists(token: Value, next_token: Value, total_q: Value) -> Value:
    """Whether a sequence has a query: its offsets do not fall, and its row is one of the query's."""
    return (next_token > token) & arithmetic.icmp(token, total_q, predicate="ult")
