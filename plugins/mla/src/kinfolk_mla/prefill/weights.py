"""A head's up-projection on its way through workgroup memory, and the product of latent rows with half of it.

The product is formed transposed, made' = W' rows', columns of the head as rows: a wave's rows are the second operand
and stay in registers; weights are staged by all waves, two tiles in workgroup memory, and read transposed. What a lane
ends up with are neighbouring columns of one row.
"""

from __future__ import annotations

from collections.abc import Sequence as Many

import attrs
import numpy as np

from kinfolk.ir.builder import constant
from kinfolk.ir.ops import control, lanes, memory, vector
from kinfolk.ir.types import F32, I32, VectorType
from kinfolk.ir.value import Value
from kinfolk.tile.contraction import Contraction
from kinfolk.tile.state import branch
from kinfolk.tile.timeline import Round, Section, Stream
from kinfolk.tile.transposed import TransposedOperand
from kinfolk.tile.workgroup_tile import WorkgroupTile
from kinfolk_mla.decode.sequence import wide
from kinfolk_mla.prefill.geometry import FRAGMENTS, Geometry
from kinfolk_mla.prefill.spec import MlaWeightsSpec


@attrs.frozen(eq=False)
class Weights:
    """The up-projection `w_ukv` [latent, 2 * head] of head `head`, and a tile in workgroup memory with two slots of
    `weight_rows` rows by `head_width` columns.
    """

    spec: MlaWeightsSpec
    geometry: Geometry
    w_ukv: Value
    head: Value
    tile: WorkgroupTile

    @classmethod
    def of(cls, spec: MlaWeightsSpec, geometry: Geometry, w_ukv: Value, head: Value) -> Weights:
        """Reserve the tile."""
        tile = WorkgroupTile.allocate(geometry.element, 2 * spec.weight_rows, spec.head_width, geometry.padding)
        return cls(spec, geometry, w_ukv, head, tile)

    @property
    def row_width(self) -> int:
        """Elements from a row to the next: the columns of keys, and those of values."""
        return 2 * self.spec.head_width

    def load(self, start: Value, chunk: int = 0) -> list[Value]:
        """Ask for this thread's part of tile number `chunk`, counted from element `start` of the head's weights on.

        Past the last of them there is 0.
        """
        spec, vector_ = self.spec, self.geometry.vector
        elements = spec.latent_width * self.row_width
        head = memory.offset(self.w_ukv, wide(self.head) * elements)
        view = memory.bound(head, constant(elements, I32))
        thread, vectors = lanes.thread_id(), self._vectors
        place = thread // vectors * self.row_width + thread % vectors * vector_ + start
        rows = range(chunk * spec.weight_rows, (chunk + 1) * spec.weight_rows, self._rows_at_once)
        return [memory.view_load(view, place + row * self.row_width, count=vector_) for row in rows]

    def store(self, slot: int, loaded: Many[Value]) -> None:
        """Write this thread's part of a tile to a slot; every reader of what was there is past a barrier."""
        thread, vector_ = lanes.thread_id(), self.geometry.vector
        index = thread // self._vectors * self.tile.pitch + thread % self._vectors * vector_
        for piece, value in enumerate(loaded):
            self.tile.store(index, value, vector_, row=slot * self.spec.weight_rows + piece * self._rows_at_once)

    @property
    def _vectors(self) -> int:
        """Vectors of a row, one a thread."""
        return self.spec.head_width // self.geometry.vector

    @property
    def _rows_at_once(self) -> int:
        return self.geometry.threads // self._vectors


@attrs.frozen(eq=False)
class LatentProduct:
    """Latent rows of a wave times the columns of keys, or those of values, of a head's up-projection."""

    weights: Weights
    latent: Contraction
    operand: TransposedOperand

    @classmethod
    def of(cls, weights: Weights) -> LatentProduct:
        """Lay the product out."""
        geometry = weights.geometry
        shape = geometry.atom.shape
        latent = geometry.contraction(shape.k // shape.b.slots * geometry.vector)
        rows = np.zeros(shape.k, np.int64)
        rows[shape.b.rows] = latent.start_b[:, None] + np.arange(shape.b.slots)
        return cls(weights, latent, TransposedOperand.of(weights.tile, shape, rows=rows, side_by_side=FRAGMENTS))

    @property
    def chunks(self) -> int:
        """How many tiles of weights a product takes."""
        return self.weights.spec.latent_width // self.weights.spec.weight_rows

    def rows(self, view: Value, start: Value) -> list[Value]:
        """Load a latent row, of which this lane's part begins at `start` (`latent.start_b` included)."""
        columns = range(0, self.weights.spec.latent_width, self.latent.length)
        return [memory.view_load(view, start + column, count=self.latent.width) for column in columns]

    def begin(self, half: Value) -> None:
        """Stage the first tile of a half: 0 has the columns of keys, 1 those of values."""
        self.weights.store(0, self.weights.load(half * self.weights.spec.head_width))
        control.barrier()

    def run(self, half: Value, rows: Many[Value], exist: Value, after: Value | None = None) -> list[Value]:
        """Return the accumulators, one a fragment, 0 where no row of the wave exists.

        The first tile of half `after` is staged then; where there is none, nothing.
        """
        zero = constant(0.0, VectorType(F32, self.weights.geometry.atom.shape.c.slots))
        found = [zero] * FRAGMENTS
        for chunk in range(self.chunks):
            following = after if chunk + 1 == self.chunks else half
            if following is None:
                return self._with_product(chunk, rows, found, exist)
            start = following * self.weights.spec.head_width
            loaded = self.weights.load(start, (chunk + 1) % self.chunks)
            found = self._with_product(chunk, rows, found, exist)
            self.weights.store((chunk + 1) % 2, loaded)
            control.barrier()
        return found

    def _with_product(self, chunk: int, rows: Many[Value], before: list[Value], exist: Value) -> list[Value]:
        """Return the accumulators with the product with a tile of weights added, if there are rows."""
        return branch(exist, lambda: self._multiplied(chunk, rows, before), lambda: before)

    def _multiplied(self, chunk: int, rows: Many[Value], before: Many[Value]) -> list[Value]:
        found, spec = list(before), self.weights.spec
        reads, steps = FRAGMENTS // self.operand.fragments_per_read, self.latent.steps
        address = self.operand.address()
        first = chunk * spec.weight_rows // self.latent.length
        slots = self.latent.slots

        def read(unit: int) -> list[Value]:
            step, number = divmod(unit, reads)
            row = chunk % 2 * spec.weight_rows + step // steps * self.latent.length + step % steps * slots
            return self.operand.read(address, number, row=row)

        def use(unit: int, read_rows: Many[Value]) -> None:
            step, number = divmod(unit, reads)
            operand_b = vector.slice_(rows[first + step // steps], step % steps * slots, slots)
            for fragment, operand_a in enumerate(self.operand.fragments(read_rows)):
                place = number * self.operand.fragments_per_read + fragment
                found[place] = self.weights.geometry.atom(operand_a, operand_b, found[place])

        units = spec.weight_rows // self.latent.length * steps * reads
        stream = Stream(read=read, ahead=spec.read_ahead)
        Round(sections=[Section(units=units, use=use, streams=(stream,))]).lay_out()
        return found
