"""Attention over expanded keys and values, a block of one head's queries at a time, the scores one tile ahead.

Scores are formed transposed, S' = K Q' with keys as rows and queries as columns, and so is the output, O' = V' P': the
scores of a lane are the elements of P' that it must hold for the second product. A round forms the scores of tile i+1
and, between their matrix operations, the weights of tile i; then it adds the values of tile i, while the keys of tile
i+2 and the values of tile i+1, asked for in this round, are written to workgroup memory.
"""

from __future__ import annotations

from collections.abc import Sequence as Many
from typing import TYPE_CHECKING

import attrs

from kinfolk.ir import build_kernel
from kinfolk.ir.builder import constant
from kinfolk.ir.ops import arithmetic, control, lanes, memory
from kinfolk.ir.types import F32, I32, VectorType
from kinfolk.ir.value import Kernel, Value
from kinfolk.tile.layout import lanes_sharing, per_lane
from kinfolk.tile.paging import Page
from kinfolk.tile.parting import parted
from kinfolk.tile.reduction import across_lanes
from kinfolk.tile.runs import Run, walk
from kinfolk.tile.slots import RoundSlots, round_of
from kinfolk.tile.softmax import OnlineSoftmax, RowState, scale_accumulators
from kinfolk.tile.state import branch
from kinfolk.tile.timeline import Job, Meeting, Round, Section, Spread, Stream, first_reads
from kinfolk_mla.prefill.batch import Sequence
from kinfolk_mla.prefill.geometry import FRAGMENTS, Geometry
from kinfolk_mla.prefill.queries import Queries
from kinfolk_mla.prefill.scores import Scores, key_steps
from kinfolk_mla.prefill.tiles import Tiles
from kinfolk_mla.prefill.values import Values, values_of

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
    status: Value
    out: Value
    lse: Value
    scale: Value
    k_scale: Value
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
class State:
    """At the start of round i: the scores of tile i are there, masked, and the keys of tile i+1 and the values of tile
    i staged, at `key_slot` and `value_slot`; `reads` are the first of those keys, `page` is this wave's part of tile
    i+2.
    """

    key_slot: Value
    value_slot: Value
    page: Page
    reads: list[Value]
    scores: list[Value]
    row: RowState
    output: list[Value]


