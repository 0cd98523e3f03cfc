"""The sequence that a workgroup works on, as the stages of a kernel ask for it, wherever its rows lie."""

from __future__ import annotations

from typing import Protocol

from kinfolk.ir.builder import constant
from kinfolk.ir.ops import arithmetic, convert, memory
from kinfolk.ir.types import I32, I64
from kinfolk.ir.value import Value


class Sequence(Protocol):
    """How many queries and keys it has (i32), and which rows of the tensors they are; all are equal on all lanes."""

    @property
    def queries(self) -> Value: ...
    @property
    def length(self) -> Value:
        """How many keys it has."""
        ...

    def first_query(self) -> Value:
        """Return the number (i64) of its first query among those of all sequences."""
        ...

    def first_sum(self, head: Value) -> Value:
        """Return where (i64) in `lse` those of its queries begin for a head."""
        ...


def wide(number: Value) -> Value:
    """Return a number in 64 bits."""
    return convert.sext(number, to=I64)


def rows_between(offsets: Value, number: Value, total: Value, most: Value) -> tuple[Value, Value]:
    """Return the first row of sequence `number` and how many it has (i32), between two of `offsets`.

    Offsets that fall, or name rows past the last of all, `total`, make a sequence without rows; none has more than
    `most`, or fewer than none, whatever the tensor holds.
    """
    zero = constant(0, I32)
    begin, end = (memory.load(memory.offset(offsets, place), invariant=True) for place in (number, number + 1))
    exist = (begin >= 0) & (end <= total)
    count = arithmetic.sub(arithmetic.smax(end, begin), begin)
    count = arithmetic.smin(arithmetic.smax(count, zero), most)
    rows = arithmetic.select(exist, count, zero)
    return arithmetic.smin(arithmetic.smax(begin, zero), total), rows
