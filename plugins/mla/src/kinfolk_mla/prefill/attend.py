"""Attention over expanded keys and values, a block of one head's queries at a time.

Scores are formed transposed, S' = K Q' with keys as rows and queries as columns, and so is the output, O' = V' P': the
scores of a lane are the elements of P' that it must hold for the second product. A tile is in workgroup memory while
the next one is on its way in registers; two barriers a tile keep them apart.
"""

from __future__ import annotations

from collections.abc import Sequence as Many
from typing import TYPE_CHECKING

import attrs

from kinfolk.ir import build_kernel
from kinfolk.ir.builder import constant
from kinfolk.ir.ops import arithmetic, control, lanes, vector
from kinfolk.ir.types import F32, I32, VectorType
from kinfolk.ir.value import Kernel, Value
from kinfolk.tile.contraction import Contraction
from kinfolk.tile.lane_index import lane_index
from kinfolk.tile.layout import Layout, Step, lanes_sharing, per_lane, steps_of
from kinfolk.tile.narrow import narrow_weights
from kinfolk.tile.reduction import in_lane
from kinfolk.tile.softmax import OnlineSoftmax, RowState, mask_scores, scale_accumulators
from kinfolk.tile.state import branch, loop
from kinfolk.tile.timeline import Round, Section, Stream
from kinfolk.tile.transposed import TransposedOperand
from kinfolk_mla.prefill.batch import Sequence
from kinfolk_mla.prefill.geometry import FRAGMENTS, Geometry
from kinfolk_mla.prefill.queries import Queries
from kinfolk_mla.prefill.tiles import Tiles

if TYPE_CHECKING:
    from kinfolk.arch import Arch
    from kinfolk_mla.prefill.spec import MlaPrefillSpec


def emit_prefill(spec: MlaPrefillSpec, arch: Arch) -> Kernel:
    """Build the kernel of `spec`: a workgroup for a head, a block of queries and a sequence."""
    geometry = Geometry.of(spec, arch)

    def body(*parameters: Value) -> None:
        arguments = Arguments(*parameters)
        queries = Queries.of(spec, arguments, Sequence.of(arguments, geometry))
        attention = Attention.of(spec, arguments, queries)

        def attend() -> tuple[()]:
            attention.run()
            return ()

        control.if_else(queries.exist, attend)

    attributes = {"workgroups_per_cu": spec.workgroups_per_cu, "accumulators": "vgpr"}
    return build_kernel(
        spec.symbol(), spec.parameters(), arch=arch, block=geometry.threads, attributes=attributes, body=body
    )


@attrs.frozen(eq=False)
class Arguments:
    """The kernel's parameters as values, in declared order."""

    q: Value
    expanded: Value
    k_rope: Value
    cu_seqlens_q: Value
    cu_seqlens_k: Value
    block_table: Value
    out: Value
    lse: Value
    scale: Value
    block_table_stride: Value
    num_pages: Value
    page_shift: Value
    total_q: Value
    max_seqlen_k: Value
    first_head: Value
    group_heads: Value
    num_heads: Value
    causal: Value
    query_blocks: Value


@attrs.frozen(eq=False)
class Accumulated:
    """What the tiles so far come to: softmax state and output accumulators, one a fragment of a head's columns."""

    row: RowState
    output: list[Value]


@attrs.frozen(eq=False)
class TileState:
    """What the loop carries: the valid rows of each part of the tile, the page ids of the next tile's, and the sums."""

    valid: list[Value]
    following: list[Value]
    accumulated: Accumulated


