"""Rounds of a software pipeline: reads ahead across sections and rounds, jobs spread, the one barrier, its rules."""

from __future__ import annotations

import attrs
import pytest

from kinfolk.errors import IRError
from kinfolk.ir.builder import constant
from kinfolk.ir.ops import control, lanes
from kinfolk.ir.types import I32
from kinfolk.tile import timeline
from kinfolk.tile.rotation import Rotation
from kinfolk.tile.timeline import Meeting, Round, Section, Spread, Stream, first_reads

RING = Rotation(slots=3, reads=(1, 0, 2), writes=(2,))
"""Tile 2 ahead is written before the barrier and read past it; of the round's own, all is read before."""
FREE = Rotation(slots=4, reads=(0, 2), writes=(3,))
"""With a slot more, and the tile written past the barrier, its own may be read on either side."""


class Events:
    """What a round did, in order: `ra1` reads unit 1 of section a, `a1` uses it, `|` is a fence, `B` a barrier."""

    def __init__(self, monkeypatch):
        self.seen: list[str] = []
        monkeypatch.setattr(timeline, "schedule_fence", lambda: self.seen.append("|"))
        monkeypatch.setattr(timeline, "barrier", lambda: self.seen.append("B"))
        monkeypatch.setattr(timeline, "meet", lambda place: self.seen.append(f"B:{place}"))

    def read(self, name):
        def read(unit):
            self.seen.append(f"r{name}{unit}")
            return [constant(unit, I32)]

        return read

    def stream(self, name, ahead, tile=None):
        return Stream(read=self.read(name), ahead=ahead, tile=tile)

    def section(self, name, units, ahead, fence_every=0, jobs=(), begin=0.0, end=1.0, tile=None, writes=None):
        def use(unit, values):
            assert [value.defining_op.attributes["bits"] for value in values] == [unit]
            self.seen.append(f"{name}{unit}")

        made = [lambda job=job: self.seen.append(job) for job in jobs]
        spread = Spread(jobs=made, begin=begin, end=end, writes=writes)
        return Section(
            units=units, use=use, streams=(self.stream(name, ahead, tile),), fence_every=fence_every, spreads=(spread,)
        )


@pytest.fixture
def events(monkeypatch):
    return Events(monkeypatch)


def laid_out(evaluate, events, make, carried=0):
    """Lay out the round that `make` gives, with `carried` reads of section a from before; return events and what is
    handed on."""
    handed: list[int] = []

    def body():
        before = [[constant(unit, I32)] for unit in range(carried)]
        reads = make(before).lay_out()
        handed.extend(read[0].defining_op.attributes["bits"] for read in reads)
        return []

    evaluate(body)
    return " ".join(events.seen), handed


def test_reads_stand_ahead_across_sections(evaluate, events):
    def make(carried):
        return Round(sections=[events.section("a", 3, 1), events.section("b", 2, 2)])

    assert laid_out(evaluate, events, make) == ("ra0 ra1 a0 ra2 rb0 a1 rb1 a2 b0 b1", [])


def test_carried_reads_are_not_read_again_and_the_next_round_reads_last(evaluate, events):
    def make(carried):
        return Round(sections=[events.section("a", 3, 2)], carried=carried, following=events.stream("n", 2))

    assert laid_out(evaluate, events, make, carried=2) == ("ra2 a0 rn0 a1 rn1 a2", [0, 1])


def a_round(events, left, rotation=RING, ahead=2, place="", jobs="", begin=0.0, end=1.0):
    """Four units on this round's tile, jobs that write the one in front, and the next round's first two reads."""
    writes = rotation.writes[0]
    return Round(
        sections=[events.section("a", 4, ahead, tile=0, jobs=jobs, writes=writes, begin=begin, end=end)],
        following=events.stream("n", 2, tile=2),
        meeting=Meeting(rotation=rotation, units_after=left, place=place),
    )


@pytest.mark.parametrize(
    ("left", "text"),
    [
        (0, "ra0 ra1 ra2 a0 x ra3 a1 a2 y a3 z B rn0 rn1"),
        (1, "ra0 ra1 ra2 a0 x ra3 a1 y a2 z B rn0 rn1 a3"),
        (2, "ra0 ra1 ra2 a0 x ra3 a1 y z B rn0 a2 rn1 a3"),
        (None, "ra0 ra1 ra2 a0 x ra3 a1 y a2 z B rn0 rn1 a3"),
    ],
)
def test_each_access_stands_on_its_side_wherever_the_barrier_is(evaluate, events, left, text):
    """By default the barrier is in the midst of where it may be."""
    assert laid_out(evaluate, events, lambda _: a_round(events, left, jobs="xyz")) == (text, [0, 1])


