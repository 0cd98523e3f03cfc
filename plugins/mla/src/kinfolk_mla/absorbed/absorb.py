"""Absorbed queries: qa' = W q', latent columns as rows, tokens as columns.

A wave's queries are the second operand and stay in registers. Weights are staged by all waves, two tiles in workgroup
memory; a row of them is a row of the first operand, as it lies there.
"""

from __future__ import annotations

from collections.abc import Sequence as Many
from typing import TYPE_CHECKING

import attrs
import numpy as np

from kinfolk.ir import build_kernel
from kinfolk.ir.builder import constant
from kinfolk.ir.ops import control, lanes, memory
from kinfolk.ir.types import F32, I32, VectorType
from kinfolk.ir.value import Kernel, Value
from kinfolk.tile.attention.frame import store_columns
from kinfolk.tile.contraction import Contraction
from kinfolk.tile.lane_index import lane_index
from kinfolk.tile.layout import per_lane
from kinfolk.tile.state import loop
from kinfolk.tile.timeline import Round, Section, Stream
from kinfolk.tile.transposed import column_order
from kinfolk_mla.absorbed.tokens import Tokens
from kinfolk_mla.prefill.geometry import Geometry
from kinfolk_mla.prefill.weights import Weights

if TYPE_CHECKING:
    from kinfolk.arch import Arch
    from kinfolk_mla.absorbed.spec import MlaAbsorbSpec


def emit_absorb(spec: MlaAbsorbSpec, arch: Arch) -> Kernel:
    """Build the kernel of `spec`: a workgroup for a head and a block of tokens."""
    geometry = Geometry.of(spec, arch)

    def body(q: Value, w_ukv: Value, qa: Value, total_q: Value, num_heads: Value) -> None:
        tokens = Tokens.of(spec, total_q, num_heads)
        weights = Weights.of(spec, geometry, w_ukv, tokens.head)
        Absorption(spec, tokens, q, qa, weights, geometry.contraction(spec.head_width)).run()

    attributes = {"workgroups_per_cu": spec.workgroups_per_cu, "accumulators": "either"}
    return build_kernel(
        spec.symbol(), spec.parameters(), arch=arch, block=geometry.threads, attributes=attributes, body=body
    )


@attrs.frozen(eq=False)
class Absorption:
    """The stages of the kernel and the values they share."""

    spec: MlaAbsorbSpec
    tokens: Tokens
    q: Value
    qa: Value
    weights: Weights
    contraction: Contraction

    def run(self) -> None:
        """Pass the rotated part on; load the queries, meet them with two tiles of weights at a time."""
        self._pass_rotated()
        query = self._query()
        self.weights.store(0, self.weights.load(constant(0, I32)))
        control.barrier()
        pairs = self.spec.latent_width // (2 * self.spec.weight_rows)
        loop(0, pairs, (), lambda pair, _: self._pair(pair * (2 * self.spec.weight_rows), query))

    def _pass_rotated(self) -> None:
        """Copy the rotated part of the wave's queries."""
        spec, lane, vector = self.spec, lanes.lane_id(), self.weights.geometry.vector
        vectors = spec.rope_width // vector
        source, source_row = self.tokens.rows(self.q, spec.key_width)
        target, target_row = self.tokens.rows(self.qa, spec.row_width)
        column = lane % vectors * vector
        at_once = self.weights.geometry.wave_size // vectors
        places = [lane // vectors + first for first in range(0, spec.atom, at_once)]
        begin = self.tokens.head * spec.key_width + spec.head_width + column
        loaded = [memory.view_load(source, place * source_row + begin, count=vector) for place in places]
        begin = self.tokens.head * spec.row_width + spec.latent_width + column
        for place, value in zip(places, loaded, strict=True):
            memory.view_store(target, place * target_row + begin, value)

    def _query(self) -> list[Value]:
        """Load this lane's query as operands B; of a token that does not exist, 0."""
        spec, columns = self.spec, self.weights.geometry.atom.shape.b.columns
        view, row = self.tokens.rows(self.q, spec.key_width)
        place = lane_index(per_lane(columns, "the token of an element")) * row
        start = place + self.tokens.head * spec.key_width + lane_index(self.contraction.start_b)
        width = self.contraction.width
        return [memory.view_load(view, start + read * width, count=width) for read in range(self.contraction.reads)]

    def _pair(self, first: Value, query: Many[Value]) -> tuple[()]:
        """Form the columns from latent row `first` on that two tiles of weights give."""
        for slot in range(2):
            loaded = self.weights.load(first * self.weights.row_width, slot + 1)

            def form(slot: int = slot) -> tuple[()]:
                self._store(first + slot * self.spec.weight_rows, self._multiplied(slot, query))
                return ()

            control.if_else(self.tokens.exist, form)
            self.weights.store(1 - slot, loaded)
            control.barrier()
        return ()

    def _multiplied(self, slot: int, query: Many[Value]) -> list[Value]:
        """Return the accumulators of a tile's rows, one an atom."""
        geometry, contraction = self.weights.geometry, self.contraction
        shape, tile = geometry.atom.shape, self.weights.tile
        atoms = self.spec.weight_rows // self.spec.atom
        found = [constant(0.0, VectorType(F32, shape.c.slots))] * atoms
        rows = per_lane(shape.a.rows, "the latent row of a weight")
        start = lane_index(rows * tile.pitch + contraction.start_a)

        def read(unit: int) -> list[Value]:
            column, atom = divmod(unit, atoms)
            row = slot * self.spec.weight_rows + atom * self.spec.atom
            return [tile.load(start, contraction.width, row=row, column=column * contraction.width)]

        def use(unit: int, operands: Many[Value]) -> None:
            column, atom = divmod(unit, atoms)
            for a, b in zip(contraction.split(*operands), contraction.split(query[column]), strict=True):
                found[atom] = geometry.atom(a, b, found[atom])

        stream = Stream(read=read, ahead=self.spec.read_ahead)
        Round(sections=[Section(units=atoms * contraction.reads, use=use, streams=(stream,))]).lay_out()
        return found

    def _store(self, first: Value, found: Many[Value]) -> None:
        """Write the columns that a tile of weights gave, from latent row `first` on."""
        spec, shape = self.spec, self.weights.geometry.atom.shape
        view, row = self.tokens.rows(self.qa, spec.row_width)
        columns = shape.c.rows[:, :, None] + spec.atom * np.arange(len(found))
        first_column, order = column_order(columns, shape)
        token = lane_index(per_lane(shape.c.columns, "the token of a result"))
        start = token * row + self.tokens.head * spec.row_width + first + lane_index(first_column)
        store_columns(view, start, order, self.weights.geometry.element, found)
