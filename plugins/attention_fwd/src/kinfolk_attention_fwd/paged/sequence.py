"""Sequences that differ in their queries and keys: the offsets and the length of one, and the pages of its keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from kinfolk.ir.builder import constant
from kinfolk.ir.ops import arithmetic, lanes, memory
from kinfolk.ir.types import I32
from kinfolk.ir.value import Value
from kinfolk_attention_fwd.sequence import rows_between, wide

if TYPE_CHECKING:
    from kinfolk_attention_fwd.paged.kernel import PagedArguments


@attrs.frozen(eq=False)
class PackedSequence:
    """Sequence `number`, as `kinfolk_attention_fwd.sequence.Sequence`: its queries are the rows from `first` on.

    None has more than `max_seqlen_q` of them or `max_seqlen_k` keys, or fewer than none, whatever the tensors hold.
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
        first, queries = rows_between(arguments.cu_seqlens_q, number, arguments.total_q, arguments.max_seqlen_q)
        used = memory.load(memory.offset(arguments.seqused_k, number), invariant=True)
        length = arithmetic.smin(arithmetic.smax(used, zero), arguments.max_seqlen_k)
        return cls(arguments, number, first, queries, length)

    def first_query(self) -> Value:
        """As `Sequence` says."""
        return wide(self.first)

    def first_sum(self, head: Value) -> Value:
        """As `Sequence` says."""
        return wide(head) * wide(self.arguments.total_q) + wide(self.first)
