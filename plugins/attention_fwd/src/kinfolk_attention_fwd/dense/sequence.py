"""Sequences that follow each other, all of as many queries and keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from kinfolk.ir.ops import lanes
from kinfolk.ir.value import Value
from kinfolk_attention_fwd.sequence import wide

if TYPE_CHECKING:
    from kinfolk_attention_fwd.dense.kernel import DenseArguments


@attrs.frozen(eq=False)
class RowSequence:
    """Sequence `number`, as `kinfolk_attention_fwd.sequence.Sequence`: where its rows lie follows from that."""

    arguments: DenseArguments
    number: Value

    @classmethod
    def of(cls, arguments: DenseArguments) -> RowSequence:
        """Find the workgroup's: the grid's third axis."""
        return cls(arguments, lanes.block_id(axis=2))

    @property
    def queries(self) -> Value:
        """As `Sequence` says."""
        return self.arguments.seqlen_q

    @property
    def length(self) -> Value:
        """As `Sequence` says."""
        return self.arguments.seqlen_k

    def first_query(self) -> Value:
        """As `Sequence` says."""
        return wide(self.number) * wide(self.arguments.seqlen_q)

    def first_sum(self, head: Value) -> Value:
        """As `Sequence` says."""
        row = wide(self.number) * wide(self.arguments.num_heads) + wide(head)
        return row * wide(self.arguments.seqlen_q)

    def first_key(self) -> Value:
        """Return the number (i64) of its first key among those of all sequences."""
        return wide(self.number) * wide(self.arguments.seqlen_k)
