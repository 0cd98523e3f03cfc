"""One row of a matrix as a bounded view of f32 values, whatever it is stored as."""

from __future__ import annotations

import attrs

from kinfolk.ir.ops import arithmetic, convert, memory
from kinfolk.ir.types import F32, I32, I64, ScalarType, element_type
from kinfolk.ir.value import Value

WORD_BYTES = 4


@attrs.frozen(eq=False)
class Row:
    """`columns` elements of a row: reads outside give 0, writes outside vanish.

    A view begins and ends at whole words, a row of 16-bit elements need not: `shift` elements of the first word belong
    to the row before, and what lies outside the row is sent to the end of the view, `size`. Of words there is neither.
    """

    view: Value
    element: ScalarType
    columns: Value
    shift: Value | None = None
    size: Value | None = None

    @classmethod
    def of(cls, matrix: Value, first: Value, columns: Value) -> Row:
        """Return the row that begins at element `first` (i64) of a matrix; both counts are equal on all lanes."""
        element = element_type(matrix.type)
        per_word = WORD_BYTES // element.bytes
        if per_word == 1:
            return cls(memory.bound(memory.offset(matrix, first), columns), element, columns)
        shift = convert.trunc(first & (per_word - 1), to=I32)
        size = (shift + columns + (per_word - 1)) // per_word * per_word
        begin = memory.offset(matrix, first - convert.sext(shift, to=I64))
        return cls(memory.bound(begin, size), element, columns, shift, size)

    def holds(self, column: Value) -> Value:
        """Whether a column, 0 or more, lies in the row."""
        return column < self.columns

    def load(self, column: Value) -> Value:
        """Return an element as f32."""
        value = memory.view_load(self.view, self._index(column))
        return value if self.element == F32 else convert.fpext(value, to=F32)

    def store(self, column: Value, value: Value) -> None:
        """Write an f32, rounded to nearest even."""
        rounded = value if self.element == F32 else convert.fptrunc(value, to=self.element)
        memory.view_store(self.view, self._index(column), rounded)

    def _index(self, column: Value) -> Value:
        if self.shift is None or self.size is None:
            return column
        return arithmetic.select(self.holds(column), column + self.shift, self.size)
