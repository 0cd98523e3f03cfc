"""The order in which units are laid out: reads ahead per stream, fillers spread, fences."""

from __future__ import annotations

import pytest

from kinfolk.errors import IRError
from kinfolk.ir.builder import constant
from kinfolk.ir.ops import control
from kinfolk.ir.types import I32
from kinfolk.tile import units as units_module
from kinfolk.tile.units import Unit, UnitSchedule, lay_out


def laid_out(evaluate, count, ahead, *, fence_every=1, fillers=0, lead=False):
    """Return the events in order: `r0.1` reads unit 1 of stream 0, `u1` uses unit 1, `f0` fills, `|` fences."""
    events: list[str] = []

    def unit(number):
        def read(stream):
            def event():
                events.append(f"r{stream}.{number}")
                return [constant(100 * stream + number, I32)]

            return event

        def use(values):
            assert [value.defining_op.attributes["bits"] for value in values] == [
                100 * stream + number for stream in range(len(ahead))
            ]
            events.append(f"u{number}")

        return Unit(tuple(read(stream) for stream in range(len(ahead))), use)

    def body():
        lay_out(
            [unit(number) for number in range(count)],
            UnitSchedule(ahead=ahead, fence_every=fence_every),
            [lambda number=number: events.append(f"f{number}") for number in range(fillers)],
            (lambda: events.append("lead")) if lead else None,
        )
        return []

    original = units_module.schedule_fence
    units_module.schedule_fence = lambda: (events.append("|"), control.schedule_fence())
    try:
        kernel = evaluate(body).kernel
    finally:
        units_module.schedule_fence = original
    assert events.count("|") == [op.name for op in kernel.walk()].count("core.schedule_fence")
    return " ".join(events)


def test_reads_are_issued_ahead_of_their_use(evaluate):
    assert laid_out(evaluate, 4, (2,)) == "r0.0 r0.1 r0.2 u0 | r0.3 u1 | u2 | u3 |"


def test_without_reading_ahead_each_unit_reads_for_itself(evaluate):
    assert laid_out(evaluate, 3, (0,), fence_every=0) == "r0.0 u0 r0.1 u1 r0.2 u2"


def test_reading_further_ahead_than_there_are_units(evaluate):
    assert laid_out(evaluate, 2, (5,), fence_every=0) == "r0.0 r0.1 u0 u1"


def test_streams_have_distances_of_their_own(evaluate):
    order = laid_out(evaluate, 3, (2, 0), fence_every=0)
    assert order == "r0.0 r0.1 r0.2 r1.0 u0 r1.1 u1 r1.2 u2"


@pytest.mark.parametrize("ahead", range(5))
def test_every_read_and_use_happens_once(evaluate, ahead):
    events = laid_out(evaluate, 7, (ahead, 4 - ahead), fence_every=0).split()
    expected = [f"{kind}{number}" for kind in ("r0.", "r1.", "u") for number in range(7)]
    assert sorted(events) == sorted(expected)
    for stream, distance in ((0, ahead), (1, 4 - ahead)):
        for number in range(7):
            used = [event for event in events[: events.index(f"r{stream}.{number}")] if event.startswith("u")]
            assert len(used) == max(0, number - distance)


def test_fences_close_every_second_unit(evaluate):
    assert laid_out(evaluate, 5, (0,), fence_every=2).count("|") == 2
    assert laid_out(evaluate, 4, (1,), fence_every=2) == "r0.0 r0.1 u0 r0.2 u1 | r0.3 u2 u3 |"


def test_the_lead_stands_behind_the_first_reads_and_a_fence(evaluate):
    assert laid_out(evaluate, 2, (1,), fence_every=0, lead=True) == "r0.0 | lead r0.1 u0 u1"


@pytest.mark.parametrize(
    ("count", "fillers", "order"),
    [
        (4, 2, "r0.0 u0 r0.1 u1 f0 r0.2 u2 r0.3 u3 f1"),
        (2, 4, "r0.0 u0 f0 f1 r0.1 u1 f2 f3"),
        (3, 3, "r0.0 u0 f0 r0.1 u1 f1 r0.2 u2 f2"),
        (2, 1, "r0.0 u0 r0.1 u1 f0"),
    ],
)
def test_fillers_are_spread_evenly(evaluate, count, fillers, order):
    assert laid_out(evaluate, count, (0,), fence_every=0, fillers=fillers) == order


@pytest.mark.parametrize(("count", "fillers"), [(1, 5), (5, 1), (7, 3), (3, 7), (0, 2)])
def test_no_filler_is_lost(evaluate, count, fillers):
    events = laid_out(evaluate, count, (1,), fence_every=0, fillers=fillers).split()
    assert [event for event in events if event.startswith("f")] == [f"f{number}" for number in range(fillers)]


def test_a_schedule_for_other_streams_is_refused(evaluate):
    def body():
        lay_out([Unit((list,), lambda values: None)], UnitSchedule(ahead=(1, 1)))
        return []

    with pytest.raises(IRError, match=r"the schedule has 2 streams, a unit reads \[1\]"):
        evaluate(body)
