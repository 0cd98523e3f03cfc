"""Rows on their way from global memory to a tile, in parts that a workgroup's threads share evenly."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Many
from typing import Final

import attrs

from kinfolk.ir.ops import lanes
from kinfolk.ir.value import Value
from kinfolk.tile.attention.frame import Frame
from kinfolk.tile.staging import Staging
from kinfolk.tile.timeline import Job
from kinfolk.tile.workgroup_tile import WorkgroupTile

STAGED, READ = "staged", "read"
"""The alias scopes: what is being staged is never what is being read."""


PART: Final = 64
"""Columns that are staged together, or twice as many, and so on."""
Rows = Value | Callable[[], Value]
"""A view of rows in global memory, or what makes it when the first job needs it."""


@attrs.frozen(eq=False)
class Strided:
    """Rows `pitch` elements apart of which the first begins at `column` (i32): those of one head of several. With
    `parted` a wave takes all that it does of a tile from as small a part of it as its share.
    """

    pitch: Value
    column: Value
    parted: bool = False


def kept_columns(columns: int) -> int:
    """Return how many columns of a tile there is memory for: what a workgroup's threads share in whole vectors."""
    return -(-columns // PART) * PART


def made(rows: Rows) -> Callable[[], Value]:
    """Return what gives a view of rows, made once."""
    views: list[Value] = []

    def view() -> Value:
        if not views:
            views.append(rows if isinstance(rows, Value) else rows())
        return views[0]

    return view


def moved(source: Value, first: Value | None) -> Value:
    """Return a place, `first` elements further where that is not None."""
    return source if first is None else source + first


@attrs.frozen(eq=False)
class Carried:
    """A vector that a thread carries: of which `row` of a tile (i32), from which `column` (i32) on, `width` wide."""

    row: Value
    column: Value
    width: int


@attrs.frozen(eq=False)
class RowColumns:
    """How a workgroup carries rows of `width` columns to a tile with room for `kept_columns`: in parts that its threads
    share evenly, each with where this thread's first vector lies in global memory, and where in the tile.
    """

    width: int
    parts: tuple[Staging, ...]
    sources: tuple[Value, ...]
    targets: tuple[Value, ...]
    rows: Strided | None

    @classmethod
    def of(cls, frame: Frame, tile: WorkgroupTile, tile_keys: int, width: int, rows: Strided | None) -> RowColumns:
        """Part the columns, the widest part first; rows in global memory are contiguous, or as `rows` says."""
        parts: list[Staging] = []
        sources: list[Value] = []
        targets: list[Value] = []
        first, kept = 0, kept_columns(width)
        while first < kept:
            columns = 1 << (kept - first).bit_length() - 1
            staging = Staging.of(
                tile,
                rows=tile_keys,
                first_column=first,
                columns=columns,
                threads=frame.threads,
                wave_size=frame.wave_size,
                max_width=frame.vector,
            )
            source = staging.source(lanes.wave_id(), lanes.lane_id())
            targets.append(staging.target(source))
            if rows is not None:
                source = staging.source_in(source, rows.pitch, width - first) + rows.column
                source = source + first if first else source
            parts.append(staging)
            sources.append(source)
            first += columns
        return cls(width, tuple(parts), tuple(sources), tuple(targets), rows)

    @property
    def pieces(self) -> int:
        """How many vectors of a tile this thread carries."""
        return sum(part.pieces for part in self.parts)

    def _order(self) -> list[tuple[int, int]]:
        return [(number, piece) for number, part in enumerate(self.parts) for piece in range(part.pieces)]

    def carried(self) -> list[Carried]:
        """Return the vectors of a tile that this thread carries, in the order of loads and stores."""
        found: list[Carried] = []
        begins = [sum(part.columns for part in self.parts[:number]) for number in range(len(self.parts))]
        for number, piece in self._order():
            part = self.parts[number]
            source = part.source(lanes.wave_id(), lanes.lane_id())
            row, column = divmod(piece * part.wave_size * part.width, part.columns)
            place = source % part.columns + (begins[number] + column)
            found.append(Carried(source // part.columns + row, place, part.width))
        return found

    def loads(self, view: Rows, first: Value | None, loaded: list[Value]) -> list[Job]:
        """Return the jobs that issue this thread's loads of the tile whose first element is `first`, as `Values`."""
        rows, pitch = made(view), None if self.rows is None else self.rows.pitch

        def load(number: int, piece: int) -> Job:
            part, source = self.parts[number], self.sources[number]
            return lambda: loaded.append(part.load_piece(rows(), moved(source, first), piece, pitch))

        return [load(*each) for each in self._order()]

    def stores(self, slot: Value, loaded: Many[Value]) -> list[Job]:
        """Return the jobs that write what was loaded to a slot."""

        def store(index: int, number: int, piece: int) -> Job:
            part, target = self.parts[number], self.targets[number]
            return lambda: part.store_piece(target + slot, piece, loaded[index], scope=STAGED)

        return [store(index, *each) for index, each in enumerate(self._order())]
