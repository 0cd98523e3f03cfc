"""Changes that compute the same for all numbers there can be, against those that differ in one of them."""

from __future__ import annotations

import pytest
from workgroup_toy import built

from kinfolk.analysis.values import Values
from kinfolk.ir import constant
from kinfolk.ir.ops import arithmetic, convert, lanes, memory
from kinfolk.ir.types import I32, I64
from kinfolk.testing.mutation import mutant_classes
from kinfolk.testing.mutation.exhaustive import same_for_all


def proofs(toy, declare, body):
    """Return, by operator and change, what is shown of the mutants of a kernel."""

    def whole(x, y):
        memory.store(memory.offset(y, lanes.thread_id()), body(x))

    kernel = built(toy, whole, declare("x", I32), declare("y", I32, "write"))
    values = Values(kernel, toy.arch)
    return {
        (mutant.operator.name, mutant.change.about): same_for_all(mutant, values)
        for each in mutant_classes(kernel)
        for mutant in each.mutants
    }


@pytest.mark.parametrize("step, same", [(16, True), (1, False)])
def test_a_comparison_is_worked_out_over_all_multiples(reference64, declare, step, same):
    """lane * 16 < 16 says the same as lane * 16 < 15; lane < 16 and lane < 15 differ at 15."""

    def body(x):
        return arithmetic.select(lanes.lane_id() * step < 16, constant(5, I32), constant(9, I32))

    shown = proofs(reference64, declare, body)
    assert bool(shown["constant", "b 16 -> 15"]) is same
    assert shown["constant", "b 16 -> 17"] == "" or step == 16
    assert shown["select_arms", "its arms have changed places"] == ""


def test_a_clamp_that_does_nothing_is_told_from_one_that_does(reference64, declare):
    """Of any number that is loaded the lower clamp matters; of what it leaves, one more below it does not."""

    def body(x):
        loaded = memory.load(x)
        once = arithmetic.smax(loaded, 0)
        return arithmetic.smin(arithmetic.smax(once, -7), 100)

    shown = proofs(reference64, declare, body)
    assert shown["constant", "b -7 -> -6"].startswith("the same in all")
    assert shown["constant", "b 0 -> 1"] == "" and shown["constant", "b 100 -> 101"] == ""


def test_an_extension_is_the_same_where_nothing_is_negative(reference64, declare):
    def body(x):
        checked = arithmetic.smin(arithmetic.smax(memory.load(x), 0), 9)
        wide = convert.sext(checked, to=I64) + convert.sext(memory.load(x), to=I64)
        return convert.trunc(wide, to=I32)

    def found():
        def whole(x, y):
            memory.store(memory.offset(y, lanes.thread_id()), body(x))

        kernel = built(reference64, whole, declare("x", I32), declare("y", I32, "write"))
        values = Values(kernel, reference64.arch)
        classes = [each for each in mutant_classes(kernel) if each.operator.name == "extension"]
        return [bool(same_for_all(each.mutants[0], values)) for each in classes if each.site.op == "core.sext"]

    assert sorted(found()) in ([False], [False, True])
    assert False in found()


def test_what_breaks_a_claim_is_not_the_same(reference64, declare):
    """2^31 - 1 is in reach of the sum: one more than that wraps, which the claim excludes."""

    def body(x):
        return arithmetic.smin(lanes.lane_id(), 0x7FFFFFFF) + 1

    shown = proofs(reference64, declare, body)
    assert shown["add_sub", "core.add -> core.sub"] == "" and shown["constant", "b 1 -> 2"] == ""


def test_an_op_without_operands_and_numbers_of_64_bits_are_left_undecided(reference64, declare):
    def body(x):
        wide = convert.sext(memory.load(x), to=I64) * convert.sext(memory.load(x), to=I64)
        return convert.trunc(wide, to=I32) + lanes.block_id(axis=0)

    shown = proofs(reference64, declare, body)
    assert shown["wrong_axis", "axis 0 -> 1"] == "" and shown["wrong_stride", "a +1"] == ""