@pytest.mark.parametrize("ahead", range(6))
def test_the_barrier_may_stand_from_the_last_read_before_it_on(evaluate, events, ahead):
    def body():
        legal = a_round(events, 0, ahead=ahead).units_after()
        assert list(legal) == list(range(min(ahead, 3) + 1))
        assert list(a_round(events, 0, FREE, ahead=ahead).units_after()) == list(range(5))
        with pytest.raises(IRError, match=f"{legal.stop} units are left .* 0 to {legal.stop - 1} may"):
            a_round(events, legal.stop, ahead=ahead).lay_out()
        return []

    evaluate(body)


def test_what_must_be_read_past_the_barrier_waits_for_it_and_is_used_past_it(evaluate, events):
    """The second section is of the tile in front, which is written in this very round."""

    def make(left):
        first = events.section("a", 2, 1, tile=0, jobs="x", writes=1)
        sections = [first, events.section("b", 2, 2, tile=1)]
        rotation = Rotation(slots=2, reads=(0, 1), writes=(1,))
        return Round(sections=sections, meeting=Meeting(rotation=rotation, units_after=left))

    assert laid_out(evaluate, events, lambda _: make(2))[0] == "ra0 ra1 a0 a1 x B rb0 rb1 b0 b1"
    events.seen.clear()
    assert laid_out(evaluate, events, lambda _: make(3))[0] == "ra0 ra1 a0 x B rb0 rb1 a1 b0 b1"
    for left in (1, 4):
        with pytest.raises(IRError, match=f"{left} units are left .* 2 to 3 may"):
            laid_out(evaluate, events, lambda _, left=left: make(left))


@pytest.mark.parametrize(
    ("left", "text"),
    [
        (4, "B ra0 ra1 ra2 a0 x ra3 a1 rn0 a2 y rn1 a3 z"),
        (2, "ra0 ra1 ra2 a0 ra3 a1 B rn0 a2 x rn1 a3 y z"),
        (0, "ra0 ra1 ra2 a0 ra3 a1 a2 a3 B x y z rn0 rn1"),
    ],
)
def test_jobs_that_write_past_the_barrier(evaluate, events, left, text):
    found = laid_out(evaluate, events, lambda _: a_round(events, left, FREE, jobs="xyz"))[0]
    assert found == text


def test_tiles_that_come_directly_are_waited_for_before_the_barrier_and_it_has_a_place(evaluate, events, monkeypatch):
    monkeypatch.setattr(timeline, "wait_for_tiles", lambda: events.seen.append("wait"))
    direct = Rotation(slots=4, reads=(0, 2), writes=(3,), direct=True)
    found = laid_out(evaluate, events, lambda _: a_round(events, 0, direct, place="half"))[0]
    assert found == "ra0 ra1 ra2 a0 ra3 a1 a2 a3 wait B:half rn0 rn1"


@pytest.mark.parametrize(
    ("jobs", "begin", "end", "text"),
    [
        ("xyz", 0.0, 1.0, "a0 a1 x a2 a3 y a4 a5 z"),
        ("xy", 0.5, 1.0, "a0 a1 a2 a3 x a4 a5 y"),
        ("", 0.0, 1.0, "a0 a1 a2 a3 a4 a5"),
        ("vwxyz123", 0.0, 0.5, ""),
    ],
)
def test_jobs_are_spread_in_order(evaluate, events, jobs, begin, end, text):
    def make(carried):
        return Round(sections=[events.section("a", 6, 0, jobs=jobs, begin=begin, end=end)])

    found = laid_out(evaluate, events, make)[0]
    order = [event for event in found.split() if not event.startswith("ra")]
    assert [event for event in order if event in jobs] == list(jobs)
    if text:
        assert " ".join(order) == text
    else:
        assert order.index("a3") > order.index("3")


def test_fences_close_units(evaluate, events):
    def make(carried):
        return Round(sections=[events.section("a", 3, 0, fence_every=2)])

    assert laid_out(evaluate, events, make)[0] == "ra0 a0 ra1 a1 | ra2 a2"


