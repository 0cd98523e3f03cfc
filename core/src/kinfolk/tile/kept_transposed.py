"""Rows of global memory kept transposed in workgroup memory, as the A operand of a matrix atom reads them.

Each thread loads a block of a few rows and as many columns, transposes it in registers and writes columns; so what all
waves read is transposed once, and a lane reads the k of several steps at once.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np

from kinfolk.errors import IRError
from kinfolk.ir.meaning import Matrix
from kinfolk.ir.ops import lanes, memory, vector
from kinfolk.ir.types import ScalarType
from kinfolk.ir.value import Value
from kinfolk.tile.lane_index import lane_index
from kinfolk.tile.layout import Table, per_lane
from kinfolk.tile.staging import within
from kinfolk.tile.transpose import transpose_16_bit
from kinfolk.tile.transposed import ColumnOrder, column_order
from kinfolk.tile.widen import widened
from kinfolk.tile.workgroup_tile import WorkgroupTile


@attrs.frozen(eq=False)
class KeptTransposed:
    """A ring of tiles, source columns as rows; the k of a lane and of `steps_per_read` steps lie side by side.

    Fragment j of a window of `side_by_side` fragments holds, as row m of A, source column `side_by_side * m + j`, which
    is row `j * atom.m + m` of the window. The first `fragments` are read. `sources` and `targets` [pieces, threads] are
    where a thread's blocks begin, in the source rows and in the tile.
    """

    tile: WorkgroupTile
    atom: Matrix
    rows: int
    columns: int
    fragments: int
    side_by_side: int
    steps_per_read: int
    reads: int
    start: Table
    sources: Table
    targets: Table

    @classmethod
    def of(
        cls,
        element: ScalarType,
        atom: Matrix,
        *,
        steps: Sequence[Table],
        columns: int,
        slots: int,
        threads: int,
        vector_width: int,
        padding: int,
        used: int | None = None,
        together: int | None = None,
    ) -> KeptTransposed:
        """Reserve `slots` tiles, `padding` unused elements after each row, for steps whose k are the source rows
        `steps`; proved from the lane map to hold each source element once. Of the columns the first `used` are read.
        All blocks of `together` threads follow each other, where that is given; else those of all threads do at a time.

        Raises IRError where lanes do not hold neighbouring rows, or threads do not share the blocks evenly.
        """
        width, rows = atom.a.slots, len(steps) * atom.k
        held = [_neighbours(step[atom.a.columns], atom) for step in steps]
        used = columns if used is None else used
        beside = next((each for each in range(width, 0, -1) if not (width % each or used % (atom.m * each))), 0)
        if vector_width % width or len(steps) % (vector_width // width) or not beside or columns % (atom.m * beside):
            raise IRError(
                f"{len(steps)} steps over {columns} columns do not fill reads of {vector_width} elements, nor windows"
            )
        per_read = vector_width // width
        places, begin = _places(held, per_read, width, rows)
        pitch = rows + padding
        tile = WorkgroupTile.allocate(element, slots * columns, rows, padding)
        start = per_lane(atom.a.rows, "the row of A") * pitch + begin
        groups, blocks = columns // width, rows // width * (columns // width)
        if blocks % threads or threads % groups:
            raise IRError(f"{threads} threads do not share {blocks} blocks of {width} by {width} elements evenly")
        number = np.arange(blocks).reshape(-1, threads)
        if together is not None:
            apart = number.reshape(threads // together, -1, together).swapaxes(0, 1)
            number = apart.reshape(-1, threads)
        group, row = number % groups, number // groups * width
        each = width // beside  # rows of a fragment that a block has
        window, place = group // (atom.m // each), group % (atom.m // each)
        sources = np.argsort(places)[row] * columns + group * width
        targets = (window * atom.m * beside + place * each) * pitch + row
        reads = used // atom.m * (len(steps) // per_read)
        return cls(tile, atom, rows, columns, used // atom.m, beside, per_read, reads, start, sources, targets)

    @property
    def width(self) -> int:
        """How many rows and columns a block has."""
        return self.atom.a.slots

    @property
    def elements(self) -> int:
        """How far apart the tiles of the ring begin."""
        return self.columns * self.tile.pitch

    @property
    def pieces(self) -> int:
        """How many blocks each thread carries."""
        return len(self.sources)

    def source(self) -> Value:
        """Return the element index of this thread's first block among the source rows."""
        return lane_index(self.sources[0], lanes.thread_id())

    def source_in(self, pitch: Value, width: int) -> Value:
        """Return the same among rows that are `pitch` elements (i32) apart; of columns from `width` on there are none:
        they read as 0 from any view.
        """
        rows, columns = np.divmod(self.sources[0], self.columns)
        column = lane_index(columns, lanes.thread_id())
        place = lane_index(rows, lanes.thread_id()) * pitch + column
        return place if width >= self.columns else within(column, width, place)

    def first_place(self) -> tuple[Value, Value]:
        """Return the source row and column of this thread's first block."""
        rows, columns = np.divmod(self.sources[0], self.columns)
        return lane_index(rows, lanes.thread_id()), lane_index(columns, lanes.thread_id())

    def apart(self, piece: int, row: int) -> tuple[int, int]:
        """Return how many source rows and columns further a row of a block begins than the first of the first block."""
        return divmod(_apart(self.sources, piece) + row * self.columns, self.columns)

    def target(self) -> Value:
        """Return the element index of this thread's first block in a tile."""
        return lane_index(self.targets[0], lanes.thread_id())

    def load(self, view: Value, source: Value, piece: int, row: int, pitch: Value | None = None) -> Value:
        """Issue the load of one row of a block; with `pitch`, `source` is as `source_in` says."""
        place = _apart(self.sources, piece) + row * self.columns
        if pitch is not None and place:
            below, column = divmod(place, self.columns)
            source = source + pitch * below if below else source
            return memory.view_load(view, source + column if column else source, count=self.width)
        return memory.view_load(view, source + place if place else source, count=self.width)

    def columns_of(self, rows: Sequence[Value]) -> list[Value]:
        """Return the columns of a block."""
        return transpose_16_bit([widened(row, self.tile.element) for row in rows])

    def store(self, target: Value, piece: int, column: int, value: Value, scope: str = "") -> None:
        """Write one column of a block."""
        memory.workgroup_store(
            self.tile.buffer,
            target,
            value,
            offset=_apart(self.targets, piece) + self._row_of(column) * self.tile.pitch,
            alignment=self.width * self.tile.element.bytes,
            scope=scope,
        )

    def _row_of(self, column: int) -> int:
        """Return in which row of the tile, from its first, a column of a block is."""
        row, fragment = divmod(column, self.side_by_side)
        return fragment * self.atom.m + row

    def address(self) -> Value:
        """Return the element index at which this lane starts to read."""
        return lane_index(self.start)

    def steps_of(self, number: int) -> tuple[int, range]:
        """Return the fragment and the steps that read `number` is for; reads go through the fragments first."""
        group, fragment = divmod(number, self.fragments)
        first = group * self.steps_per_read
        return fragment, range(first, first + self.steps_per_read)

    def read(self, address: Value, number: int, scope: str = "") -> Value:
        """Read what one fragment takes of some steps."""
        fragment, steps = self.steps_of(number)
        count = self.steps_per_read * self.width
        row, column = fragment * self.atom.m, steps[0] * self.atom.k
        return self.tile.load(address, count, row=row, column=column, scope=scope)

    def operands(self, value: Value) -> list[Value]:
        """Return the A operands of the steps of a read."""
        return [vector.slice_(value, step * self.width, self.width) for step in range(self.steps_per_read)]

    def columns_of_result(self) -> ColumnOrder:
        """As `TransposedOperand.columns_of_result`."""
        beside, rows = self.side_by_side, self.atom.c.rows
        columns = [
            number // beside * (self.atom.m * beside) + beside * rows + number % beside
            for number in range(self.fragments)
        ]
        return column_order(np.stack(columns, axis=-1), self.atom)


