"""Rounds of a pipeline over a ring of tiles: where the barrier may stand, right and without a race, and one unit past
that on either side, where the sanitizer must see one.

The waves read what the others wrote. Past the edges the toolkit is kept from refusing, and from moving anything.
"""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
from attrs import evolve
from engine_pair import run_both
from workgroup_toy import STAGE, WAIT

from kinfolk.errors import IRError
from kinfolk.ir import build_kernel
from kinfolk.ir.builder import constant
from kinfolk.ir.ops import control, lanes, memory
from kinfolk.ir.types import I32
from kinfolk.tile import passage, timeline
from kinfolk.tile.rotation import Rotation
from kinfolk.tile.slots import Slots, round_of
from kinfolk.tile.state import loop
from kinfolk.tile.timeline import Meeting, Round, Section, Spread, Stream, first_reads, wait_for_tiles
from kinfolk.tile.unrolled import unrolled_loop

ROUNDS, UNITS, AHEAD, WAVES = 9, 3, 2, 2


class Pipeline:
    """Rounds that add up what they read of their own tile and the next, writing or asking for one further in front.

    `carried`: the next tile is read ahead across rounds, past the barrier; else it is read in the second section.
    """

    def __init__(self, toy, rotation, left, *, carried=True, calls=1, walk=loop):
        self.toy, self.rotation, self.left, self.carried, self.calls = toy, rotation, left, carried, calls
        self.walk, self.threads = walk, WAVES * toy.wave
        self.arch = evolve(toy.arch, ops=(*toy.arch.ops, STAGE, WAIT), roles={"wait_staged": WAIT})
        self.waits: list[int] = []

    def built(self, declare):
        parameters = (declare("x", I32), declare("y", I32, "write"))
        kernel = build_kernel("k", parameters, arch=self.arch, block=self.threads, body=self.body)
        self.waits = [op.attributes["outstanding"] for op in kernel.walk() if op.name == "toy.wait"]
        return kernel

    def body(self, x, y):
        self.x, self.thread, self.first = x, lanes.thread_id(), lanes.wave_id() * self.toy.wave
        size = self.threads * self.calls
        self.buffer = memory.allocate(I32, self.rotation.slots * size)
        slots = Slots(begin=constant(0, I32), count=self.rotation.slots, elements=size)
        (writes,) = self.rotation.writes
        for tile in range(writes):
            for job in self.jobs(slots.at(tile), constant(tile, I32)):
                job()
        if self.rotation.direct:
            wait_for_tiles()
        control.barrier()
        reads = first_reads(self.stream(slots.at(1), 1)) if self.carried else []
        start = [slots.begin, constant(0, I32), *(value for read in reads for value in read)]
        ended = self.walk(0, ROUNDS, start, lambda number, now: self.round(slots, number, now))
        if self.rotation.direct:
            wait_for_tiles()
        memory.store(memory.offset(y, self.thread), ended[1])

    def round(self, slots, number, now):
        slot, self.total, *carried = now
        (writes,) = self.rotation.writes
        with round_of(self.rotation, slots, slot) as ring:
            jobs = Spread(jobs=self.jobs(ring.ahead(writes), number + writes), writes=writes)
            own, next_ = self.section(ring, 0), self.section(ring, 1)
            sections = [next_, own] if self.carried else [own, next_]
            place = 0 if not self.rotation.direct else 1
            sections[place] = evolve(sections[place], spreads=(jobs,))
            reads = Round(
                sections=sections,
                carried=[[value] for value in carried],
                following=self.stream(ring.ahead(2), 2) if self.carried else None,
                meeting=Meeting(rotation=self.rotation, units_after=self.left),
            )
            self.legal = reads.units_after()
            found = reads.lay_out()
            return [ring.ahead(1), self.total, *(value for read in found for value in read)]

    def section(self, ring, tile):
        def use(unit, values):
            self.total = self.total + values[0] * (10 * tile + unit + 1)

        return Section(units=UNITS, use=use, streams=(self.stream(ring.ahead(tile), tile),))

    def stream(self, slot, tile):
        """Unit u reads what the thread 3 u + 1 further wrote."""

        def read(unit):
            index = slot + ((self.thread + 3 * unit + 1) & (self.threads - 1))
            return [memory.workgroup_load(self.buffer, index, offset=unit % self.calls * self.threads)]

        return Stream(read=read, ahead=AHEAD if self.carried or tile == 0 else 0, tile=tile)

    def jobs(self, slot, tile):
        def job(call):
            source = memory.offset(self.x, (tile * self.calls + call) * self.threads + self.thread)
            if self.rotation.direct:
                STAGE.add(source, self.buffer, slot + self.first, count=1, offset=call * self.threads)
            else:
                memory.workgroup_store(self.buffer, slot + self.thread, memory.load(source), offset=call * self.threads)

        return [lambda call=call: job(call) for call in range(self.calls)]

    def data(self):
        tiles = ROUNDS + self.rotation.writes[0]
        return np.random.default_rng(3).integers(0, 99, (tiles, self.calls, self.threads)).astype(np.int32)

    def expected(self):
        """By definition, a tile after the other."""
        x, total = self.data(), np.zeros(self.threads, np.int64)
        for number in range(ROUNDS):
            for tile in (0, 1):
                for unit in range(UNITS):
                    read = np.roll(x[number + tile, unit % self.calls], -(3 * unit + 1))
                    total += read * (10 * tile + unit + 1)
        return total

    def run(self, declare):
        """Return what both engines find wrong, None where nothing is and the result is right."""
        y = np.zeros(self.threads, np.int32)
        arrays = []

        def arguments():
            arrays.append([self.data().reshape(-1), y.copy()])
            return arrays[-1]

        fault, _ = run_both(self.built(declare), (1, 1, 1), arguments)
        if fault is None:
            assert (arrays[0][1] == self.expected()).all()
        return fault.kind if fault else None


