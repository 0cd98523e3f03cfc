"""Rows of a tensor [batch, tokens, heads, columns] as kernels see them: a view that ends with the last row."""

from __future__ import annotations

import attrs

from kinfolk.ir.builder import constant
from kinfolk.ir.ops import arithmetic, convert, lanes, memory
from kinfolk.ir.types import I32, I64
from kinfolk.ir.value import Value
from kinfolk.tile.paging import bounded


def wide(number: Value) -> Value:
    """Return a number in 64 bits."""
    return convert.sext(number, to=I64)


@attrs.frozen(eq=False)
class Tokens:
    """The rows of one sequence: `length` tokens (i32) of `heads` rows each, `width` columns wide; all sequences are
    alike, and the workgroup's is number `sequence`.
    """

    tensor: Value
    sequence: Value
    length: Value
    heads: Value
    width: int

    @property
    def pitch(self) -> Value:
        """How many elements a token has."""
        return self.heads * self.width

    def view(self, first: Value, most: int, head: Value) -> Value:
        """Return a view that begins with token `first` of a head: of the next `most` those that exist. Elements of
        others read as 0, and stores to them vanish.
        """
        begin = arithmetic.smin(first, self.length)
        left = lanes.uniform(bounded(self.length - begin, most))
        token = wide(self.sequence) * wide(self.length) + wide(begin)
        start = token * wide(self.pitch) + wide(head * self.width)
        size = arithmetic.smax(left * self.pitch - head * self.width, constant(0, I32))
        return memory.bound(memory.offset(self.tensor, start), size)


@attrs.frozen(eq=False)
class Terms:
    """What is kept of each row, for all rows of a head one after the other: [batch, heads, rows_kept]."""

    tensor: Value
    sequence: Value
    heads: Value
    rows_kept: Value

    def view(self, first: Value, most: int, head: Value) -> Value:
        """Return a view that begins with row `first` of a head: of the next `most` those that are kept."""
        row = wide(self.sequence) * wide(self.heads) + wide(head)
        begin = arithmetic.smin(first, self.rows_kept)
        start = row * wide(self.rows_kept) + wide(begin)
        return memory.bound(memory.offset(self.tensor, start), lanes.uniform(bounded(self.rows_kept - begin, most)))
