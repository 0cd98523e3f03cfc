"""The second product as units: O' += V' P', a window of latent columns each, read transposed from the key rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import attrs

from kinfolk.ir.builder import constant
from kinfolk.ir.types import F32, VectorType
from kinfolk.ir.value import Value
from kinfolk.tile.timeline import Read, Use
from kinfolk.tile.transposed import TransposedOperand
from kinfolk.tile.workgroup_tile import WorkgroupTile
from kinfolk_mla.decode.geometry import Geometry
from kinfolk_mla.wide.rows import READ

SIDE_BY_SIDE: Final = 4
"""Fragments that share a window where the arch reads transposed, so that the lanes of a read meet different banks."""


@attrs.frozen(eq=False)
class ValueUnits:
    """Accumulators are ordered by head tile, then fragment of latent columns; a unit is one step over a tile's keys."""

    geometry: Geometry
    operand: TransposedOperand
    address: Value

    @classmethod
    def of(cls, geometry: Geometry, tile: WorkgroupTile) -> ValueUnits:
        """Find where this lane reads; every step's keys lie in the tile like the first one's, further down."""
        first, *others = geometry.steps
        for step in others:
            assert (step.rows - first.rows == step.rows[0] - first.rows[0]).all()
        operand = TransposedOperand.of(tile, geometry.value.shape, rows=first.rows, side_by_side=SIDE_BY_SIDE)
        return cls(geometry, operand, operand.address())

    @property
    def accumulators(self) -> int:
        """How many accumulators a head tile has."""
        return self.geometry.spec.latent_width // self.geometry.value.shape.m

    @property
    def units(self) -> int:
        """How many units the second product takes."""
        return self.accumulators // self.operand.fragments_per_read * len(self.geometry.steps)

    def start(self) -> list[Value]:
        """Return zeroed accumulators."""
        zero = constant(0.0, VectorType(F32, self.geometry.value.shape.c.slots))
        return [zero] * (self.geometry.head_tiles * self.accumulators)

    def reads(self, slot: Value) -> Read:
        """Return what reads the values of a slot."""
        address: list[Value] = []

        def read(unit: int) -> list[Value]:
            if not address:
                address.append(self.address + slot)
            number, step = divmod(unit, len(self.geometry.steps))
            row = int(self.geometry.steps[step].rows[0] - self.geometry.steps[0].rows[0])
            return self.operand.read(address[0], number, row=row, scope=READ)

        return read

    def use(self, weights: Sequence[Value], output: list[Value]) -> Use:
        """Return what adds a read's values to `output`, weighted by a B operand per head tile and step."""
        steps = len(self.geometry.steps)

        def use(unit: int, rows: Sequence[Value]) -> None:
            number, step = divmod(unit, steps)
            for fragment, operand_a in enumerate(self.operand.fragments(rows)):
                for tile in range(self.geometry.head_tiles):
                    place = tile * self.accumulators + number * self.operand.fragments_per_read + fragment
                    output[place] = self.geometry.value(operand_a, weights[tile * steps + step], output[place])

        return use
