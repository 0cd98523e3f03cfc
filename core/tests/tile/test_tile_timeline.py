"""Rounds of a software pipeline: reads ahead across sections and rounds, jobs spread, the one barrier, its rules."""

from __future__ import annotations

import pytest

from kinfolk.errors import IRError
from kinfolk.ir.builder import constant
from kinfolk.ir.types import I32
from kinfolk.tile import timeline
from kinfolk.tile.timeline import Round, Section, Spread, Stream, first_reads


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

    def stream(self, name, ahead):
        return Stream(read=self.read(name), ahead=ahead)

    def section(self, name, units, ahead, fence_every=0, jobs=(), begin=0.0, end=1.0):
        def use(unit, values):
            assert [value.defining_op.attributes["bits"] for value in values] == [unit]
            self.seen.append(f"{name}{unit}")

        spread = Spread(jobs=[lambda job=job: self.seen.append(job) for job in jobs], begin=begin, end=end)
        return Section(
            units=units, use=use, stream=self.stream(name, ahead), fence_every=fence_every, spreads=(spread,)
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


@pytest.mark.parametrize(
    ("left", "text"),
    [
        (0, "a0 b0 rb1 b1 B rn0"),
        (1, "a0 b0 B rn0 b1"),
    ],
)
def test_the_next_rounds_reads_wait_for_the_barrier(evaluate, events, left, text):
    """The barrier stands where it is asked for, and nothing of the next round before it."""

    def make(carried):
        ahead = 0 if left == 0 else 1
        return Round(
            sections=[events.section("a", 1, 1), events.section("b", 2, ahead)],
            carried=carried,
            following=events.stream("n", 1),
            units_after_barrier=left,
        )

    found, handed = laid_out(evaluate, events, make, carried=1)
    assert found.replace("rb0 ", "").replace("rb1 ", "") == text.replace("rb1 ", "") and handed == [0]
    assert found.index("B") > found.index("rb1")


def test_a_read_past_the_barrier_is_refused_unless_it_outlives_it(evaluate, events):
    def make(outlives):
        return Round(
            sections=[events.section("a", 2, 0), events.section("b", 2, 1)],
            units_after_barrier=2,
            outlives_barrier=outlives,
        )

    with pytest.raises(IRError, match="read of unit 1 of section 1 stands at unit 2, past the barrier before unit 2"):
        laid_out(evaluate, events, lambda _: make(False))
    events.seen.clear()
    assert laid_out(evaluate, events, lambda _: make(True))[0] == "ra0 a0 ra1 rb0 a1 B rb1 b0 b1"


def test_what_comes_before_the_barrier_and_its_place(evaluate, events):
    def make(carried):
        return Round(
            sections=[events.section("a", 1, 0)],
            units_after_barrier=0,
            before_barrier=lambda: events.seen.append("wait"),
            meeting="half",
        )

    assert laid_out(evaluate, events, make)[0] == "ra0 a0 wait B:half"


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


def test_the_first_rounds_reads(evaluate, events):
    def body():
        assert len(first_reads(events.stream("a", 3))) == 3
        return []

    evaluate(body)
    assert events.seen == ["ra0", "ra1", "ra2"]
