"""Changes that compute the same sum, against those that wrap or take another factor."""

from __future__ import annotations

import pytest
from workgroup_toy import built

from kinfolk.analysis.values import Values
from kinfolk.ir.ops import arithmetic, control, convert, lanes, memory
from kinfolk.ir.types import I32, I64
from kinfolk.testing.mutation import mutant_classes
from kinfolk.testing.mutation.same_sums import same_sum


def shown_of(toy, declare, body, operator):
    """Return, by change, what is shown of an operator's mutants of the first op that has any."""
    kernel = built(toy, body, declare("x", I32), declare("n", I32), declare("y", I64, "write"))
    values = Values(kernel, toy.arch)
    classes = [each for each in mutant_classes(kernel) if each.operator.name == operator]
    return {mutant.change.about: bool(same_sum(mutant, values)) for mutant in classes[0].mutants}


def product_of(most, factor):
    """A number up to `most` times another or a constant, in 64 bits."""

    def body(x, n, y):
        number = arithmetic.smin(arithmetic.smax(memory.load(n), 0), most)
        other = number if factor is None else factor
        wide = convert.sext(number, to=I64) * (convert.sext(other, to=I64) if factor is None else other)
        memory.store(memory.offset(y, lanes.thread_id()), wide)

    return body


@pytest.mark.parametrize(
    ("most", "factor", "shown"),
    [(2**26, 2, True), (2**30 - 1, 2, True), (2**30, 2, False), (46340, None, True), (46341, None, False)],
)
def test_a_product_in_fewer_bits_is_the_same_where_they_hold_it(reference64, declare, most, factor, shown):
    """The largest square in 31 bits is 46340^2 = 2,147,395,600."""
    assert shown_of(reference64, declare, product_of(most, factor), "narrow_product") == {"computed in 32 bits": shown}


def test_a_longer_stride_or_a_lost_factor_is_another_sum(reference64, declare):
    for operator in ("wrong_stride", "dropped_factor"):
        found = shown_of(reference64, declare, product_of(99, None), operator)
        assert found and not any(found.values())


def difference(begin):
    """How far a number is from another, of which it is not known which is larger: operands may not change places."""

    def body(x, n, y):
        number = arithmetic.smin(arithmetic.smax(memory.load(n), 0), 99)
        memory.store(memory.offset(y, lanes.thread_id()), convert.sext(number - begin, to=I64))

    return body


def test_a_difference_the_other_way_round_is_another_sum(reference64, declare):
    assert shown_of(reference64, declare, difference(3), "swapped_operands") == {"a and b have changed places": False}
    assert shown_of(reference64, declare, difference(3), "add_sub") == {"core.sub -> core.add": False}
    assert shown_of(reference64, declare, difference(0), "add_sub") == {"core.sub -> core.add": True}


def blocks_from_the_last(x, n, y):
    """Blocks in falling order, of as many as there are, none below 0."""
    last = arithmetic.smax(memory.load(n) - 1 - lanes.block_id(axis=0, below=64), 0)
    memory.store(memory.offset(y, lanes.thread_id()), convert.sext(last, to=I64))


@pytest.mark.parametrize("known", [True, False])
def test_a_bound_is_none_where_the_grid_keeps_it(reference64, declare, known):
    """That a block is one of as many as a parameter says is known of the launch, where it is known."""
    kernel = built(
        reference64, blocks_from_the_last, *(declare(name, I32) for name in "xn"), declare("y", I64, "write")
    )
    (blocks,) = [op.results[0] for op in kernel.walk() if op.definition is memory.load]
    (block,) = [op.results[0] for op in kernel.walk() if op.definition is lanes.block_id]
    values = Values(kernel, reference64.arch)
    found = {
        mutant.change.about: bool(same_sum(mutant, values, {block: blocks} if known else {}))
        for each in mutant_classes(kernel)
        for mutant in each.mutants
        if mutant.site.op == "core.smax" and mutant.operator.name in ("dropped_clamp", "constant", "min_max")
    }
    assert found == {
        "only a is left": known,
        "only b is left": False,
        "b 0 -> -1": known,
        "b 0 -> 1": False,
        "core.smax -> core.smin": False,
    }


def seen_after(strict):
    """What is left of a number, in a branch where it is above another one, or not below it."""

    def body(x, n, y):
        most, first = (arithmetic.smin(arithmetic.smax(memory.load(each), 0), 99) for each in (n, x))
        condition = first < most if strict else first <= most
        left = control.if_else(condition, lambda: (arithmetic.smin(first * 2 + 1, first + most),), lambda: (first,))[0]
        memory.store(memory.offset(y, lanes.thread_id()), convert.sext(left, to=I64))

    return body


@pytest.mark.parametrize("strict", [True, False])
def test_a_bound_is_none_where_a_branch_has_compared_its_numbers(reference64, declare, strict):
    kernel = built(reference64, seen_after(strict), *(declare(name, I32) for name in "xn"), declare("y", I64, "write"))
    values = Values(kernel, reference64.arch)
    [inner] = [op for op in kernel.walk() if op.name == "core.smin" and op.operands[1].defining_op.name == "core.add"]
    found = {
        mutant.change.about: bool(same_sum(mutant, values))
        for each in mutant_classes(kernel)
        for mutant in each.mutants
        if mutant.operation is inner and mutant.operator.name == "dropped_clamp"
    }
    assert found == {"only a is left": strict, "only b is left": False}