def chain(events, steps, **where):
    """Steps of a chain: one in capitals exchanges values between lanes, `L` in a branch, `f` by vector instructions."""

    def step(name):
        def do():
            events.seen.append(name)
            if name == "L":
                control.if_else(
                    lanes.lane_id() < 99, lambda: [lanes.shuffle_xor(lanes.lane_id(), mask=1)], lambda: [one]
                )
            elif name == "f":
                lanes.first_lane(one)
            elif name.isupper():
                lanes.shuffle_xor(one, mask=1)

        one = constant(1, I32)
        return do

    return Spread(jobs=[step(name) for name in steps], **where)


@pytest.mark.parametrize(
    ("steps", "where", "text"),
    [
        ("xYz", {"end": 0.1}, "a0 x Y z a1 a2 a3 a4 a5"),
        ("xYz", {"end": 0.1, "gap": 1}, "a0 x Y a1 z a2 a3 a4 a5"),
        ("xYz", {"end": 0.1, "gap": 3}, "a0 x Y a1 a2 a3 z a4 a5"),
        ("xLz", {"end": 0.1, "gap": 3}, "a0 x L a1 a2 a3 z a4 a5"),
        ("xfz", {"end": 0.1, "gap": 3}, "a0 x f z a1 a2 a3 a4 a5"),
        ("XYz", {"end": 0.1, "gap": 2}, "a0 X a1 a2 Y a3 a4 z a5"),
        ("XYz", {"gap": 2}, "a0 a1 X a2 a3 Y a4 a5 z"),
        ("XYz", {"gap": 3}, "a0 a1 X a2 a3 a4 Y a5 z"),
        ("XYzv", {"gap": 9}, "a0 X a1 a2 a3 a4 a5 Y z v"),
    ],
)
def test_a_step_behind_an_exchange_between_lanes_waits(evaluate, events, steps, where, text):
    """Later than where an even spread has it, never earlier; behind the last unit nothing waits any more."""

    def make(carried):
        section = events.section("a", 6, 0)
        return Round(sections=[attrs.evolve(section, spreads=(chain(events, steps, **where),))])

    found = laid_out(evaluate, events, make)[0]
    assert [event for event in found.split() if not event.startswith("ra")] == text.split()


def test_a_chain_waits_past_its_section_and_holds_up_no_other(evaluate, events):
    def make(carried):
        spreads = (chain(events, "Xy", end=0.5, gap=3), chain(events, "vw"))
        first = attrs.evolve(events.section("a", 2, 0), spreads=spreads)
        return Round(sections=[first, events.section("b", 3, 0)])

    found = laid_out(evaluate, events, make)[0]
    order = [event for event in found.split() if not event.startswith("r")]
    assert order == ["a0", "X", "v", "a1", "w", "b0", "b1", "y", "b2"]


def test_jobs_that_write_have_no_gap():
    with pytest.raises(IRError, match="keep to their side of the barrier"):
        Spread(jobs=(), writes=1, gap=1)


def two_streams(events, units, aheads):
    """A section whose units use what two streams read: `rp2` and `rq2` read for `a2`."""

    def use(unit, values):
        assert [value.defining_op.attributes["bits"] for value in values] == [unit, unit]
        events.seen.append(f"a{unit}")

    streams = [events.stream(name, ahead) for name, ahead in zip("pq", aheads, strict=True)]
    return Round(sections=[Section(units=units, use=use, streams=streams, fence_every=0)])


def test_streams_have_distances_of_their_own(evaluate, events):
    found = laid_out(evaluate, events, lambda _: two_streams(events, 3, (2, 0)))[0]
    assert found == "rp0 rp1 rp2 rq0 a0 rq1 a1 rq2 a2"


@pytest.mark.parametrize("ahead", range(6))
def test_every_read_and_use_happens_once_and_as_far_ahead_as_it_can(evaluate, events, ahead):
    seen = laid_out(evaluate, events, lambda _: two_streams(events, 4, (ahead, 5 - ahead)))[0].split()
    assert sorted(seen) == sorted(f"{kind}{unit}" for kind in ("rp", "rq", "a") for unit in range(4))
    for name, distance in (("p", ahead), ("q", 5 - ahead)):
        for unit in range(4):
            used = [event for event in seen[: seen.index(f"r{name}{unit}")] if event.startswith("a")]
            assert len(used) == max(0, unit - distance)


def test_a_section_without_units_is_nothing(evaluate, events):
    assert laid_out(evaluate, events, lambda _: two_streams(events, 0, (1, 1)))[0] == ""


def test_the_first_rounds_reads(evaluate, events):
    def body():
        assert len(first_reads(events.stream("a", 3))) == 3
        return []

    evaluate(body)
    assert events.seen == ["ra0", "ra1", "ra2"]