@attrs.frozen(eq=False)
class Attention:
    """The stages of the kernel and the values they share.

    `keys` is the number in a tile of the key of each score of this lane, `steps` the proof that scores are operands.
    """

    spec: MlaPrefillSpec
    queries: Queries
    geometry: Geometry
    tiles: Tiles
    contraction: Contraction
    key_start: Value
    keys: tuple[Value, ...]
    steps: tuple[Step, ...]
    values: TransposedOperand
    softmax: OnlineSoftmax

    @classmethod
    def of(cls, spec: MlaPrefillSpec, arguments: Arguments, queries: Queries) -> Attention:
        """Reserve workgroup memory and lay both products out."""
        geometry = queries.sequence.geometry
        shape = geometry.atom.shape
        tiles = Tiles.of(spec, arguments, queries.sequence)
        contraction = geometry.contraction(spec.key_width)
        rows = per_lane(shape.a.rows, "the key of an A element")
        steps = steps_of(Layout.of("scores", shape.c), shape.b)
        for step in steps:
            assert (step.rows - steps[0].rows == step.rows[0] - steps[0].rows[0]).all()
        places = shape.c.rows - shape.c.rows[:, :1]
        assert (places == places[0]).all()
        first = lane_index(shape.c.rows[:, 0])
        return cls(
            spec=spec,
            queries=queries,
            geometry=geometry,
            tiles=tiles,
            contraction=contraction,
            key_start=lane_index(rows * tiles.keys.pitch + contraction.start_a),
            keys=tuple(first + int(place) if place else first for place in places[0]),
            steps=steps,
            values=TransposedOperand.of(tiles.values, shape, rows=steps[0].rows, side_by_side=FRAGMENTS),
            softmax=OnlineSoftmax.of(arguments.scale, lanes_sharing(per_lane(shape.c.columns, "the query of a score"))),
        )

    def run(self) -> None:
        """Stage the first tile, walk the tiles that a query of the workgroup sees, store the rows."""
        query = self.queries.load(self.contraction)
        zero = constant(0, I32)
        pages = self.tiles.resolve(self.tiles.lookup(zero), zero)
        self.tiles.store(self.tiles.load(pages, zero))
        control.barrier()
        start = TileState([page.rows for page in pages], self.tiles.lookup(zero + 1), self._nothing())
        count = (self.queries.seen_by_workgroup() + (self.spec.atom - 1)) // self.spec.atom
        wave, lane = self.queries.seen_by_wave(), self.queries.seen_by_lane()
        last = loop(0, count, start, lambda tile, state: self._step(query, wave, lane, tile, state))
        inverse, lse = self.softmax.finish(last.accumulated.row)
        self.queries.store(self.values, last.accumulated.output, inverse, lse)

    def _nothing(self) -> Accumulated:
        zero = constant(0.0, VectorType(F32, self.geometry.atom.shape.c.slots))
        return Accumulated(RowState.start(), [zero] * FRAGMENTS)

    def _step(self, query: Many[Value], wave: Value, lane: Value, tile: Value, state: TileState) -> TileState:
        """Attend over the staged tile while the next one loads; then put that in its place."""
        pages = self.tiles.resolve(state.following, tile + 1)
        following = self.tiles.lookup(tile + 2)
        loaded = self.tiles.load(pages, tile + 1)
        accumulated = branch(
            tile * self.spec.atom < wave,
            lambda: self._attend(query, lane - tile * self.spec.atom, state),
            lambda: state.accumulated,
        )
        control.barrier()
        self.tiles.store(loaded)
        control.barrier()
        return TileState([page.rows for page in pages], following, accumulated)

    def _attend(self, query: Many[Value], seen: Value, state: TileState) -> Accumulated:
        """Attend over a tile, of which this lane's query sees the keys below `seen`."""
        scores, corrected = self._correct(seen, state, self._scores(query))
        row, weights = self.softmax.weights(corrected.row, scores)
        return Accumulated(row, self._weighed(weights, corrected.output))

    def _scores(self, query: Many[Value]) -> list[Value]:
        """Return this lane's raw scores, one per key of `keys`."""
        atom, contraction = self.geometry.atom, self.contraction
        total = [constant(0.0, VectorType(F32, atom.shape.c.slots))]

        def read(unit: int) -> list[Value]:
            return [self.tiles.keys.load(self.key_start, contraction.width, column=unit * contraction.width)]

        def use(unit: int, operands: Many[Value]) -> None:
            (keys,) = operands
            for a, b in zip(contraction.split(keys), contraction.split(query[unit]), strict=True):
                total[0] = atom(a, b, total[0])

        stream = Stream(read=read, ahead=self.spec.key_read_ahead)
        section = Section(units=contraction.reads, use=use, streams=(stream,), fence_every=self.spec.fence_every)
        Round(sections=[section]).lay_out()
        return [vector.extract(total[0], index=slot) for slot in range(atom.shape.c.slots)]

    def _correct(self, seen: Value, state: TileState, scores: list[Value]) -> tuple[list[Value], Accumulated]:
        """In the rare case, mask the scores of keys that the query does not see, and raise the maximum."""
        before = state.accumulated
        unseen = seen < self.spec.atom
        for rows in state.valid:
            unseen = unseen | (rows < self.spec.part)
        exceeds = self.softmax.exceeds(before.row, in_lane(scores, arithmetic.fmax))

        def correct() -> tuple[list[Value], Accumulated]:
            masked = self._masked(scores, seen, state.valid)
            row, factor = self.softmax.raise_maximum(before.row, self.softmax.tile_maximum(masked))
            return masked, Accumulated(row, scale_accumulators(before.output, factor))

        return branch(lanes.any_lane(exceeds | unseen), correct, lambda: (scores, before), cold=True)

    def _masked(self, scores: Many[Value], seen: Value, valid: Many[Value]) -> list[Value]:
        """Return the scores with -inf for keys not below `seen`, or not of a part's valid rows."""
        part = self.geometry.atom.shape.c.rows // self.spec.part
        found: list[Value] = []
        for number, rows in enumerate(valid):
            slots = [slot for slot in range(part.shape[1]) if part[0, slot] == number]
            assert (part[:, slots] == number).all() and slots == list(range(len(found), len(found) + len(slots)))
            below = arithmetic.smin(seen, rows + number * self.spec.part if number else rows)
            found += mask_scores([scores[slot] for slot in slots], [self.keys[slot] for slot in slots], below)
        return found

    def _weighed(self, weights: Many[Value], accumulators: Many[Value]) -> list[Value]:
        """Return the accumulators with the tile's values added, weighted by f32 `weights`."""
        operands = [
            narrow_weights([weights[slot] for slot in step.slots], self.geometry.element) for step in self.steps
        ]
        reads = FRAGMENTS // self.values.fragments_per_read
        result, address = list(accumulators), self.values.address()

        def read(unit: int) -> list[Value]:
            step, number = divmod(unit, reads)
            return self.values.read(address, number, row=int(self.steps[step].rows[0] - self.steps[0].rows[0]))

        def use(unit: int, rows: Many[Value]) -> None:
            step, number = divmod(unit, reads)
            for fragment, operand_a in enumerate(self.values.fragments(rows)):
                place = number * self.values.fragments_per_read + fragment
                result[place] = self.geometry.atom(operand_a, operands[step], result[place])

        stream = Stream(read=read, ahead=self.spec.value_read_ahead)
        Round(sections=[Section(units=reads * len(self.steps), use=use, streams=(stream,))]).lay_out()
        return result
