"""A tile in workgroup memory read as the transposed A operand of a matrix atom."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import attrs
import numpy as np
import numpy.typing as npt

from kinfolk.errors import IRError
from kinfolk.ir.builder import op_in_role
from kinfolk.ir.meaning import Matrix, MemoryAccess
from kinfolk.ir.op import OpDef
from kinfolk.ir.types import I32, VectorType
from kinfolk.ir.value import Value
from kinfolk.tile.joining import joined
from kinfolk.tile.lane_index import lane_index
from kinfolk.tile.layout import Table, per_lane
from kinfolk.tile.transpose import transpose_16_bit
from kinfolk.tile.workgroup_tile import WorkgroupTile

ColumnOrder = tuple[Table, tuple[tuple[int, int, int], ...]]
"""Per lane the first column of a window; (columns further, fragment, slot) in column order."""


@attrs.frozen(eq=False)
class TransposedOperand:
    """The tile's rows are k, its columns become the rows of A: a window of `m * width` columns makes `width` fragments.

    Where the arch has an op in the role `transpose_read_16` whose exchange gives A's lane map, `reader` is that op, and
    lanes read where the exchange needs them to: `steps` are the tile rows between the reads of one fragment. The
    fragments of a window take turns by 8 columns, so that the lanes of a read meet different banks. Elsewhere a lane
    reads `width` neighbouring columns from each of its `width` rows and transposes that block in registers, so fragment
    j holds, as row m of A, column `width * m + j` of the window.
    """

    tile: WorkgroupTile
    atom: Matrix
    width: int
    start: Table
    reader: OpDef | None = None
    steps: tuple[int, ...] = ()

    @classmethod
    def of(
        cls, tile: WorkgroupTile, atom: Matrix, *, rows: Table | None = None, side_by_side: int = 1
    ) -> TransposedOperand:
        """Return the operand for a 16-bit atom whose lanes hold neighbouring k of one row; proved from its lane map.

        `rows` is the tile's row of each k, in order where left out. `side_by_side` fragments share a window where the
        arch reads transposed.
        """
        slots = atom.a.slots
        row_of = np.arange(atom.k) if rows is None else rows
        columns = per_lane(atom.a.rows, "the row of A")
        if not np.array_equal(atom.a.columns, atom.a.columns[:, :1] + np.arange(slots)):
            raise IRError(f"the lanes of {atom.m}x{atom.n}x{atom.k} do not hold neighbouring k")
        reader = op_in_role("transpose_read_16")
        taking_turns = _taking_turns(atom.a.rows, side_by_side)
        places = _places_for(reader, tile, row_of[atom.a.columns], taking_turns) if reader is not None else None
        if places is not None:
            return cls(tile, atom, side_by_side, places[0], reader, places[1])
        held = row_of[atom.a.columns]
        if not np.array_equal(held, held[:, :1] + np.arange(slots)):
            raise IRError(f"the lanes of {atom.m}x{atom.n}x{atom.k} do not hold neighbouring rows of the tile")
        return cls(tile, atom, slots, held[:, 0] * tile.pitch + columns * slots)

    @property
    def window(self) -> int:
        """How many columns of the tile a window covers."""
        return self.atom.m * self.width

    @property
    def fragments_per_read(self) -> int:
        """How many fragments one read makes: one where the arch reads transposed, a window's elsewhere."""
        return self.width if self.reader is None else 1

    def address(self, lane: Value | None = None) -> Value:
        """Return the element index at which this lane starts."""
        return lane_index(self.start, lane)

    def read(self, address: Value, number: int, *, row: int = 0, scope: str = "") -> list[Value]:
        """Read what the fragments of read `number` are made of, `row` rows further down the tile."""
        if self.reader is not None:
            window, fragment = divmod(number, self.width)
            column = window * self.window + fragment * _TURN
            return [
                self.tile.load_by(self.reader, address, row=row + step, column=column, scope=scope)
                for step in self.steps
            ]
        column = number * self.window
        return [
            self.tile.load(address, self.width, row=row + each, column=column, scope=scope)
            for each in range(self.width)
        ]

    def fragments(self, rows: Sequence[Value]) -> list[Value]:
        """Return the fragments of A of one read."""
        if self.reader is None:
            return transpose_16_bit(rows)
        return [joined(rows)]

    def columns_of_result(self) -> ColumnOrder:
        """Return where the product's rows lie in a window: per lane the first column, and (columns further, fragment,
        slot) in column order.

        Proved: the lanes hold their columns of the window in one order, each as far from the first as on any other.
        """
        rows = self.atom.c.rows
        fragments = range(self.width)
        if self.reader is None:
            columns = np.stack([self.width * rows + fragment for fragment in fragments], axis=-1)
        else:
            turns = _taking_turns(rows, self.width)
            columns = np.stack([turns + fragment * _TURN for fragment in fragments], axis=-1)
        return column_order(columns, self.atom)


