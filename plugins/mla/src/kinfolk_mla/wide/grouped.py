"""MLA decode for fewer rows than a workgroup's waves could serve: two groups of waves take turns at the tiles.

A group forms the scores of its tile while its next one is on its way, then the weights, then adds the values. What both
groups have for the same rows is merged at the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import attrs

from kinfolk.ir.builder import constant
from kinfolk.ir.types import I32
from kinfolk.ir.value import Kernel, Value
from kinfolk.tile.parting import drain
from kinfolk.tile.slots import RoundSlots, round_of
from kinfolk.tile.softmax import OnlineSoftmax, RowState
from kinfolk.tile.state import loop
from kinfolk.tile.timeline import Meeting, Round, Section, Spread, Stream, first_reads
from kinfolk_mla.decode.epilogue import count_refused_pages
from kinfolk_mla.decode.frame import build
from kinfolk_mla.decode.sequence import Work
from kinfolk_mla.wide.attend import Attended, Attention
from kinfolk_mla.wide.direct import DirectRing
from kinfolk_mla.wide.merge import Merge
from kinfolk_mla.wide.ping_pong import PingPongLoop
from kinfolk_mla.wide.ring import Incoming, naming_jobs
from kinfolk_mla.wide.scores import ScoreUnits
from kinfolk_mla.wide.values import ValueUnits

if TYPE_CHECKING:
    from kinfolk.arch import Arch
    from kinfolk_mla.wide.spec import MlaGroupedSpec


def emit_grouped(spec: MlaGroupedSpec, arch: Arch) -> Kernel:
    """Build the kernel of `spec` from what `arch` has."""
    loop = GroupedLoop if spec.staging == "direct" else PingPongLoop
    return build(spec, arch, "either", lambda work: loop.of(work, spec).run)


@attrs.frozen(kw_only=True, eq=False)
class GroupState:
    """At the start of a round: the group's tile is staged in `slot`.

    `rows` are the valid rows of each of its pages, `following` the page ids of the group's next tile, `reads` the first
    key reads.
    """

    slot: Value
    rows: Sequence[Value]
    following: Sequence[Value]
    reads: Sequence[Value]
    attended: Attended


@attrs.frozen(eq=False)
class GroupedLoop:
    """The stages of the kernel and the values they share."""

    work: Work
    spec: MlaGroupedSpec
    ring: DirectRing
    scores: ScoreUnits
    values: ValueUnits
    attention: Attention

    @classmethod
    def of(cls, work: Work, spec: MlaGroupedSpec) -> GroupedLoop:
        """Reserve workgroup memory and set the stages up."""
        ring = DirectRing.of(work, spec.rotation.slots)
        softmax = OnlineSoftmax.of(work.arguments.scale, work.geometry.head_masks, unit=work.arguments.k_scale)
        scores, values = ScoreUnits.of(work, ring.parts), ValueUnits.of(work.geometry, ring.latent)
        return cls(work, spec, ring, scores, values, Attention(work, ring.pages, scores, values, softmax, work.sight()))

    def run(self) -> None:
        """Stage each group's first tile, walk the tiles, merge and store the rows."""
        start, groups = self._start(), self.spec.key_groups
        rounds = (self.ring.pages.tiles + (groups - 1)) // groups
        attended = loop(0, rounds, start, lambda number, now: self._step(self._tile(number), now)).attended
        drain()
        count_refused_pages(self.work, attended.refused)
        merge = Merge(self.work, self.attention.softmax, self.values.operand, self.ring.latent.buffer)
        merge.store(attended.rows, attended.output)

    def _tile(self, number: Value) -> Value:
        """Return the group's tile of a round."""
        return number * self.spec.key_groups + self.work.group

    def _start(self) -> GroupState:
        pages, slot, zero = self.ring.pages, self.ring.slots.begin, constant(0, I32)
        first = self._tile(zero)
        tile = pages.resolve(pages.lookup(first), first)
        self.ring.fill([tile], Incoming())
        reads = first_reads(self._key_stream(slot))
        total = self.scores.start()
        return GroupState(
            slot=slot,
            rows=[page.rows for page in tile],
            following=pages.lookup(first + self.spec.key_groups),
            reads=[value for read in reads for value in read],
            attended=Attended(zero, [], [RowState.start() for _ in total], self.values.start()),
        )

    def _step(self, tile: Value, state: GroupState) -> GroupState:
        with round_of(self.spec.rotation, self.ring.slots, state.slot) as slots:
            return self._round(tile, state, slots)

    def _round(self, tile: Value, state: GroupState, slots: RoundSlots) -> GroupState:
        ring, groups, incoming, before = self.ring, self.spec.key_groups, Incoming(), state.attended
        upcoming = slots.ahead(1)
        staging = [
            *naming_jobs(ring.pages, tile + groups, state.following, incoming, step=groups),
            *ring.calls(incoming.pages, upcoming),
        ]
        total, largest = self.scores.start(), list[Value]()
        value_stream = Stream(read=self.values.reads(state.slot), ahead=self.spec.value_read_ahead, tile=0)
        first = Round(
            sections=[
                Section(
                    units=self.scores.units,
                    use=self.scores.use(total),
                    streams=(self._key_stream(state.slot),),
                    fence_every=self.spec.fence_every,
                    spreads=(Spread(jobs=staging, end=0.6, writes=1),),
                )
            ],
            carried=[[read] for read in state.reads],
            following=value_stream,
        ).lay_out()
        for job in self.attention.largest(total, largest):
            job()
        scored = Attended(before.refused, total, before.rows, before.output)
        scored = self.attention.correct(tile, scored, state.rows, largest)
        weights, rows, jobs = self.attention.weigh(scored.scores, scored.rows)
        for job in jobs:
            job()
        output = list(scored.output)
        reads = Round(
            sections=[
                Section(
                    units=self.values.units,
                    use=self.values.use(weights, output),
                    streams=(value_stream,),
                    fence_every=1,
                )
            ],
            carried=first,
            following=self._key_stream(upcoming, 1),
            meeting=Meeting(rotation=self.spec.rotation, units_after=self.spec.units_after_barrier),
        ).lay_out()
        return GroupState(
            slot=upcoming,
            rows=[page.rows for page in incoming.pages],
            following=incoming.following,
            reads=[value for read in reads for value in read],
            attended=Attended(scored.refused, [], rows, output),
        )

    def _key_stream(self, slot: Value, tile: int = 0) -> Stream:
        return Stream(read=self.scores.reads(slot), ahead=self.spec.key_read_ahead, tile=tile)
