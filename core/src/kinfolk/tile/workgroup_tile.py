"""A matrix in workgroup memory, rows padded so that lanes in a column meet different banks."""

from __future__ import annotations

import attrs

from kinfolk.ir.op import OpDef
from kinfolk.ir.ops import memory
from kinfolk.ir.types import ScalarType
from kinfolk.ir.value import Value


@attrs.frozen(eq=False)
class WorkgroupTile:
    """`rows` by `columns` elements; row r starts at element r * `pitch`. An access may name its alias scope."""

    buffer: Value
    element: ScalarType
    rows: int
    columns: int
    pitch: int

    @classmethod
    def allocate(cls, element: ScalarType, rows: int, columns: int, padding: int) -> WorkgroupTile:
        """Reserve workgroup memory for a tile with `padding` unused elements after each row."""
        pitch = columns + padding
        return cls(memory.allocate(element, rows * pitch), element, rows, columns, pitch)

    def load(self, index: Value, count: int, *, row: int = 0, column: int = 0, scope: str = "") -> Value:
        """Read `count` elements at `index`, moved by whole rows and columns known at build time."""
        return memory.workgroup_load(
            self.buffer,
            index,
            count=count,
            offset=row * self.pitch + column,
            alignment=self._alignment(count, column),
            scope=scope,
        )

    def load_by(self, reader: OpDef, index: Value, *, row: int = 0, column: int = 0, scope: str = "") -> Value:
        """Read by an op of the arch that loads and exchanges, at `index` moved likewise.

        `index`, rows and `column` keep the alignment that the op claims by itself.
        """
        return reader(self.buffer, index, offset=row * self.pitch + column, scope=scope)

    def store(self, index: Value, value: Value, count: int, *, row: int = 0, column: int = 0, scope: str = "") -> None:
        """Write `count` elements at `index`, moved by whole rows and columns known at build time."""
        memory.workgroup_store(
            self.buffer,
            index,
            value,
            offset=row * self.pitch + column,
            alignment=self._alignment(count, column),
            scope=scope,
        )

    def _alignment(self, count: int, column: int) -> int:
        """What rows and `column` keep of the alignment of an access at a multiple of `count` elements, 16 at most."""
        starts = (count | self.pitch | column) * self.element.bytes
        return min(starts & -starts, 16)
