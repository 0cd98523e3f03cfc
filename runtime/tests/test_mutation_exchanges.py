"""Exchanges of a reduction that meet the same lanes, and short cuts that are never taken, against what kernels give."""

from __future__ import annotations

import numpy as np
import pytest
from workgroup_toy import built

from kinfolk.ir import constant
from kinfolk.ir.ops import arithmetic, control, lanes, memory
from kinfolk.ir.types import I32
from kinfolk.testing.mutation import OPERATORS, always_taken, mutant_classes
from kinfolk.testing.mutation.exchanges import same_lanes_meet
from kinfolk.tile.reduction import across_lanes
from kinfolk_runtime.simulator import Simulator

WAVE = 64
CROSSING = [each for each in OPERATORS if each.name in ("lane_map", "lane_distance", "dropped_exchange")]


def reduced(combine, masks):
    def body(x, y):
        own = memory.load(memory.offset(x, lanes.thread_id()))
        memory.store(memory.offset(y, lanes.thread_id()), across_lanes(own, masks, combine))

    return body


def results(toy, kernel, x):
    y = np.zeros(WAVE, x.dtype)
    Simulator(threads=1).launch(kernel, (1, 1, 1), [x, y])
    return y


@pytest.mark.parametrize("combine", [arithmetic.smax, arithmetic.add])
@pytest.mark.parametrize("masks", [(1, 2, 4, 8, 16, 32), (16, 32), (4, 1)])
def test_what_is_shown_to_meet_the_same_lanes_gives_the_same(reference64, declare, combine, masks):
    kernel = built(reference64, reduced(combine, masks), declare("x", I32), declare("y", I32, "write"))
    x = np.random.default_rng(3).permutation(1 << 12)[:WAVE].astype(np.int32)
    expected = results(reference64, kernel, x)
    mutants = [mutant for each in mutant_classes(kernel, CROSSING) for mutant in each.mutants]
    same = {mutant.name: np.array_equal(results(reference64, mutant.kernel(), x), expected) for mutant in mutants}
    shown = {mutant.name: bool(same_lanes_meet(mutant)) for mutant in mutants}
    assert len(mutants) >= 2 * len(masks) and shown == {name: same[name] and "lane_map" in name for name in same}
    assert len(set(shown.values())) == (2 if masks != (16, 32) else 1)


def test_values_that_are_read_in_between_belong_to_no_reduction(reference64, declare):
    """Control: the maximum of two lanes is stored too, and another partner shows in it."""

    def body(x, y):
        own = memory.load(memory.offset(x, lanes.thread_id()))
        pair = across_lanes(own, (2,), arithmetic.smax)
        whole = across_lanes(pair, (1, 4), arithmetic.smax)
        memory.store(memory.offset(y, lanes.thread_id()), pair + whole)

    kernel = built(reference64, body, declare("x", I32), declare("y", I32, "write"))
    mutants = [mutant for found in mutant_classes(kernel, CROSSING[:1]) for mutant in found.mutants]
    assert [bool(same_lanes_meet(mutant)) for mutant in mutants] == [False, False, True]


def short_cut(writes):
    """A sum that is only added where some lane has one; a branch that writes is no short cut."""

    def body(x, y):
        own = memory.load(memory.offset(x, lanes.thread_id()))

        def rare():
            if writes:
                memory.store(memory.offset(y, lanes.thread_id()), own)
            return (own + own,)

        [found] = control.if_else(lanes.any_lane(own > 0), rare, lambda: (constant(0, I32),), cold=True)
        memory.store(memory.offset(y, lanes.thread_id()), found)

    return body


def test_a_short_cut_is_never_taken_and_a_branch_that_writes_is_none(reference64, declare):
    parameters = (declare("x", I32), declare("y", I32, "write"))
    kernel = built(reference64, short_cut(writes=False), *parameters)
    taken = always_taken(kernel)
    x = -np.arange(WAVE, dtype=np.int32)
    assert (results(reference64, kernel, x) == 0).all()
    assert np.array_equal(results(reference64, taken, x), 2 * x)
    assert always_taken(built(reference64, short_cut(writes=True), *parameters)) is None
