"""Which work a workgroup does, and in what order: blocks of queries of heads and sequences.

Of a sequence the last blocks, which see the most keys, come first. What follows each other are query heads that read
different heads of keys: where workgroups go to dies in turn, and heads of keys are a multiple of these, a die reads few
heads of keys, once for all that read them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from kinfolk.ir.builder import constant
from kinfolk.ir.ops import arithmetic, lanes
from kinfolk.ir.types import I32
from kinfolk.ir.value import Value
from kinfolk.tile.paging import bounded
from kinfolk_attention_fwd.queries import Work

if TYPE_CHECKING:
    from kinfolk_attention_fwd.dense.kernel import DenseArguments
    from kinfolk_attention_fwd.dense.spec import AttentionDenseSpec


@attrs.frozen(eq=False)
class Item:
    """Work by the digits of its number, or a number of items so written (i32). The first digit changes from one item to
    the next: a head of keys; then a query head of those that read it, a block from the last one on, and a sequence.
    """

    kv_head: Value
    reader: Value
    block: Value
    sequence: Value

    @classmethod
    def of_grid(cls, spec: AttentionDenseSpec, arguments: DenseArguments) -> Item:
        """Return that of a workgroup of a grid of heads, blocks and sequences."""
        block = lanes.block_id(axis=1, below=spec.most_rows // spec.block)
        head = lanes.block_id(axis=0, below=spec.most_heads)
        kv_heads = arguments.num_kv_heads
        return cls(head % kv_heads, head // kv_heads, block, lanes.block_id(axis=2))

    @classmethod
    def of(cls, number: Value, arguments: DenseArguments) -> Item:
        """Return the digits of a number."""
        kv_heads, readers, blocks = _bases(arguments)
        rest = number // kv_heads
        return cls(number % kv_heads, rest % readers, rest // readers % blocks, rest // readers // blocks)

    def later(self, step: Item, spec: AttentionDenseSpec, arguments: DenseArguments) -> Item:
        """Return the item so many later: a sum digit by digit, since a loop is not to divide."""
        carry = constant(0, I32)
        digits: list[Value] = []
        own, more = (self.kv_head, self.reader, self.block), (step.kv_head, step.reader, step.block)
        most = (spec.most_heads, spec.most_heads, spec.most_rows // spec.block)
        for digit, added, base, below in zip(own, more, _bases(arguments), most, strict=True):
            whole = digit + added + carry
            over = whole >= base
            digits.append(bounded(arithmetic.select(over, whole - base, whole), below - 1))
            carry = arithmetic.select(over, constant(1, I32), constant(0, I32))
        kv_head, reader, block = digits
        return Item(kv_head, reader, block, bounded(self.sequence + step.sequence + carry, spec.most_sequences))

    def work(self, spec: AttentionDenseSpec, arguments: DenseArguments) -> Work:
        """Return the work of an item; of one behind the last sequence, something that exists."""
        head = bounded(self.kv_head * arguments.heads_per_kv + self.reader, spec.most_heads - 1)
        sequence = self.sequence
        if arguments.num_seqs is not None:
            sequence = arithmetic.smin(sequence, arguments.num_seqs - 1)
        return Work(head, self.kv_head, sequence, self.block)


def _bases(arguments: DenseArguments) -> tuple[Value, Value, Value]:
    blocks = arithmetic.smax(arguments.query_blocks, constant(1, I32))
    return arguments.num_kv_heads, arguments.heads_per_kv, blocks