def column_order(columns: npt.NDArray[np.int64], atom: Matrix) -> ColumnOrder:
    """Return the first column of each lane and the order of the others, from [wave_size, slots, fragments] of them.

    Raises IRError where lanes do not hold their columns alike.
    """
    count = columns.shape[2]
    columns = columns.reshape(len(columns), -1)
    first = columns.min(axis=1)
    place = columns - first[:, None]
    if not np.all(place == place[0]) or len(set(place[0].tolist())) != place.shape[1]:
        raise IRError(f"the lanes of {atom.m}x{atom.n}x{atom.k} do not hold the rows of the product alike")
    order = np.argsort(place[0])
    return first, tuple((int(place[0, index]), int(index) % count, int(index) // count) for index in order)


_TURN: Final = 8
"""Columns after which the next fragment of a window has its turn."""


def _taking_turns(rows: Table, fragments: int) -> Table:
    """Return the column of the window for each row of the first of `fragments` operands that take turns."""
    return rows // _TURN * (_TURN * fragments) + rows % _TURN


def _places_for(
    reader: OpDef, tile: WorkgroupTile, tile_rows: Table, tile_columns: Table
) -> tuple[Table, tuple[int, ...]] | None:
    """Return where each lane reads so that the exchange hands out A, and the tile rows from read to read of a fragment.

    `tile_rows` and `tile_columns` [wave_size, slots] say where in the tile each element of A lies.

    Proved by following every element back to the lane that loads it; None where the op does not give this lane map.
    """
    assert isinstance(reader.meaning, MemoryAccess) and reader.meaning.exchange is not None
    defaults = {each.name: each.default for each in reader.attributes}
    (result,) = reader.result((tile.buffer.type, I32), defaults)
    assert isinstance(result, VectorType)
    size, count = tile_rows.shape[0], result.count
    if tile_rows.shape[1] % count:
        return None
    lane, component = np.indices((size, count))
    source = reader.meaning.exchange(size, lane, component)
    firsts: list[tuple[Table, Table]] = []
    for begin in range(0, tile_rows.shape[1], count):
        loaded = np.full((2, size, count), -1)
        loaded[:, source[0], source[1]] = (
            tile_rows[:, begin : begin + count],
            tile_columns[:, begin : begin + count],
        )
        rows, columns = loaded
        neighbours = np.array_equal(columns, columns[:, :1] + np.arange(count))
        if (loaded < 0).any() or not neighbours or not np.array_equal(rows, rows[:, :1] + 0 * rows):
            return None
        firsts.append((rows[:, 0], columns[:, 0]))
    steps = [rows - firsts[0][0] for rows, _ in firsts]
    if any((step != step[0]).any() for step in steps) or any((at != firsts[0][1]).any() for _, at in firsts):
        return None
    return firsts[0][0] * tile.pitch + firsts[0][1], tuple(int(step[0]) for step in steps)
