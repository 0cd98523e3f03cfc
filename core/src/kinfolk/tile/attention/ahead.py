"""Rounds over tiles of keys and values, the scores one tile ahead.

A round forms the scores of tile i+1 and, between their matrix operations, the weights of tile i; then it adds the
values of tile i, while the keys of tile i+2 and the values of tile i+1, asked for in this round, are written to
workgroup memory.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Many
from typing import Generic, Protocol, TypeVar

import attrs

from kinfolk.ir.builder import constant
from kinfolk.ir.ops import arithmetic, control, lanes
from kinfolk.ir.types import F32, I32, VectorType
from kinfolk.ir.value import Value
from kinfolk.tile.attention.schedule import Schedule, meeting_of, rotation
from kinfolk.tile.attention.scores import TileScores
from kinfolk.tile.attention.values import Values
from kinfolk.tile.parting import parted
from kinfolk.tile.reduction import across_lanes
from kinfolk.tile.runs import Run, edges_and_interior, walk
from kinfolk.tile.slots import RoundSlots, Slots, round_of
from kinfolk.tile.softmax import OnlineSoftmax, RowState, scale_accumulators
from kinfolk.tile.state import branch
from kinfolk.tile.timeline import Job, Meeting, Round, Section, Spread, Stream, first_reads
from kinfolk.tile.workgroup_tile import WorkgroupTile

Place = TypeVar("Place")
"""Where a tile lies in global memory, as a state (`tile.state`): the page that it is a part of; None where that follows
from its number.
"""


class Feed(Protocol[Place]):
    """Tiles by number on their way to workgroup memory; keys go to a ring of their own, `key_pieces` vectors a thread.

    Where a tile lies is asked for by loads first (`lookups`), and known when these have come (`resolve`).
    """

    @property
    def keys(self) -> WorkgroupTile: ...
    @property
    def key_slots(self) -> Slots: ...
    @property
    def key_pieces(self) -> int: ...
    def lookups(self, tile: Value) -> list[Value]:
        """Issue the loads that say where this thread's part of a tile lies."""
        ...

    def resolve(self, found: Many[Value], tile: Value) -> Place:
        """Return where it lies."""
        ...

    def key_loads(self, place: Place, tile: Value, loaded: list[Value]) -> list[Job]:
        """Return the jobs that issue this thread's loads of a tile of keys."""
        ...

    def key_stores(self, slot: Value, loaded: Many[Value]) -> list[Job]:
        """Return the jobs that write what was loaded to a slot."""
        ...

    def value_place(self, place: Place) -> Place | None:
        """Return what is kept of a tile's place until its values are loaded, a round after its keys: None where that
        takes nothing.
        """
        ...

    def value_loads(self, place: Place | None, tile: Value, loaded: list[Value]) -> list[Job]:
        """Return the jobs that issue this thread's loads of a tile of values, `place` being what was kept."""
        ...


class Mask(Protocol):
    """Which keys of a tile a lane's query sees."""

    def ask(self, tile: Value) -> list[Value]:
        """Issue the loads that it takes to know."""
        ...

    def first(self, scores: list[Value], asked: Many[Value]) -> list[Value]:
        """Return the scores of the first tile, with -inf for keys that are not seen."""
        ...

    def following(self, scores: list[Value], asked: Many[Value], tile: Value) -> list[Value]:
        """Return the scores of the tile behind `tile` likewise."""
        ...


@attrs.frozen(eq=False)
class State(Generic[Place]):
    """At the start of round i: the scores of tile i are there, masked, and the keys of tile i+1 and the values of tile
    i staged, at `key_slot` and `value_slot`; `reads` are the first of those keys, `place` is this thread's part of tile
    i+2, `value_place` what is kept of that of tile i+1.
    """

    key_slot: Value
    value_slot: Value
    place: Place
    value_place: Place | None
    reads: list[Value]
    scores: list[Value]
    row: RowState
    output: list[Value]