@attrs.frozen(eq=False)
class Attention:
    """The stages of the kernel and the values they share."""

    spec: MlaPrefillSpec
    arguments: Arguments
    queries: Queries
    tiles: Tiles
    values: Values
    scores: Scores
    softmax: OnlineSoftmax

    @classmethod
    def of(cls, spec: MlaPrefillSpec, arguments: Arguments, queries: Queries) -> Attention:
        """Reserve workgroup memory and lay both products out."""
        geometry = queries.sequence.geometry
        values = values_of(spec, geometry, key_steps(spec, geometry))
        tiles = Tiles.of(spec, arguments, queries.sequence, values)
        masks = lanes_sharing(per_lane(geometry.atom.shape.c.columns, "the query of a score"))
        softmax = OnlineSoftmax.of(arguments.scale, masks, unit=arguments.k_scale)
        scores = Scores.of(spec, geometry, softmax, tiles.keys)
        return cls(spec, arguments, queries, tiles, values, scores, softmax)

    def run(self) -> None:
        """Form the first scores, walk the tiles that a query of the workgroup sees, store the rows."""
        query = self.queries.load(self.scores.contraction)
        seen = self.queries.seen_by_lane()
        count = self._tiles(self.queries.seen_by_workgroup() + (self.spec.tile_keys - 1))
        whole = arithmetic.smax(self._whole() - 1, constant(0, I32))
        runs = (
            Run(begin=0, end=whole, masked=False, unrolled=True),
            Run(begin=whole, end=count, masked=True),
        )

        def round_(tile: Value, state: State, masked: bool) -> State:
            return self._round(query, seen, tile, state, masked)

        last = walk(runs, self._start(query, seen), round_)
        inverse, lse = self.softmax.finish(last.row)
        self.queries.store(self.values, last.output, inverse, lse)

    def _tiles(self, keys: Value) -> Value:
        return keys // self.spec.tile_keys

    def _whole(self) -> Value:
        """Return how many tiles have no key that a query of the workgroup does not see, or that is not there."""
        return arithmetic.select(self._complete(), self._tiles(self.queries.seen_by_all()), constant(0, I32))

    def _complete(self) -> Value:
        """Whether every page is there. The expanding kernel has counted those that are not: then every tile is looked
        at.
        """
        return lanes.uniform(memory.load(self.arguments.status)).eq(0)

    def _start(self, query: Many[Value], seen: Value) -> State:
        """Stage the first tiles and form the scores of tile 0."""
        tiles, zero = self.tiles, constant(0, I32)
        numbers = [zero, zero + 1, zero + 2]
        identifiers = [tiles.lookup(number) for number in numbers]
        everywhere = tiles.lookup_all(zero)
        pages = [tiles.resolve(name, number) for name, number in zip(identifiers, numbers, strict=True)]
        key_slots, value_slots = tiles.key_slots, self.values.slots
        total = self.scores.start_at_zero()
        loaded: list[Value] = []
        do([*tiles.key_loads(pages[0], zero, loaded), *tiles.value_loads(zero, loaded)])
        keys, values = loaded[: tiles.key_pieces], loaded[tiles.key_pieces :]
        with parted(tiles.keys.buffer, later="read"):
            do([*tiles.key_stores(key_slots.begin, keys), *self.values.stores(value_slots.begin, values)])
            coming: list[Value] = []
            do(tiles.key_loads(pages[1], numbers[1], coming))
            Round(sections=[self._score_section(query, key_slots.begin, total)]).lay_out()
            second = key_slots.at(1 % key_slots.count)
            do(tiles.key_stores(second, coming))
        masked = self.scores.masked(total, seen, tiles.rows_of_all(everywhere, zero))
        maximum = self.softmax.tile_maximum(self.scores.elements(masked))
        row, _ = self.softmax.raise_maximum(RowState.start(), maximum)
        nothing = constant(0.0, VectorType(F32, self.queries.sequence.geometry.atom.shape.c.slots))
        reads = [value for read in first_reads(self._key_stream(second)) for value in read]
        return State(second, value_slots.begin, pages[2], reads, masked, row, [nothing] * FRAGMENTS)

    def _round(self, query: Many[Value], seen: Value, tile: Value, state: State, masked: bool) -> State:
        spec, tiles = self.spec, self.tiles
        with (
            round_of(spec.key_rotation, tiles.key_slots, state.key_slot) as keys,
            round_of(spec.value_rotation, self.values.slots, state.value_slot) as values,
        ):
            return self._laid_out(query, seen, tile, state, masked, keys, values)

    def _laid_out(
        self,
        query: Many[Value],
        seen: Value,
        tile: Value,
        state: State,
        masked: bool,
        keys: RoundSlots,
        values: RoundSlots,
    ) -> State:
        """Form the scores of the next tile, and between its matrix operations the weights of this one; then add its
        values up, while the tiles that are to come are written.
        """
        spec, tiles = self.spec, self.tiles
        everywhere = tiles.lookup_all(tile + 1) if masked else []
        identifiers: list[Value] = []
        key_pieces: list[Value] = []
        value_pieces: list[Value] = []
        loads = [
            lambda: identifiers.append(tiles.lookup(tile + 3)),
            *tiles.key_loads(state.page, tile + 2, key_pieces),
            *tiles.value_loads(tile + 1, value_pieces),
        ]
        weights: list[Value] = []
        total: list[Value] = []
        weighing = self.scores.weigh(state.scores, state.row, weights, total)
        first = len(weighing) - 2 * spec.weights_after
        scores = self.scores.start_at_zero()
        value_stream = Stream(read=self.values.reads(values.own), ahead=spec.value_read_ahead, tile=0)
        beside = Spread(jobs=loads, begin=0.1, end=0.8), Spread(jobs=weighing[:first])
        carried = Round(
            sections=[self._score_section(query, keys.own, scores, *beside)],
            carried=[
                state.reads[at : at + spec.reads_together] for at in range(0, len(state.reads), spec.reads_together)
            ],
            following=value_stream,
        ).lay_out()
        if spec.key_slots == 1:
            control.barrier()
        if masked:
            valid = tiles.rows_of_all(everywhere, tile + 1)
            scores = self.scores.masked(scores, seen - (tile + 1) * spec.tile_keys, valid)
        output, largest, pages = list(state.output), list[Value](), list[Page]()
        stores = [*tiles.key_stores(keys.ahead(1), key_pieces), *self.values.stores(values.ahead(1), value_pieces)]
        section = Section(
            units=self.values.units,
            use=self.values.use(weights, output),
            streams=(value_stream,),
            spreads=(
                Spread(jobs=weighing[first:], end=1 - FRAGMENTS / self.values.units),
                Spread(jobs=self.scores.largest(scores, largest), end=0.9),
                Spread(jobs=stores, writes=1),
                Spread(jobs=[lambda: pages.append(tiles.resolve(identifiers[0], tile + 3))], begin=0.5),
            ),
        )
        reads = Round(
            sections=[section],
            carried=carried,
            following=self._key_stream(keys.ahead(1), 1),
            meeting=Meeting(rotation=spec.meeting, units_after=spec.units_after_barrier),
        ).lay_out()
        row, output = self._corrected(RowState(state.row.maximum, total[0]), output, largest[0])
        return State(
            keys.ahead(1), values.ahead(1), pages[0], [value for read in reads for value in read], scores, row, output
        )

    def _key_stream(self, slot: Value, tile: int = 0) -> Stream:
        return Stream(read=self.scores.reads(slot), ahead=self.spec.key_read_ahead, tile=tile)

    def _score_section(self, query: Many[Value], slot: Value, total: list[Value], *spreads: Spread) -> Section:
        return Section(
            units=self.scores.units,
            use=self.scores.use(query, total),
            streams=(self._key_stream(slot),),
            fence_every=self.spec.fence_every,
            spreads=spreads,
        )

    def _corrected(self, row: RowState, output: list[Value], largest: Value) -> tuple[RowState, list[Value]]:
        """In the rare case, raise the maximum to that of the next tile.

        Whether it is the rare case needs no other lane's scores: some lane holds the one that exceeds.
        """

        def raised() -> tuple[RowState, list[Value]]:
            larger, factor = self.softmax.raise_maximum(row, across_lanes(largest, self.softmax.masks, arithmetic.fmax))
            return larger, scale_accumulators(output, factor)

        exceeds = lanes.any_lane(self.softmax.exceeds(row, largest))
        return branch(exceeds, raised, lambda: (row, output), cold=True)


def do(jobs: Many[Job]) -> None:
    """Do jobs at once, in order."""
    for job in jobs:
        job()