def _neighbours(held: Table, atom: Matrix) -> Table:
    """Return the first row a lane holds of rows [wave_size, slots]; they follow each other, the first a multiple."""
    slots = atom.a.slots
    if not np.array_equal(held, held[:, :1] + np.arange(slots)) or (held[:, 0] % slots).any():
        raise IRError(f"the lanes of {atom.m}x{atom.n}x{atom.k} do not hold neighbouring rows of the tile")
    return held[:, 0]


def _places(held: Sequence[Table], together: int, width: int, rows: int) -> tuple[Table, Table]:
    """Return the place of each row in a tile's row, and where each lane begins in that of the first read.

    What a lane holds of `together` steps lies side by side; a later read begins as many rows further on all lanes.
    """
    places = np.full(rows, -1)
    begins: list[Table] = []
    end = 0
    for first in range(0, len(held), together):
        group = np.stack(held[first : first + together], axis=1)
        distinct, number = np.unique(group, axis=0, return_inverse=True)
        begin = end + number.reshape(-1) * together * width
        for step in range(together):
            for slot in range(width):
                places[group[:, step] + slot] = begin + step * width + slot
        begins.append(begin)
        end += len(distinct) * together * width
    alike = all((begin - begins[0] == number * (rows // len(begins))).all() for number, begin in enumerate(begins))
    if end != rows or not alike or sorted(places.tolist()) != list(range(rows)):
        raise IRError(f"the lanes hold {end} rows of {rows}, or not those of every read alike")
    return places, begins[0]


def _apart(table: Table, piece: int) -> int:
    """Return how far piece `piece` lies from the first, equal on all threads."""
    apart = table[piece] - table[0]
    if (apart != apart[0]).any():
        raise IRError("the blocks of a thread do not lie alike on all threads")
    return int(apart[0])
