"""MLA decode with the scores one tile ahead: while the values of a tile are added up, the next tile's scores are there.

A round forms the scores of tile i+1 and, between their matrix operations, the weights of tile i; then it adds the
values of tile i, whose rows it reads transposed from the same bytes. Tile i+2 is on its way to the ring and tile i+3
asked for meanwhile. The waves meet once a round.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import attrs

from kinfolk.ir.builder import constant
from kinfolk.ir.types import I32
from kinfolk.ir.value import Kernel, Value
from kinfolk.tile.parting import drain
from kinfolk.tile.slots import RoundSlots, round_of
from kinfolk.tile.softmax import OnlineSoftmax, RowState
from kinfolk.tile.state import loop
from kinfolk.tile.timeline import Job, Meeting, Round, Section, Spread, Stream, first_reads
from kinfolk_mla.decode.epilogue import count_refused_pages, store_rows
from kinfolk_mla.decode.frame import build
from kinfolk_mla.decode.sequence import Work
from kinfolk_mla.wide.attend import Attended, Attention
from kinfolk_mla.wide.direct import DirectRing
from kinfolk_mla.wide.ring import Incoming, Ring, Staged
from kinfolk_mla.wide.scores import ScoreUnits
from kinfolk_mla.wide.spec import KEYS, VALUES
from kinfolk_mla.wide.state import State
from kinfolk_mla.wide.through_registers import RegisterRing
from kinfolk_mla.wide.values import ValueUnits

if TYPE_CHECKING:
    from kinfolk.arch import Arch
    from kinfolk_mla.wide.spec import MlaPipelinedSpec

RINGS: Final[Mapping[str, Callable[[Work, int], Ring]]] = {"registers": RegisterRing.of, "direct": DirectRing.of}


def emit_pipelined(spec: MlaPipelinedSpec, arch: Arch) -> Kernel:
    """Build the kernel of `spec` from what `arch` has."""
    return build(spec, arch, "either", lambda work: PipelinedLoop.of(work, spec).run)


@attrs.frozen(eq=False)
class PipelinedLoop:
    """The stages of the kernel and the values they share."""

    work: Work
    spec: MlaPipelinedSpec
    ring: Ring
    scores: ScoreUnits
    values: ValueUnits
    attention: Attention

    @classmethod
    def of(cls, work: Work, spec: MlaPipelinedSpec) -> PipelinedLoop:
        """Reserve workgroup memory and set the stages up."""
        ring = RINGS[spec.staging](work, spec.rotation.slots)
        softmax = OnlineSoftmax.of(work.arguments.scale, work.geometry.head_masks, unit=work.arguments.k_scale)
        scores, values = ScoreUnits.of(work, ring.parts), ValueUnits.of(work.geometry, ring.latent)
        attention = Attention(work, ring.pages, scores, values, softmax, work.sight())
        return cls(work, spec, ring, scores, values, attention)

    def run(self) -> None:
        """Fill the pipeline, walk the tiles, store the rows."""
        start = self._start()
        attended = loop(0, self.ring.pages.tiles, start, self._step).attended
        drain()
        count_refused_pages(self.work, attended.refused)
        store_rows(self.work, self.attention.softmax, attended.rows, self.values.operand, attended.output)

    def _start(self) -> State:
        """Stage the first tiles and form the scores of tile 0."""
        pages = self.ring.pages
        numbers = [constant(number, I32) for number in range(4)]
        identifiers = [pages.lookup(number) for number in numbers]
        tiles = [pages.resolve(identifiers[number], numbers[number]) for number in range(3)]
        incoming = Incoming()
        self.ring.fill(tiles, incoming)
        total = self.scores.start()
        Round(sections=[self._score_section(self.ring.slots.begin, total, ())]).lay_out()
        rows = [[page.rows for page in tile] for tile in tiles]
        nothing = Attended(numbers[0], total, [RowState.start() for _ in total], [])
        scored = self.attention.raised(numbers[0], nothing, rows[0])
        reads = first_reads(self._key_stream(self.ring.slots.at(1)))
        return State(
            slot=self.ring.slots.begin,
            next_rows=rows[1],
            staged_rows=rows[2],
            following=identifiers[3],
            loaded=incoming.loaded,
            reads=[value for read in reads for value in read],
            attended=attrs.evolve(scored, output=self.values.start()),
        )

    def _step(self, tile: Value, state: State) -> State:
        with round_of(self.spec.rotation, self.ring.slots, state.slot) as slots:
            return self._round(tile, state, slots)

    def _round(self, tile: Value, state: State, slots: RoundSlots) -> State:
        ring, incoming, attended = self.ring, Incoming(), state.attended
        upcoming = slots.ahead(KEYS)
        staged = ring.jobs(slots, tile, state.loaded, state.following, incoming)
        total = self.scores.start()
        weights, rows, weight_jobs = self.attention.weigh(attended.scores, attended.rows)
        output = list(attended.output)
        largest: list[Value] = []
        beside = (Spread(jobs=weight_jobs, end=0.9), *staged.beside_scores)
        round_ = Round(
            sections=[
                self._score_section(upcoming, total, beside),
                self._value_section(slots, weights, output, staged, self.attention.largest(total, largest)),
            ],
            carried=[[read] for read in state.reads],
            following=self._key_stream(slots.ahead(KEYS + 1), KEYS + 1),
            meeting=Meeting(rotation=self.spec.rotation, units_after=self.spec.units_after_barrier),
        )
        reads = round_.lay_out()
        scored = Attended(attended.refused, total, rows, output)
        return State(
            slot=upcoming,
            next_rows=state.staged_rows,
            staged_rows=[page.rows for page in incoming.pages],
            following=incoming.following,
            loaded=incoming.loaded,
            reads=[value for read in reads for value in read],
            attended=self.attention.correct(tile, scored, state.next_rows, largest, ahead=1),
        )

    def _key_stream(self, slot: Value, tile: int = KEYS) -> Stream:
        return Stream(read=self.scores.reads(slot), ahead=self.spec.key_read_ahead, tile=tile)

    def _score_section(self, slot: Value, total: list[Value], spreads: Sequence[Spread]) -> Section:
        return Section(
            units=self.scores.units,
            use=self.scores.use(total),
            streams=(self._key_stream(slot),),
            fence_every=self.spec.fence_every,
            spreads=spreads,
        )

    def _value_section(
        self, slots: RoundSlots, weights: Sequence[Value], output: list[Value], staged: Staged, largest: Sequence[Job]
    ) -> Section:
        return Section(
            units=self.values.units,
            use=self.values.use(weights, output),
            streams=(
                Stream(read=self.values.reads(slots.ahead(VALUES)), ahead=self.spec.value_read_ahead, tile=VALUES),
            ),
            fence_every=1,
            spreads=(*staged.beside_values, Spread(jobs=largest, end=0.8)),
        )
