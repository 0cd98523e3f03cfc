"""Branches that other threads take and that come to the same, against what threads store, worked out with numpy."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from workgroup_toy import built

from kinfolk.ir import constant
from kinfolk.ir.ops import arithmetic, control, convert, lanes, memory
from kinfolk.ir.types import I32
from kinfolk.testing.mutation import mutant_classes
from kinfolk.testing.mutation.mirror import same_in_mirror

LANE = np.arange(64)


def shown(toy, declare, body, waves=1):
    """Return, of each branch in the order of the text, whether it is shown that other threads may take it."""
    kernel = built(toy, body, declare("x", I32), declare("y", I32, "write"), waves=waves)
    return [
        bool(same_in_mirror(mutant))
        for each in mutant_classes(kernel)
        for mutant in each.mutants
        if mutant.operator.name == "negated_condition"
    ]


def plus(own, other):
    return own + other


def minus(own, other):
    return own - other


def own(own, other):
    return own


CASES = list(product((32, 16), (32, 64), (32, 16), (plus, minus, own)))


def is_the_same(first, places, mask, combine):
    """Whether lanes below `first` store what the others would: what two lanes come to, at a lane's number modulo
    `places`.
    """
    have = np.random.default_rng(0).integers(0, 1 << 20, len(LANE))
    total = combine(have, have[LANE ^ mask])
    parts = (slice(0, first), slice(first, None))
    below, others = (set(zip(LANE[part] % places, total[part], strict=True)) for part in parts)
    return below == others


@pytest.mark.parametrize(("first", "places", "mask", "combine"), CASES)
def test_lanes_that_store_what_others_would(reference64, declare, first, places, mask, combine):
    def body(x, y):
        lane = lanes.lane_id()
        have = memory.load(memory.offset(x, lane))
        total = combine(have, lanes.shuffle_xor(have, mask=mask))

        def store():
            memory.store(memory.offset(y, lane % places), total)
            return ()

        control.if_else(lane < first, store)

    assert shown(reference64, declare, body) == [is_the_same(first, places, mask, combine)]


def test_one_of_these_cases_is_the_same():
    assert [case for case in CASES if is_the_same(*case)] == [(32, 32, 32, plus)]


@pytest.mark.parametrize(("start", "together"), [(lambda lane: lane % 32, True), (lambda lane: lane, False)])
@pytest.mark.parametrize("rounds", [lambda lane: constant(3, I32), lambda lane: lanes.wave_id() + 1])
def test_what_a_loop_carries_is_the_same_where_it_starts_so_and_stays_so(reference64, declare, start, together, rounds):
    def body(x, y):
        lane = lanes.lane_id()

        def step(number, now):
            have = memory.load(memory.offset(x, lane + number))
            return [now[0] + arithmetic.smax(have, lanes.shuffle_xor(have, mask=32))]

        (total,) = control.for_range(0, rounds(lane), 1, [start(lane)], step)

        def store():
            memory.store(memory.offset(y, lane % 32), total)
            return ()

        control.if_else(lane < 32, store)

    assert shown(reference64, declare, body) == [together]


def handed(*, parted=True, combine=plus, partner=1, shared=True, again=False):
    """Each of two waves stores what it has to workgroup memory, and reads what wave `partner` further has."""

    def body(x, y):
        wave, lane = lanes.wave_id(), lanes.lane_id()
        buffer = memory.allocate(I32, 4 * len(LANE))
        have = memory.load(memory.offset(x, lanes.thread_id()))
        memory.workgroup_store(buffer, wave * len(LANE) + lane, have)
        if parted:
            control.barrier()
        if again:
            memory.workgroup_store(buffer, wave * len(LANE) + lane, lane)
        other = memory.workgroup_load(buffer, (wave ^ partner) * len(LANE) + lane)
        total = combine(have, other)

        def store():
            memory.store(memory.offset(y, lane if shared else lanes.thread_id()), total)
            return ()

        control.if_else(wave.eq(0), store)

    return body


@pytest.mark.parametrize(
    ("wrong", "same"),
    [
        ({}, True),
        ({"combine": minus}, False),
        ({"combine": own}, False),
        ({"partner": 0}, False),
        ({"shared": False}, False),
        ({"parted": False}, False),
        ({"again": True}, False),
    ],
    ids=["right", "another", "its_own", "no_partner", "not_shared", "not_parted", "written_again"],
)
def test_waves_that_hand_each_other_what_they_have_may_store_it_in_each_others_place(reference64, declare, wrong, same):
    assert shown(reference64, declare, handed(**wrong), waves=2) == [same]


def test_a_branch_that_waits_adds_or_reads_what_is_written_is_not_shown(reference64, declare):
    def branch(do):
        def body(x, y):
            lane = lanes.lane_id()

            def run():
                do(x, y, lane % 32)
                return ()

            control.if_else(lane < 32, run)

        return body

    def store(x, y, place):
        memory.store(memory.offset(y, place), constant(1, I32))

    def add(x, y, place):
        memory.atomic_add(memory.offset(y, place), constant(1, I32))

    def store_of_lane(x, y, place):
        memory.store(memory.offset(y, place), lanes.shuffle_xor(place, mask=16))

    def store_into_what_is_read(x, y, place):
        memory.store(memory.offset(x, place), constant(1, I32))

    found = {each.__name__: shown(reference64, declare, branch(each)) for each in (store, add, store_of_lane)}
    assert found == {"store": [True], "add": [False], "store_of_lane": [False]}
    assert shown(reference64, declare, branch(store_into_what_is_read)) == [False]


def conditions_shown(toy, declare, body):
    """Return the predicates and bounds that the comparison in a kernel of two waves may have instead."""
    kernel = built(toy, body, declare("x", I32), declare("y", I32, "write"), waves=2)
    return {
        mutant.change.about
        for each in mutant_classes(kernel)
        for mutant in each.mutants
        if mutant.site.op == "core.icmp" and same_in_mirror(mutant)
    }


def stored_if(condition, *, combine=plus, further=None, beside=False):
    """Waves hand each other what they have. Those of which `condition` holds store what comes of it and, in a branch of
    its own, `further`; all may store the condition.
    """

    def body(x, y):
        wave, lane = lanes.wave_id(), lanes.lane_id()
        buffer = memory.allocate(I32, 2 * len(LANE))
        have = memory.load(memory.offset(x, lanes.thread_id()))
        memory.workgroup_store(buffer, lanes.thread_id(), have)
        control.barrier()
        other = memory.workgroup_load(buffer, (wave ^ 1) * len(LANE) + lane)
        chosen = condition(wave)

        def branch(value, place):
            def store():
                memory.store(memory.offset(y, place), value)
                return ()

            control.if_else(chosen, store)

        branch(combine(have, other), lane)
        if further is not None:
            branch(further(have, other), lane + len(LANE))
        if beside:
            memory.store(memory.offset(y, 2 * len(LANE) + lanes.thread_id()), convert.zext(chosen, to=I32))

    return body


@pytest.mark.parametrize(
    ("wrong", "same"),
    [
        ({}, {"eq -> ne", "b 0 -> 1"}),
        ({"further": plus}, {"eq -> ne", "b 0 -> 1"}),
        ({"combine": minus}, set()),
        ({"further": own}, set()),
        ({"beside": True}, set()),
    ],
    ids=["right", "two_branches", "another", "another_in_one_of_two", "not_only_a_condition"],
)
def test_a_comparison_by_which_the_other_wave_does_it_where_it_decides_nothing_else(reference64, declare, wrong, same):
    assert conditions_shown(reference64, declare, stored_if(lambda wave: wave.eq(0), **wrong)) == same


def test_a_comparison_by_which_both_waves_do_it_or_none_is_not_shown(reference64, declare):
    assert not conditions_shown(reference64, declare, stored_if(lambda wave: wave < 1))
