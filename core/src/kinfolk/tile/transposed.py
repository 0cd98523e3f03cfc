"""A tile in workgroup memory read as the transposed A operand of a matrix atom."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np

from kinfolk.errors import IRError
from kinfolk.ir.meaning import Matrix
from kinfolk.ir.value import Value
from kinfolk.tile.lane_index import lane_index
from kinfolk.tile.layout import Table, per_lane
from kinfolk.tile.transpose import transpose_16_bit
from kinfolk.tile.workgroup_tile import WorkgroupTile


@attrs.frozen(eq=False)
class TransposedOperand:
    """The tile's rows are k, its columns become the rows of A: a window of `m * width` columns makes `width` fragments.

    A lane reads `width` neighbouring columns from each of its `width` rows and transposes that block in registers, so
    fragment j holds, as row m of A, column `width * m + j` of the window.
    """

    tile: WorkgroupTile
    atom: Matrix
    width: int
    start: Table

    @classmethod
    def of(cls, tile: WorkgroupTile, atom: Matrix) -> TransposedOperand:
        """Return the operand for a 16-bit atom whose lanes hold neighbouring k of one row; proved from its lane map."""
        slots = atom.a.slots
        rows = per_lane(atom.a.rows, "the row of A")
        if not np.array_equal(atom.a.columns, atom.a.columns[:, :1] + np.arange(slots)):
            raise IRError(f"the lanes of {atom.m}x{atom.n}x{atom.k} do not hold neighbouring k")
        return cls(tile, atom, slots, atom.a.columns[:, 0] * tile.pitch + rows * slots)

    @property
    def window(self) -> int:
        """How many columns of the tile one read covers."""
        return self.atom.m * self.width

    def address(self, lane: Value | None = None) -> Value:
        """Return the element index at which this lane starts."""
        return lane_index(self.start, lane)

    def read(self, address: Value, window: int, scope: str = "") -> list[Value]:
        """Read the rows of a window."""
        column = window * self.window
        return [self.tile.load(address, self.width, row=row, column=column, scope=scope) for row in range(self.width)]

    def fragments(self, rows: Sequence[Value]) -> list[Value]:
        """Return the window's fragments of A."""
        return transpose_16_bit(rows)

    def columns_of_result(self) -> tuple[Table, tuple[tuple[int, int], ...]]:
        """Return where the product's rows lie in a window: per lane the first column, and (fragment, slot) in column
        order.

        Proved: over its fragments and slots each lane holds neighbouring columns of the window, in one order for all
        lanes.
        """
        rows = self.atom.c.rows
        columns = (self.width * rows[:, :, None] + np.arange(self.width)).reshape(len(rows), -1)
        first = columns.min(axis=1)
        place = columns - first[:, None]
        if not np.all(place == place[0]) or sorted(place[0]) != list(range(place.shape[1])):
            raise IRError(
                f"the lanes of {self.atom.m}x{self.atom.n}x{self.atom.k} do not hold neighbouring rows of the product"
            )
        order = np.argsort(place[0])
        return first, tuple((int(index) % self.width, int(index) // self.width) for index in order)
