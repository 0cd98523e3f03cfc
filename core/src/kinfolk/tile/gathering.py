"""Rows that lie anywhere in global memory on their way to workgroup memory: each thread carries part of one row."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from kinfolk.errors import IRError
from kinfolk.ir.builder import constant, current_builder
from kinfolk.ir.ops import memory, vector
from kinfolk.ir.types import I32, PointerType, ScalarType
from kinfolk.ir.value import Value
from kinfolk.tile.widen import widened
from kinfolk.tile.workgroup_tile import WorkgroupTile


@attrs.frozen(eq=False)
class Gathering:
    """How a workgroup carries rows of `columns` elements to `first_column` on of a tile, `sharing` threads a row.

    A thread takes `pieces` vectors of `width`; the vectors of the threads that share a row are neighbours.
    Rows of shorter floats than the tile's are widened when they are written.
    """

    tile: WorkgroupTile
    first_column: int
    columns: int
    width: int
    pieces: int
    sharing: int

    @classmethod
    def of(
        cls, tile: WorkgroupTile, *, rows: int, first_column: int, columns: int, threads: int, max_width: int
    ) -> Gathering:
        """Return the widest vectors with which all threads take as many."""
        sharing, rest = divmod(threads, rows)
        width = max_width
        while sharing and width > 1 and columns % (sharing * width):
            width //= 2
        if rest or not sharing or columns % (sharing * width):
            raise IRError(f"{rows} rows of {columns} elements do not spread evenly over {threads} threads")
        return cls(tile, first_column, columns, width, columns // (sharing * width), sharing)

    def source(self, thread: Value) -> Value:
        """Return the column of a thread's first vector."""
        return thread % self.sharing * self.width

    def target(self, thread: Value) -> Value:
        """Return the element index in the tile of a thread's first vector."""
        return thread // self.sharing * self.tile.pitch + self.source(thread)

    def load(self, row: Value, source: Value) -> list[Value]:
        """Issue a thread's loads from a row, a pointer to its first element, which nothing writes meanwhile."""
        assert isinstance(row.type, PointerType)
        first, step = memory.offset(row, source), self.sharing * self.width
        pointers = [
            memory.offset(first, constant(piece * step, I32)) if piece else first for piece in range(self.pieces)
        ]
        return [
            memory.load(pointer, count=self.width, alignment=self.width * row.type.element.bytes, invariant=True)
            for pointer in pointers
        ]

    def nothing(self, element: ScalarType) -> list[Value]:
        """Return the vectors of a row that is not there: zeros."""
        zero = current_builder().constant_bits(0, element)
        return [zero if self.width == 1 else vector.splat(zero, count=self.width)] * self.pieces

    def store(self, target: Value, pieces: Sequence[Value]) -> None:
        """Write a thread's vectors to the tile."""
        for number, value in enumerate(pieces):
            column = self.first_column + number * self.sharing * self.width
            self.tile.store(target, widened(value, self.tile.element), self.width, column=column)
