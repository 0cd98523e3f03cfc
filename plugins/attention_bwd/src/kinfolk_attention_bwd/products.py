"""Products of a tile's rows with the wave's own, as units: one read of a row and its matrix operations."""

from __future__ import annotations

from collections.abc import Sequence as Many

import attrs

from kinfolk.ir.builder import constant
from kinfolk.ir.ops import memory, vector
from kinfolk.ir.types import F32, VectorType
from kinfolk.ir.value import Value
from kinfolk.tile.attention.frame import Frame, store_columns
from kinfolk.tile.attention.rows import READ
from kinfolk.tile.attention.values import Values
from kinfolk.tile.contraction import Contraction
from kinfolk.tile.lane_index import lane_index
from kinfolk.tile.layout import per_lane
from kinfolk.tile.timeline import Read, Use
from kinfolk.tile.workgroup_tile import WorkgroupTile

Own = list[list[list[Value]]]
"""The wave's own rows as operands B: of each block, of each read of a row, those of the atoms that it feeds."""


@attrs.frozen(eq=False)
class RowProducts:
    """Products of rows of a tile, in blocks of an atom's rows, with all blocks of the wave's own."""

    frame: Frame
    tile: WorkgroupTile
    contraction: Contraction
    start: Value

    @classmethod
    def of(cls, frame: Frame, tile: WorkgroupTile, width: int) -> RowProducts:
        """Find where this lane reads, of rows of `width` columns."""
        contraction = frame.contraction(width)
        rows = per_lane(frame.atom.shape.a.rows, "the row of an A element")
        return cls(frame, tile, contraction, lane_index(rows * tile.pitch + contraction.start_a))

    def units(self, blocks: int) -> int:
        """Return how many units products of so many blocks of the tile take."""
        return blocks * self.contraction.reads

    def reads(self, slot: Value, first: int) -> Read:
        """Return what reads rows of a slot from block `first` on, a block after the other."""
        address: list[Value] = []

        def read(unit: int) -> list[Value]:
            if not address:
                address.append(self.start + slot)
            block, number = divmod(unit, self.contraction.reads)
            width = self.contraction.width
            row = (first + block) * self.frame.atom.shape.m
            return [self.tile.load(address[0], width, row=row, column=number * width, scope=READ)]

        return read

    def use(self, own: Own, totals: Many[list[Value]]) -> Use:
        """Return what multiplies a read with the wave's own rows, into `totals`, of each block of the tile those of
        each block of the wave.
        """

        def use(unit: int, read: Many[Value]) -> None:
            block, number = divmod(unit, self.contraction.reads)
            total = totals[block]
            for step, part in enumerate(self.contraction.split(*read)):
                for place, rows in enumerate(own):
                    total[place] = self.frame.atom(part, rows[number][step], total[place])

        return use

    def load_own(self, view: Value, pitch: Value, blocks: int) -> Own:
        """Load the wave's own rows from a view that begins with the first, `pitch` elements apart."""
        shape = self.frame.atom.shape
        column = per_lane(shape.b.columns, "the column of a B element")
        start = lane_index(column) * pitch + lane_index(self.contraction.start_b)
        width = self.contraction.width

        def block(number: int) -> list[list[Value]]:
            place = start + pitch * (number * shape.n) if number else start
            loaded = [
                memory.view_load(view, place + read * width if read else place, count=width)
                for read in range(self.contraction.reads)
            ]
            return [self.contraction.split(each) for each in loaded]

        return [block(number) for number in range(blocks)]


def zeros(frame: Frame) -> Value:
    """Return an accumulator."""
    return constant(0.0, VectorType(F32, frame.atom.shape.c.slots))


def elements(product: Value, frame: Frame) -> list[Value]:
    """Return what a lane has of a product."""
    return [vector.extract(product, index=slot) for slot in range(frame.atom.shape.c.slots)]


def store_sums(
    frame: Frame, columns: Values, view: Value, pitch: Value, sums: Many[Many[Value]], factor: Value | None
) -> None:
    """Write the wave's rows of a gradient, those of a block after the other, times `factor`, to a view."""
    shape = frame.atom.shape
    first, order = columns.columns_of_result()
    row = lane_index(per_lane(shape.c.columns, "the column of a product"))
    index = row * pitch + lane_index(first)
    for number, block in enumerate(sums):
        place = index + pitch * (number * shape.n) if number else index
        store_columns(view, place, order, frame.element, block, factor)
