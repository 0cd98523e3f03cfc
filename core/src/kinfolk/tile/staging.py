"""Rows on their way from global to workgroup memory: loaded into registers ahead of time, written when the tile is
free, in the type of the tile.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import attrs

from kinfolk.errors import IRError
from kinfolk.ir.builder import constant
from kinfolk.ir.ops import arithmetic, memory
from kinfolk.ir.types import I32
from kinfolk.ir.value import Value
from kinfolk.tile.widen import widened
from kinfolk.tile.workgroup_tile import WorkgroupTile

FAR: Final = 2**29
"""An index past the end of every view of fewer elements, also with the rows of a tile added."""


@attrs.frozen(eq=False)
class Staging:
    """How a workgroup carries rows of `columns` elements, contiguous in global memory or some pitch apart, to
    `first_column` on of a tile.

    Each thread takes `pieces` vectors of `width`; the vectors of a wave are neighbours, so that loads are coalesced,
    and at once they are whole rows or an even part of one, so that a thread's pieces lie known rows and columns apart.
    Rows of shorter floats than the tile's are widened when they are written, and take the registers of their own type
    until then.
    """

    tile: WorkgroupTile
    first_column: int
    columns: int
    width: int
    pieces: int
    wave_size: int

    @classmethod
    def of(
        cls,
        tile: WorkgroupTile,
        *,
        rows: int,
        first_column: int,
        columns: int,
        threads: int,
        wave_size: int,
        max_width: int,
    ) -> Staging:
        """Return the widest staging in which each thread takes the same number of vectors."""
        total = rows * columns
        width = max_width
        while width > 1 and (total % (threads * width) or columns % width):
            width //= 2
        pieces, rest = divmod(total, threads * width)
        if rest or columns % width:
            raise IRError(f"{rows} rows of {columns} elements do not spread evenly over {threads} threads")
        step = wave_size * width  # of a wave at once; all its pieces are whole rows, or lie within one
        if pieces > 1 and step % columns and (columns % step or not _divides(pieces * step, columns)):
            raise IRError(
                f"a wave's {wave_size} vectors of {width} are no whole number of rows of {columns}, nor are its "
                f"{pieces} times as many, or parts of a row"
            )
        return cls(tile, first_column, columns, width, pieces, wave_size)

    def source(self, wave: Value, lane: Value) -> Value:
        """Return the element index of a thread's first vector among the rows in global memory."""
        return wave * (self.pieces * self.wave_size * self.width) + lane * self.width

    def source_in(self, source: Value, pitch: Value, width: int) -> Value:
        """Return where the vector at `source` lies among rows that are `pitch` elements (i32) apart; of columns from
        `width` on there are none: they read as 0 from any view.
        """
        column = source % self.columns
        place = source // self.columns * pitch + column
        return place if width >= self.columns else within(column, width, place)

    def target(self, source: Value) -> Value:
        """Return the element index in the tile of the vector at `source`."""
        return source // self.columns * self.tile.pitch + source % self.columns

    def load(self, view: Value, source: Value) -> list[Value]:
        """Issue this thread's loads from a view of the rows."""
        return [self.load_piece(view, source, piece) for piece in range(self.pieces)]

    def load_piece(self, view: Value, source: Value, piece: int, pitch: Value | None = None) -> Value:
        """Issue the load of one of this thread's vectors; with `pitch`, `source` is as `source_in` says."""
        step = piece * self.wave_size * self.width
        if pitch is not None and piece:
            row, column = divmod(step, self.columns)
            source = source + pitch * row if row else source
            return memory.view_load(view, source + column if column else source, count=self.width)
        return memory.view_load(view, source + step if piece else source, count=self.width)

    def store(self, target: Value, pieces: Sequence[Value]) -> None:
        """Write this thread's vectors to the tile."""
        for number, value in enumerate(pieces):
            self.store_piece(target, number, value)

    def store_piece(self, target: Value, piece: int, value: Value, scope: str = "") -> None:
        """Write one of this thread's vectors to the tile."""
        row, column = divmod(piece * self.wave_size * self.width, self.columns)
        wide = widened(value, self.tile.element)
        self.tile.store(target, wide, self.width, row=row, column=self.first_column + column, scope=scope)


def within(column: Value, width: int, place: Value) -> Value:
    """Return `place` for columns below `width`, and for others one past any view of fewer than `FAR` elements."""
    return arithmetic.select(column < width, place, constant(FAR, I32))


def _divides(a: int, b: int) -> bool:
    """Return whether one of two numbers is a multiple of the other."""
    return a % b == 0 or b % a == 0
