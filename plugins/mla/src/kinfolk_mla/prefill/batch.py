"""What both kernels of prefill know of a sequence: its queries, its keys, and the pages these lie in."""

from __future__ import annotations

from typing import Protocol

import attrs

from kinfolk.ir.builder import constant
from kinfolk.ir.ops import arithmetic, lanes, memory
from kinfolk.ir.types import I32, I64
from kinfolk.ir.value import Value
from kinfolk.tile.paging import PageTable, Parts, bounded
from kinfolk_mla.decode.sequence import keys_between, offsets_of, wide
from kinfolk_mla.prefill.geometry import Geometry


class Paged(Protocol):
    """The parameters of a kernel that reads pages."""

    @property
    def block_table(self) -> Value: ...
    @property
    def block_table_stride(self) -> Value: ...
    @property
    def num_pages(self) -> Value: ...
    @property
    def page_shift(self) -> Value: ...


class Shared(Protocol):
    """The parameters that all kernels have."""

    @property
    def cu_seqlens_q(self) -> Value: ...
    @property
    def cu_seqlens_k(self) -> Value: ...
    @property
    def expanded(self) -> Value: ...
    @property
    def total_q(self) -> Value: ...
    @property
    def max_seqlen_k(self) -> Value: ...
    @property
    def first_head(self) -> Value: ...
    @property
    def group_heads(self) -> Value: ...


@attrs.frozen(eq=False)
class Sequence:
    """Sequence `number`, the third axis of the grid, and the head `place` of the group, its first axis.

    Its queries are the rows from `token` to `next_token`, `length` keys are there. Offsets that fall, or name rows that
    the query does not have, make a sequence without queries, or without keys; none has more than `max_seqlen_k` keys.
    """

    shared: Shared
    geometry: Geometry
    number: Value
    place: Value
    token: Value
    next_token: Value
    has_queries: Value
    length: Value

    @classmethod
    def of(cls, shared: Shared, geometry: Geometry) -> Sequence:
        """Read the sequence's offsets."""
        number, zero = lanes.block_id(axis=2), constant(0, I32)
        place = lanes.block_id(axis=0, below=geometry.spec.most_heads)
        token, next_token = offsets_of(shared.cu_seqlens_q, number)
        first_key, next_key = offsets_of(shared.cu_seqlens_k, number)
        has_queries = (token >= 0) & (next_token <= shared.total_q) & (token < next_token)
        length = keys_between(first_key, next_key, shared.max_seqlen_k)
        row = arithmetic.smin(arithmetic.smax(token, zero), shared.total_q)
        return cls(shared, geometry, number, place, row, next_token, has_queries, length)

    def queries(self) -> Value:
        """Count the queries."""
        count = arithmetic.select(self.has_queries, arithmetic.sub(self.next_token, self.token), constant(0, I32))
        return arithmetic.umin(count, constant(self.geometry.spec.most_keys, I32))

    @property
    def head(self) -> Value:
        """The number of the head."""
        return self.shared.first_head + self.place

    def pages(self, paged: Paged) -> PageTable:
        """Return the page table, in parts of pages."""
        return PageTable.of_sequence(
            paged.block_table,
            paged.block_table_stride,
            self.number,
            length=self.length,
            page_size=self.geometry.spec.part,
            num_pages=paged.num_pages,
            parts=Parts(paged.page_shift),
        )

    @property
    def is_first_head(self) -> Value:
        """Whether the head is number 0."""
        return (self.shared.first_head | self.place).eq(0)

    def shared_rows(self, tensor: Value, width: int, first_key: Value | None = None, count: int = 0) -> Value:
        """Return the rows of all keys, or of up to `count` from `first_key` on, those that exist, of a tensor
        [sequences, max_seqlen_k, width] that all heads share.
        """
        return self._rows(tensor, width, wide(self.number), first_key, count)

    def words(self, present: Value, word_keys: int, keys: Value) -> Value:
        """Return the words of `present` [sequences, words] that say of the sequence's first `keys` keys whether they
        are there, `word_keys` a word.
        """
        row = wide(self.number) * wide((self.shared.max_seqlen_k + (word_keys - 1)) // word_keys)
        return memory.bound(memory.offset(present, row), (keys + (word_keys - 1)) // word_keys)

    def rows(self, half: Value | int, first_key: Value | None = None, count: int = 0) -> Value:
        """Return the expanded rows of all keys, or of up to `count` from `first_key` on, those that exist: of half 0
        keys, of half 1 values.
        """
        head = wide(self.number) * wide(self.shared.group_heads) + wide(self.place)
        half_ = constant(half, I64) if isinstance(half, int) else wide(half)
        return self._rows(self.shared.expanded, self.geometry.spec.head_width, head * 2 + half_, first_key, count)

    def _rows(self, tensor: Value, width: int, number: Value, first_key: Value | None, count: int) -> Value:
        """Return rows as `shared_rows` and `rows`, of what is number `number` (i64) in a tensor."""
        row, left = number * wide(self.shared.max_seqlen_k), self.length
        if first_key is not None:
            row, left = row + wide(first_key), bounded(self.length - first_key, count)
        return memory.bound(memory.offset(tensor, row * width), left * width)
