"""The tile of values in workgroup memory, and the second product, O' += V' P', over it.

Where the arch reads transposed, rows lie there as in global memory; elsewhere they are transposed as they are staged.
"""

from __future__ import annotations

from collections.abc import Sequence as Many
from typing import Protocol

import attrs

from kinfolk.ir.builder import constant, op_in_role
from kinfolk.ir.types import I32
from kinfolk.ir.value import Value
from kinfolk.tile.attention.frame import Frame
from kinfolk.tile.attention.rows import READ, STAGED, Carried, RowColumns, Rows, Strided, kept_columns, made, moved
from kinfolk.tile.kept_transposed import KeptTransposed
from kinfolk.tile.layout import Step
from kinfolk.tile.slots import Slots
from kinfolk.tile.timeline import Job, Read, Use
from kinfolk.tile.transposed import ColumnOrder, TransposedOperand
from kinfolk.tile.workgroup_tile import WorkgroupTile


class Values(Protocol):
    """A ring of value tiles; a unit is one read and its matrix operations, keys going by slower than columns."""

    @property
    def slots(self) -> Slots: ...
    @property
    def units(self) -> int: ...
    @property
    def fragments(self) -> int:
        """How many atoms lie side by side in the columns: accumulators of the product."""
        ...

    def loads(self, view: Rows, first: Value | None, loaded: list[Value]) -> list[Job]:
        """Return the jobs that issue this thread's loads of the tile whose first element is `first`: that of the view
        where it is None.
        """
        ...

    def carried(self) -> list[Carried]:
        """Return the vectors of a tile that this thread carries, in the order in which loads and stores have them."""
        ...

    def stores(self, slot: Value, loaded: Many[Value]) -> list[Job]:
        """Return the jobs that write what was loaded to a slot."""
        ...

    def reads(self, slot: Value) -> Read:
        """Return what reads the values of a slot."""
        ...

    def use(self, weights: Many[Value], output: list[Value]) -> Use:
        """Return what adds a read's values to `output`, weighted by an operand B a step."""
        ...

    def columns_of_result(self) -> ColumnOrder:
        """Return where the rows of the product lie, as `TransposedOperand` says it."""
        ...


def values_of(
    frame: Frame, steps: Many[Step], *, tile_keys: int, columns: int, slots: int, rows: Strided | None = None
) -> Values:
    """Reserve workgroup memory for `slots` tiles, kept as the arch reads them best; `steps` are what the keys of a tile
    are as operands B. In global memory rows are contiguous, or as `rows` says.
    """
    if op_in_role("transpose_read_16") is not None:
        return RowValues.of(frame, steps, tile_keys=tile_keys, columns=columns, slots=slots, rows=rows)
    return TransposedValues.of(frame, steps, columns=columns, slots=slots, rows=rows)


