"""Sequences that follow each other: all of as many queries and keys, or each of those between its offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from kinfolk.ir.value import Value
from kinfolk.tile.state import branch
from kinfolk_attention_fwd.sequence import rows_between, wide

if TYPE_CHECKING:
    from kinfolk_attention_fwd.dense.kernel import DenseArguments


@attrs.frozen(eq=False)
class Rows:
    """`count` (i32) rows of a tensor, from `first` (i64) on among those of all sequences."""

    first: Value
    count: Value

    @classmethod
    def alike(cls, number: Value, count: Value) -> Rows:
        """Return those of sequence `number` where each has `count`."""
        return cls(wide(number) * wide(count), count)

    @classmethod
    def between(cls, offsets: Value, number: Value, total: Value, most: Value) -> Rows:
        """Return those between two of `offsets`, as `rows_between` says."""
        first, count = rows_between(offsets, number, total, most)
        return cls(wide(first), count)


@attrs.frozen(eq=False)
class RowSequence:
    """A sequence, as `kinfolk_attention_fwd.sequence.Sequence`, by the rows of its queries and of its keys."""

    arguments: DenseArguments
    query_rows: Rows
    key_rows: Rows

    @classmethod
    def of(cls, arguments: DenseArguments, number: Value) -> RowSequence:
        """Find the rows of a sequence."""

        def alike() -> list[Rows]:
            return [Rows.alike(number, most) for most in (arguments.max_seqlen_q, arguments.max_seqlen_k)]

        def between() -> list[Rows]:
            return [
                Rows.between(arguments.cu_seqlens_q, number, arguments.total_q, arguments.max_seqlen_q),
                Rows.between(arguments.cu_seqlens_k, number, arguments.total_k, arguments.max_seqlen_k),
            ]

        return cls(arguments, *branch(arguments.varlen.eq(1), between, alike))

    @property
    def queries(self) -> Value:
        """As `Sequence` says."""
        return self.query_rows.count

    @property
    def length(self) -> Value:
        """As `Sequence` says."""
        return self.key_rows.count

    def first_query(self) -> Value:
        """As `Sequence` says."""
        return self.query_rows.first

    def first_sum(self, head: Value) -> Value:
        """As `Sequence` says."""
        before = self.query_rows.first * wide(self.arguments.lse_heads)
        return before + wide(head) * wide(self.arguments.lse_row)

    def first_key(self) -> Value:
        """Return the number (i64) of its first key among those of all sequences."""
        return self.key_rows.first