@contextlib.contextmanager
def planted(monkeypatch, *, moved: bool = False):
    """Lay out whatever is asked for: nothing is refused, and nothing moved to its side unless `moved`."""
    with monkeypatch.context() as patch:
        patch.setattr(timeline, "_meeting_place", lambda round_: 2 * UNITS - round_.meeting.units_after)
        patch.setattr(passage, "_check", lambda *_: None)
        if not moved:
            patch.setattr(timeline, "_stands", lambda *_: True)
        yield


RING = Rotation(slots=3, reads=(1, 0, 2), writes=(2,))
PAIR = Rotation(slots=2, reads=(0, 1), writes=(1,))
DIRECT = Rotation(slots=4, reads=(1, 0, 2), writes=(3,), direct=True)
TIGHT = Rotation(slots=3, reads=(1, 0, 2), writes=(2,), direct=True)
EARLY = Rotation(slots=5, reads=(1, 0, 2), writes=(4,), direct=True)


@pytest.mark.parametrize(
    ("rotation", "carried", "legal"),
    [
        (RING, True, range(AHEAD + 1)),
        (PAIR, False, range(UNITS, UNITS + 3)),
        (DIRECT, True, range(2 * UNITS + 1)),
        (EARLY, True, range(2 * UNITS + 1)),
    ],
)
def test_the_barrier_anywhere_it_may_stand_is_right_and_no_race(any_toy, declare, rotation, carried, legal):
    """Both edges and all between."""
    for left in (*legal, None):
        pipeline = Pipeline(any_toy, rotation, left, carried=carried)
        assert pipeline.run(declare) is None
        assert pipeline.legal == legal


@pytest.mark.parametrize(
    ("rotation", "carried", "left"),
    [(RING, True, AHEAD + 1), (RING, True, 0), (PAIR, False, UNITS - 1), (PAIR, False, UNITS + 3)],
)
def test_one_unit_too_far_on_either_side_is_a_race(any_toy, declare, monkeypatch, rotation, carried, left):
    """At the end of a round, that is one with the next round's first reads before it, where they would stand."""
    with planted(monkeypatch):
        assert Pipeline(any_toy, rotation, left, carried=carried).run(declare) == "race"
    if left:
        with pytest.raises(IRError, match="units are left when the waves meet"):
            Pipeline(any_toy, rotation, left, carried=carried).built(declare)


@pytest.mark.parametrize(
    ("rotation", "carried", "left"),
    [(RING, True, AHEAD + 1), (RING, True, 0), (PAIR, False, UNITS - 1), (PAIR, False, UNITS + 3)],
)
def test_the_emitted_accesses_show_it_whatever_the_schedule_said(
    any_toy, declare, monkeypatch, rotation, carried, left
):
    with monkeypatch.context() as patch:
        patch.setattr(timeline, "_meeting_place", lambda round_: 2 * UNITS - left)
        patch.setattr(timeline, "_stands", lambda *_: True)
        with pytest.raises(IRError, match=r"no barrier parts|is written again by then"):
            Pipeline(any_toy, rotation, left, carried=carried).built(declare)


@pytest.mark.parametrize(("rotation", "left_on_the_way"), [(DIRECT, 0), (EARLY, 1)])
@pytest.mark.parametrize("calls", [1, 3])
def test_a_wait_leaves_what_nobody_reads_yet(any_toy, declare, monkeypatch, rotation, left_on_the_way, calls):
    """One more on its way than was counted is a race; all of those counted are of tiles that nobody reads yet."""
    pipeline = Pipeline(any_toy, rotation, 2, calls=calls)
    assert pipeline.run(declare) is None
    assert pipeline.waits == [0, left_on_the_way * calls, 0]
    whole = passage._set_waits

    def one_more(events, tiles, slots):
        whole(events, tiles, slots)
        for event in events:
            if event.kind == "wait":
                event.operation.attributes["outstanding"] += 1

    with planted(monkeypatch, moved=True), monkeypatch.context() as patch:
        patch.setattr(passage, "_set_waits", one_more)
        assert Pipeline(any_toy, rotation, 2, calls=calls).run(declare) == "race"


@pytest.mark.parametrize(("rotation", "carried"), [(RING, True), (PAIR, False), (EARLY, True)])
def test_two_rounds_in_a_row_have_the_verdict_of_one(any_toy, declare, monkeypatch, rotation, carried):
    first, last = {RING: (0, AHEAD), PAIR: (UNITS, UNITS + 2), EARLY: (0, 2 * UNITS)}[rotation]
    for left in (first, last):
        assert Pipeline(any_toy, rotation, left, carried=carried, walk=unrolled_loop).run(declare) is None
    if rotation is not EARLY:
        with planted(monkeypatch):
            assert Pipeline(any_toy, rotation, last + 1, carried=carried, walk=unrolled_loop).run(declare) == "race"


def test_the_slot_of_a_round_is_no_constant(any_toy, declare, monkeypatch):
    monkeypatch.setattr(control, "for_range", lambda lower, upper, step, start, body: body(start[1], start))
    with pytest.raises(IRError, match="is carried by the loop, got a constant"):
        Pipeline(any_toy, RING, 1).built(declare)


def test_a_tile_asked_for_into_a_slot_that_is_read_is_told_by_the_ring(any_toy, declare):
    with pytest.raises(IRError, match=r"2 slots, reads \[1, 0, 2\] and writes \[3\] .* it takes 3 slots"):
        evolve(DIRECT, slots=2)
    assert Pipeline(any_toy, TIGHT, 1).run(declare) is None
