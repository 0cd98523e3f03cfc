"""The second product: O' += V' P', the values being the latent part of the key rows, read transposed from the same
tile.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from kinfolk.ir.builder import constant
from kinfolk.ir.types import F32, VectorType
from kinfolk.ir.value import Value
from kinfolk.tile.narrow import narrow_weights
from kinfolk.tile.timeline import Round, Section, Stream
from kinfolk.tile.transposed import TransposedOperand
from kinfolk.tile.workgroup_tile import WorkgroupTile
from kinfolk_mla.decode.geometry import Geometry


@attrs.frozen(eq=False)
class ValueProduct:
    """The accumulators are ordered by window of latent columns, then by fragment in the window."""

    geometry: Geometry
    operand: TransposedOperand
    address: Value

    @classmethod
    def of(cls, geometry: Geometry, tile: WorkgroupTile) -> ValueProduct:
        """Find where this lane reads."""
        (step,) = geometry.steps
        operand = TransposedOperand.of(tile, geometry.value.shape, rows=step.rows)
        return cls(geometry, operand, operand.address())

    @property
    def windows(self) -> int:
        """How many windows the latent columns make."""
        return self.geometry.spec.latent_width // self.operand.window

    def start(self) -> list[Value]:
        """Return zeroed accumulators."""
        zero = constant(0.0, VectorType(F32, self.geometry.value.shape.c.slots))
        return [zero] * (self.windows * self.operand.width)

    def accumulate(self, weights: Sequence[Value], accumulators: Sequence[Value], ahead: int) -> list[Value]:
        """Return the accumulators with the tile's values, read `ahead` units, added, weighted by f32 `weights`."""
        (step,) = self.geometry.steps
        operand_b = narrow_weights([weights[slot] for slot in step.slots], self.geometry.element)
        result = list(accumulators)

        def use(window: int, rows: Sequence[Value]) -> None:
            for number, fragment in enumerate(self.operand.fragments(rows)):
                place = window * self.operand.width + number
                result[place] = self.geometry.value(fragment, operand_b, result[place])

        stream = Stream(read=lambda window: self.operand.read(self.address, window), ahead=ahead)
        Round(sections=[Section(units=self.windows, use=use, streams=(stream,))]).lay_out()
        return result
