"""The tile of values in workgroup memory, and the second product, O' += V' P', over it.

Where the arch reads transposed, rows lie there as in the workspace; elsewhere they are transposed as they are staged.
"""

from __future__ import annotations

from collections.abc import Sequence as Many
from typing import TYPE_CHECKING, Protocol

import attrs

from kinfolk.ir.builder import constant, op_in_role
from kinfolk.ir.ops import lanes
from kinfolk.ir.types import I32
from kinfolk.ir.value import Value
from kinfolk.tile.kept_transposed import KeptTransposed
from kinfolk.tile.slots import Slots
from kinfolk.tile.staging import Staging
from kinfolk.tile.timeline import Job, Read, Use
from kinfolk.tile.transposed import TransposedOperand
from kinfolk.tile.workgroup_tile import WorkgroupTile
from kinfolk_mla.prefill.geometry import FRAGMENTS, Geometry

if TYPE_CHECKING:
    from kinfolk.tile.layout import Step
    from kinfolk.tile.transposed import ColumnOrder
    from kinfolk_mla.prefill.spec import MlaPrefillSpec

STAGED, READ = "staged", "read"
"""The alias scopes: what is being staged is never what is being read."""


class Values(Protocol):
    """A ring of value tiles; a unit is one read and its matrix operations, keys going by slower than columns."""

    @property
    def slots(self) -> Slots: ...
    @property
    def units(self) -> int: ...
    def loads(self, view: Value, first: Value, loaded: list[Value]) -> list[Job]:
        """Return the jobs that issue this thread's loads of the tile whose first element is `first`."""
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


def values_of(spec: MlaPrefillSpec, geometry: Geometry, steps: Many[Step]) -> Values:
    """Reserve workgroup memory for the values that the arch reads best."""
    if op_in_role("transpose_read_16") is not None:
        return RowValues.of(spec, geometry, steps)
    return TransposedValues.of(spec, geometry, steps)


@attrs.frozen(eq=False)
class RowValues:
    """Rows as in the workspace, read transposed."""

    geometry: Geometry
    steps: Many[Step]
    slots: Slots
    staging: Staging
    source: Value
    target: Value
    operand: TransposedOperand
    address: Value

    @classmethod
    def of(cls, spec: MlaPrefillSpec, geometry: Geometry, steps: Many[Step]) -> RowValues:
        """Reserve the ring; every step's keys lie in the tile like the first one's, further down."""
        for step in steps:
            assert (step.rows - steps[0].rows == step.rows[0] - steps[0].rows[0]).all()
        tile = WorkgroupTile.allocate(
            geometry.element,
            spec.value_slots * spec.tile_keys,
            spec.head_width,
            geometry.padding,
        )
        staging = Staging.of(
            tile,
            rows=spec.tile_keys,
            first_column=0,
            columns=spec.head_width,
            threads=geometry.threads,
            wave_size=geometry.wave_size,
            max_width=geometry.vector,
        )
        source = staging.source(lanes.wave_id(), lanes.lane_id())
        operand = TransposedOperand.of(tile, geometry.atom.shape, rows=steps[0].rows, side_by_side=FRAGMENTS)
        slots = Slots(begin=constant(0, I32), count=spec.value_slots, elements=spec.tile_keys * tile.pitch)
        return cls(geometry, steps, slots, staging, source, staging.target(source), operand, operand.address())

    @property
    def _reads(self) -> int:
        return FRAGMENTS // self.operand.fragments_per_read

    @property
    def units(self) -> int:
        """How many units the product of a tile has."""
        return self._reads * len(self.steps)

    def loads(self, view: Value, first: Value, loaded: list[Value]) -> list[Job]:
        """As `Values` says."""

        def load(piece: int) -> Job:
            return lambda: loaded.append(self.staging.load_piece(view, self.source + first, piece))

        return [load(piece) for piece in range(self.staging.pieces)]

    def stores(self, slot: Value, loaded: Many[Value]) -> list[Job]:
        """As `Values` says."""

        def store(piece: int) -> Job:
            return lambda: self.staging.store_piece(self.target + slot, piece, loaded[piece], scope=STAGED)

        return [store(piece) for piece in range(self.staging.pieces)]

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
                output[place] = self.geometry.atom(operand_a, weights[step], output[place])

        return use

    def columns_of_result(self) -> ColumnOrder:
        """As `Values` says."""
        return self.operand.columns_of_result()


@attrs.frozen(eq=False)
class TransposedValues:
    """Columns as rows: transposed once, as they are staged."""

    geometry: Geometry
    slots: Slots
    kept: KeptTransposed
    source: Value
    target: Value
    address: Value

    @classmethod
    def of(cls, spec: MlaPrefillSpec, geometry: Geometry, steps: Many[Step]) -> TransposedValues:
        """Reserve the ring."""
        kept = KeptTransposed.of(
            geometry.element,
            geometry.atom.shape,
            steps=[step.rows for step in steps],
            columns=spec.head_width,
            slots=spec.value_slots,
            threads=geometry.threads,
            vector_width=geometry.vector,
            padding=geometry.padding,
        )
        slots = Slots(begin=constant(0, I32), count=spec.value_slots, elements=kept.elements)
        return cls(geometry, slots, kept, kept.source(), kept.target(), kept.address())

    @property
    def units(self) -> int:
        """How many units the product of a tile has."""
        return self.kept.reads

    def loads(self, view: Value, first: Value, loaded: list[Value]) -> list[Job]:
        """As `Values` says."""

        def load(piece: int, row: int) -> Job:
            return lambda: loaded.append(self.kept.load(view, self.source + first, piece, row))

        return [load(piece, row) for piece in range(self.kept.pieces) for row in range(self.kept.width)]

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
                output[fragment] = self.geometry.atom(operand_a, weights[step], output[fragment])

        return use

    def columns_of_result(self) -> ColumnOrder:
        """As `Values` says."""
        return self.kept.columns_of_result()