@attrs.frozen(eq=False)
class ScoresAhead(Generic[Place]):
    """The stages of the loop and the values they share; `query` is a lane's query as operands B. `bend` makes scores of
    products, where they are more than that: of those of the tile so many behind one.
    """

    schedule: Schedule
    feed: Feed[Place]
    values: Values
    scores: TileScores
    softmax: OnlineSoftmax
    mask: Mask
    query: Many[Value]
    bend: Callable[[list[Value], Value, int], list[Value]] | None = None

    def walked(self, whole: Value, count: Value, whole_begin: Value | None = None) -> State[Place]:
        """Form the first scores, walk tiles 0 to `count`, and return the last state. Tiles from `whole_begin`, or 0, to
        below `whole` have no key that a query of the workgroup does not see.

        A row that has no key in tile 0 begins under the lowest maximum, which any score raises that is no rounding off
        it: none needs a total to know that it is the first.
        """
        if whole_begin is None:
            unmasked = arithmetic.smax(whole - 1, constant(0, I32))
            runs = (
                Run(begin=0, end=unmasked, masked=False, unrolled=True),
                Run(begin=unmasked, end=count, masked=True),
            )
        else:
            # A round forms the scores of the tile behind its own.
            edges = edges_and_interior(0, whole_begin - 1, whole - 1, count)
            runs = tuple(attrs.evolve(run, unrolled=not run.masked) for run in edges)
        return walk(runs, self._start(), self._round)

    def _start(self) -> State[Place]:
        """Stage the first tiles and form the scores of tile 0."""
        feed, zero = self.feed, constant(0, I32)
        numbers = [zero, zero + 1, zero + 2]
        found = [feed.lookups(number) for number in numbers]
        asked = self.mask.ask(zero)
        places = [feed.resolve(each, number) for each, number in zip(found, numbers, strict=True)]
        key_slots, value_slots = feed.key_slots, self.values.slots
        total = self.scores.start_at_zero()
        loaded: list[Value] = []
        do([*feed.key_loads(places[0], zero, loaded), *feed.value_loads(feed.value_place(places[0]), zero, loaded)])
        keys, values = loaded[: feed.key_pieces], loaded[feed.key_pieces :]
        with parted(feed.keys.buffer, later="read"):
            do([*feed.key_stores(key_slots.begin, keys), *self.values.stores(value_slots.begin, values)])
            coming: list[Value] = []
            do(feed.key_loads(places[1], numbers[1], coming))
            Round(sections=[self._score_section(key_slots.begin, total)]).lay_out()
            second = key_slots.at(1 % key_slots.count)
            do(feed.key_stores(second, coming))
        masked = self.mask.first(self._bent(total, zero, 0), asked)
        row = self.softmax.begun(self.softmax.tile_maximum(self.scores.elements(masked)))
        nothing = constant(0.0, VectorType(F32, self.scores.frame.atom.shape.c.slots))
        reads = [value for read in first_reads(self._key_stream(second)) for value in read]
        output = [nothing] * self.values.fragments
        kept = feed.value_place(places[1])
        return State(second, value_slots.begin, places[2], kept, reads, masked, row, output)

    def _round(self, tile: Value, state: State[Place], masked: bool) -> State[Place]:
        schedule = self.schedule
        with (
            round_of(rotation(schedule, schedule.key_slots), self.feed.key_slots, state.key_slot) as keys,
            round_of(rotation(schedule, schedule.value_slots), self.values.slots, state.value_slot) as values,
        ):
            return self._laid_out(tile, state, masked, keys, values)

    def _laid_out(
        self, tile: Value, state: State[Place], masked: bool, keys: RoundSlots, values: RoundSlots
    ) -> State[Place]:
        """Form the scores of the next tile, and between its matrix operations the weights of this one; then add its
        values up, while the tiles that are to come are written.
        """
        schedule, feed = self.schedule, self.feed
        asked = self.mask.ask(tile + 1) if masked else []
        found: list[Value] = []
        key_pieces: list[Value] = []
        value_pieces: list[Value] = []
        loads = [
            lambda: found.extend(feed.lookups(tile + 3)),
            *feed.key_loads(state.place, tile + 2, key_pieces),
            *feed.value_loads(state.value_place, tile + 1, value_pieces),
        ]
        weights: list[Value] = []
        total: list[Value] = []
        weighing = self.scores.weigh(state.scores, state.row, weights, total)
        first = len(weighing) - 2 * schedule.weights_after
        scores = self.scores.start_at_zero()
        value_stream = Stream(read=self.values.reads(values.own), ahead=schedule.value_read_ahead, tile=0)
        beside = Spread(jobs=loads, begin=0.1, end=0.8), Spread(jobs=weighing[:first])
        together = schedule.reads_together
        carried = Round(
            sections=[self._score_section(keys.own, scores, *beside)],
            carried=[state.reads[at : at + together] for at in range(0, len(state.reads), together)],
            following=value_stream,
        ).lay_out()
        if schedule.key_slots == 1:
            control.barrier()
        scores = self._bent(scores, tile, 1)
        if masked:
            scores = self.mask.following(scores, asked, tile)
        output, largest, places = list(state.output), list[Value](), list[Place]()
        stores = [*feed.key_stores(keys.ahead(1), key_pieces), *self.values.stores(values.ahead(1), value_pieces)]
        section = Section(
            units=self.values.units,
            use=self.values.use(weights, output),
            streams=(value_stream,),
            spreads=(
                Spread(jobs=weighing[first:], end=1 - self.values.fragments / self.values.units),
                Spread(jobs=self.scores.largest(scores, largest), end=0.9),
                Spread(jobs=stores, writes=1),
                Spread(jobs=[lambda: places.append(feed.resolve(found, tile + 3))], begin=0.5),
            ),
        )
        reads = Round(
            sections=[section],
            carried=carried,
            following=self._key_stream(keys.ahead(1), 1),
            meeting=Meeting(rotation=meeting_of(schedule), units_after=schedule.units_after_barrier),
        ).lay_out()
        row, output = self._corrected(attrs.evolve(state.row, total=total[0]), output, largest[0])
        following = [value for read in reads for value in read]
        kept = feed.value_place(state.place)
        return State(keys.ahead(1), values.ahead(1), places[0], kept, following, scores, row, output)

    def _bent(self, products: list[Value], tile: Value, behind: int) -> list[Value]:
        return products if self.bend is None else self.bend(products, tile, behind)

    def _key_stream(self, slot: Value, tile: int = 0) -> Stream:
        return Stream(read=self.scores.reads(slot), ahead=self.schedule.key_read_ahead, tile=tile)

    def _score_section(self, slot: Value, total: list[Value], *spreads: Spread) -> Section:
        return Section(
            units=self.scores.units,
            use=self.scores.use(self.query, total),
            streams=(self._key_stream(slot),),
            fence_every=self.schedule.fence_every,
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
