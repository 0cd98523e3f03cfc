"""Sequences that differ in their queries and keys: the offsets and the length of one, and the pages of its keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from kinfolk.ir.builder import constant
from kinfolk.ir.ops import arithmetic, lanes, memory
from kinfolk.ir.types import I32
from kinfolk.ir.value import Value
from kinfolk_attention_fwd.sequence import wide

if TYPE_CHECKING:
    from kinfolk_attention_fwd.paged.kernel import PagedArguments


@attrs.frozen(eq=False)
class PackedSequence:
    """Sequence `number`, as `kinfolk_attention_fwd.sequence.Sequence`: its queries are the rows from `first` on.

    Offsets that fall, or name rows that the query does not have, make a sequence without queries; none has more than
    `max_seqlen_q` of them, or more than `max_seqlen_k` keys, or fewer than none, whatever the tensors hold.
    """

    arguments: PagedArguments
    number: Value
    first: Value
    queries: Value
    length: Value

    @classmethod
    def of(cls, arguments: PagedArguments) -> PackedSequence:
        """Read the workgroup's: the grid's third axis."""
        number, zero = lanes.block_id(axis=2), constant(0, I32)
        token, end = (
            memory.load(memory.offset(arguments.cu_seqlens_q, place), invariant=True) for place in (number, number + 1)
        )
        exist = (token >= 0) & (end <= arguments.total_q)
        count = arithmetic.sub(arithmetic.smax(end, token), token)
        count = arithmetic.smin(arithmetic.smax(count, zero), arguments.max_seqlen_q)
        queries = arithmetic.select(exist, count, zero)
        first = arithmetic.smin(arithmetic.smax(token, zero), arguments.total_q)
        used = memory.load(memory.offset(arguments.seqused_k, number), invariant=True)
        length = arithmetic.smin(arithmetic.smax(used, zero), arguments.max_seqlen_k)
        return cls(arguments, number, first, queries, length)

    def first_query(self) -> Value:
        """As `Sequence` says."""
        return wide(self.first)

    def first_sum(self, head: Value) -> Value:
        """As `Sequence` says."""
        return wide(head) * wide(self.arguments.total_q) + wide(self.first)
