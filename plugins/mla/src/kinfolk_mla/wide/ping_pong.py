"""MLA decode by two groups of waves that share one ring of tiles, half a round apart.

While a group forms the scores of its tile, the other adds the values of the one before. All waves stage one tile each
half round, so that three slots are enough, and each wave carries one tile's vectors at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import attrs

from kinfolk.ir.builder import constant
from kinfolk.ir.ops import arithmetic
from kinfolk.ir.types import I32
from kinfolk.ir.value import Value
from kinfolk.tile.slots import RoundSlots, round_of
from kinfolk.tile.softmax import OnlineSoftmax, RowState
from kinfolk.tile.stagger import Stagger
from kinfolk.tile.state import loop
from kinfolk.tile.timeline import Job, Meeting, Round, Section, Spread, Stream, first_reads
from kinfolk_mla.decode.epilogue import count_refused_pages
from kinfolk_mla.decode.sequence import Work
from kinfolk_mla.wide.attend import Attended, Attention
from kinfolk_mla.wide.merge import Merge
from kinfolk_mla.wide.ring import Incoming, naming_jobs
from kinfolk_mla.wide.scores import ScoreUnits
from kinfolk_mla.wide.through_registers import RegisterRing, do
from kinfolk_mla.wide.values import ValueUnits

if TYPE_CHECKING:
    from kinfolk_mla.wide.spec import MlaGroupedSpec

HALF = "half"
"""Where the waves meet: one group after its first product, the other in its second."""


@attrs.frozen(kw_only=True, eq=False)
class HalfState:
    """At the start of a group's round: its tile i is staged in `slot`, tile i+1 in registers.

    `rows` are the valid rows of tile i, `following` the page id of tile i+2, `loaded` what this thread carries of tile
    i+1, `reads` the first key reads of tile i.
    """

    slot: Value
    rows: Sequence[Value]
    following: Sequence[Value]
    loaded: Sequence[Value]
    reads: Sequence[Value]
    attended: Attended


@attrs.frozen(eq=False)
class PingPongLoop:
    """The stages of the kernel and the values they share."""

    work: Work
    spec: MlaGroupedSpec
    ring: RegisterRing
    scores: ScoreUnits
    values: ValueUnits
    attention: Attention

    @classmethod
    def of(cls, work: Work, spec: MlaGroupedSpec) -> PingPongLoop:
        """Reserve workgroup memory and set the stages up."""
        ring = RegisterRing.of(work, spec.rotation.slots)
        softmax = OnlineSoftmax.of(work.arguments.scale, work.geometry.head_masks, unit=work.arguments.k_scale)
        scores, values = ScoreUnits.of(work, ring.parts), ValueUnits.of(work.geometry, ring.latent)
        return cls(work, spec, ring, scores, values, Attention(work, ring.pages, scores, values, softmax, work.sight()))

    def run(self) -> None:
        """Let the second group fall half a round behind, walk the tiles, let the first wait for it, merge.

        There is a round even without keys: the second group's first reads are of what the first writes in it.
        """
        start, groups = self._start(), self.spec.key_groups
        rounds = (self.ring.pages.tiles + (groups - 1)) // groups
        attended = loop(
            0,
            arithmetic.smax(rounds, constant(1, I32)),
            start,
            lambda number, now: self._step(number * groups + self.work.group, now),
        ).attended
        self._stagger.catch_up()
        count_refused_pages(self.work, attended.refused)
        merge = Merge(self.work, self.attention.softmax, self.values.operand, self.ring.latent.buffer)
        merge.store(attended.rows, attended.output)

    @property
    def _stagger(self) -> Stagger:
        return Stagger(group=self.work.group, place=HALF)

    def _start(self) -> HalfState:
        """Stage tile 0; the second group waits for the first to be half a round ahead, and stages tile 1 meanwhile."""
        pages, slots = self.ring.pages, self.ring.slots
        numbers = [constant(number, I32) for number in range(4)]
        identifiers = [pages.lookup(number) for number in numbers[:3]]
        tiles = [pages.resolve(identifiers[number], numbers[number]) for number in range(2)]
        incoming = Incoming()
        self.ring.fill(tiles, incoming)

        def fall_behind() -> list[Value]:
            behind = Incoming()
            do(self.ring.stores(slots.at(1), incoming.loaded))
            do(naming_jobs(pages, numbers[2], identifiers[2], behind))
            do(self.ring.loads(behind.pages, behind.loaded))
            return [*behind.following, *behind.loaded]

        later = self._stagger.fall_behind(fall_behind, lambda: [*identifiers[2], *incoming.loaded])
        second = self.work.group.eq(1)
        slot = arithmetic.select(second, slots.at(1), slots.begin)
        rows = [
            arithmetic.select(second, late.rows, early.rows) for early, late in zip(tiles[0], tiles[1], strict=True)
        ]
        names = len(identifiers[2])
        reads = first_reads(self._key_stream(slot))
        heads = [RowState.start() for _ in range(self.work.geometry.head_tiles)]
        return HalfState(
            slot=slot,
            rows=rows,
            following=later[:names],
            loaded=later[names:],
            reads=[value for read in reads for value in read],
            attended=Attended(numbers[0], [], heads, self.values.start()),
        )

    def _staging(
        self, slot: Value, loaded: Sequence[Value], tile: Value, following: Sequence[Value], incoming: Incoming
    ) -> list[Job]:
        """Return the jobs of a half round: write the tile that is there to `slot`, ask for tile `tile`."""
        return [
            *self.ring.stores(slot, loaded),
            *naming_jobs(self.ring.pages, tile, following, incoming),
            *self.ring.loads(incoming.pages, incoming.loaded),
        ]

    def _step(self, tile: Value, state: HalfState) -> HalfState:
        with round_of(self.spec.rotation, self.ring.slots, state.slot, self.spec.key_groups) as slots:
            return self._round(tile, state, slots)

    def _round(self, tile: Value, state: HalfState, slots: RoundSlots) -> HalfState:
        before, own, other, rotation = state.attended, Incoming(), Incoming(), self.spec.rotation
        total, largest = self.scores.start(), list[Value]()
        staging = self._staging(slots.ahead(1), state.loaded, tile + 2, state.following, own)
        Round(
            sections=[
                Section(
                    units=self.scores.units,
                    use=self.scores.use(total),
                    streams=(self._key_stream(state.slot),),
                    fence_every=self.spec.fence_every,
                    spreads=(Spread(jobs=staging, writes=1),),
                )
            ],
            carried=[[read] for read in state.reads],
            meeting=Meeting(rotation=rotation, units_after=0, place=HALF),
        ).lay_out()
        stream = Stream(read=self.values.reads(state.slot), ahead=self.spec.value_read_ahead, tile=-1)
        first = first_reads(stream)
        do(self.attention.largest(total, largest))
        scored = Attended(before.refused, total, before.rows, before.output)
        scored = self.attention.correct(tile, scored, state.rows, largest)
        weights, rows, jobs = self.attention.weigh(scored.scores, scored.rows)
        do(jobs)
        output = list(scored.output)
        upcoming = slots.ahead(2)
        staging = self._staging(upcoming, own.loaded, tile + 3, own.following, other)
        reads = Round(
            sections=[
                Section(
                    units=self.values.units,
                    use=self.values.use(weights, output),
                    streams=(stream,),
                    fence_every=1,
                    spreads=(Spread(jobs=staging, end=0.83, writes=1),),
                )
            ],
            carried=first,
            following=self._key_stream(upcoming, 1),
            meeting=Meeting(rotation=rotation, units_after=self.spec.units_after_barrier, place=HALF),
        ).lay_out()
        return HalfState(
            slot=upcoming,
            rows=[page.rows for page in own.pages],
            following=other.following,
            loaded=other.loaded,
            reads=[value for read in reads for value in read],
            attended=Attended(scored.refused, [], rows, output),
        )

    def _key_stream(self, slot: Value, tile: int = 0) -> Stream:
        return Stream(read=self.scores.reads(slot), ahead=self.spec.key_read_ahead, tile=tile)