def used_columns(frame: Frame, columns: int) -> int:
    """Return the columns of whole fragments."""
    return -(-columns // frame.atom.shape.m) * frame.atom.shape.m


@attrs.frozen(eq=False)
class RowValues:
    """Rows as in global memory, read transposed."""

    frame: Frame
    steps: Many[Step]
    slots: Slots
    columns: RowColumns
    operand: TransposedOperand
    address: Value

    @classmethod
    def of(
        cls, frame: Frame, steps: Many[Step], *, tile_keys: int, columns: int, slots: int, rows: Strided | None
    ) -> RowValues:
        """Reserve the ring; every step's keys lie in the tile like the first one's, further down."""
        for step in steps:
            assert (step.rows - steps[0].rows == step.rows[0] - steps[0].rows[0]).all()
        tile = WorkgroupTile.allocate(frame.element, slots * tile_keys, kept_columns(columns), frame.padding)
        staged = RowColumns.of(frame, tile, tile_keys, columns, rows)
        side_by_side = used_columns(frame, columns) // frame.atom.shape.m
        operand = TransposedOperand.of(tile, frame.atom.shape, rows=steps[0].rows, side_by_side=side_by_side)
        ring = Slots(begin=constant(0, I32), count=slots, elements=tile_keys * tile.pitch)
        return cls(frame, steps, ring, staged, operand, operand.address())

    @property
    def fragments(self) -> int:
        """As `Values` says."""
        return used_columns(self.frame, self.columns.width) // self.frame.atom.shape.m

    @property
    def _reads(self) -> int:
        return self.fragments // self.operand.fragments_per_read

    @property
    def units(self) -> int:
        """How many units the product of a tile has."""
        return self._reads * len(self.steps)

    def loads(self, view: Rows, first: Value | None, loaded: list[Value]) -> list[Job]:
        """As `Values` says."""
        return self.columns.loads(view, first, loaded)

    def carried(self) -> list[Carried]:
        """As `Values` says."""
        return self.columns.carried()

    def stores(self, slot: Value, loaded: Many[Value]) -> list[Job]:
        """As `Values` says."""
        return self.columns.stores(slot, loaded)

    def reads(self, slot: Value) -> Read:
        """As `Values` says."""
        address: list[Value] = []

        def read(unit: int) -> list[Value]:
            if not address:
                address.append(self.address + slot)
            step, number = divmod(unit, self._reads)
            row = int(self.steps[step].rows[0] - self.steps[0].rows[0])
            return self.operand.read(address[0], number, row=row, scope=READ)

        return read

    def use(self, weights: Many[Value], output: list[Value]) -> Use:
        """As `Values` says."""

        def use(unit: int, rows: Many[Value]) -> None:
            step, number = divmod(unit, self._reads)
            for fragment, operand_a in enumerate(self.operand.fragments(rows)):
                place = number * self.operand.fragments_per_read + fragment
                output[place] = self.frame.atom(operand_a, weights[step], output[place])

        return use

    def columns_of_result(self) -> ColumnOrder:
        """As `Values` says."""
        return self.operand.columns_of_result()


@attrs.frozen(eq=False)
class TransposedValues:
    """Columns as rows: transposed once, as they are staged."""

    frame: Frame
    slots: Slots
    kept: KeptTransposed
    source: Value
    target: Value
    address: Value
    rows: Strided | None

    @classmethod
    def of(cls, frame: Frame, steps: Many[Step], *, columns: int, slots: int, rows: Strided | None) -> TransposedValues:
        """Reserve the ring; of narrow rows it has columns more, which give every thread a part of a tile."""
        least = frame.threads * frame.atom.shape.a.slots**2 // (len(steps) * frame.atom.shape.k)
        kept = KeptTransposed.of(
            frame.element,
            frame.atom.shape,
            steps=[step.rows for step in steps],
            columns=max(1 << (kept_columns(columns) - 1).bit_length(), least),
            slots=slots,
            threads=frame.threads,
            vector_width=frame.vector,
            padding=frame.padding,
            used=used_columns(frame, columns),
            together=frame.wave_size if rows is not None and rows.parted else None,
        )
        ring = Slots(begin=constant(0, I32), count=slots, elements=kept.elements)
        begin = kept.source() if rows is None else kept.source_in(rows.pitch, columns) + rows.column
        return cls(frame, ring, kept, begin, kept.target(), kept.address(), rows)

    @property
    def units(self) -> int:
        """How many units the product of a tile has."""
        return self.kept.reads

    @property
    def fragments(self) -> int:
        """As `Values` says."""
        return self.kept.fragments

    def loads(self, view: Rows, first: Value | None, loaded: list[Value]) -> list[Job]:
        """As `Values` says."""
        rows, pitch = made(view), None if self.rows is None else self.rows.pitch

        def load(piece: int, row: int) -> Job:
            return lambda: loaded.append(self.kept.load(rows(), moved(self.source, first), piece, row, pitch))

        return [load(piece, row) for piece in range(self.kept.pieces) for row in range(self.kept.width)]

    def carried(self) -> list[Carried]:
        """As `Values` says."""
        row, column = self.kept.first_place()
        return [
            Carried(row + below, column + beside if beside else column, self.kept.width)
            for piece in range(self.kept.pieces)
            for below, beside in (self.kept.apart(piece, each) for each in range(self.kept.width))
        ]

    def stores(self, slot: Value, loaded: Many[Value]) -> list[Job]:
        """As `Values` says."""
        width = self.kept.width
        columns: dict[int, list[Value]] = {}

        def transpose(piece: int) -> Job:
            def job() -> None:
                columns[piece] = self.kept.columns_of(loaded[piece * width : (piece + 1) * width])

            return job

        def store(piece: int, column: int) -> Job:
            return lambda: self.kept.store(self.target + slot, piece, column, columns[piece][column], scope=STAGED)

        return [
            job
            for piece in range(self.kept.pieces)
            for job in (transpose(piece), *(store(piece, column) for column in range(width)))
        ]

    def reads(self, slot: Value) -> Read:
        """As `Values` says."""
        address: list[Value] = []

        def read(unit: int) -> list[Value]:
            if not address:
                address.append(self.address + slot)
            return [self.kept.read(address[0], unit, scope=READ)]

        return read

    def use(self, weights: Many[Value], output: list[Value]) -> Use:
        """As `Values` says."""

        def use(unit: int, read: Many[Value]) -> None:
            fragment, steps = self.kept.steps_of(unit)
            for operand_a, step in zip(self.kept.operands(read[0]), steps, strict=True):
                output[fragment] = self.frame.atom(operand_a, weights[step], output[fragment])

        return use

    def columns_of_result(self) -> ColumnOrder:
        """As `Values` says."""
        return self.kept.columns_of_result()
