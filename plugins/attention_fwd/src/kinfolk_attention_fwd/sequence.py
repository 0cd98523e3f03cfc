"""The sequence that a workgroup works on, as the stages of a kernel ask for it, wherever its rows lie."""

from __future__ import annotations

from typing import Protocol

from kinfolk.ir.ops import convert
from kinfolk.ir.types import I64
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
