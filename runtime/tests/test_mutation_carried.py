"""Exchanges of what a loop still carries from its start, against those of what it has changed."""

from __future__ import annotations

import pytest
from workgroup_toy import built

from kinfolk.ir import constant
from kinfolk.ir.ops import control, lanes, memory
from kinfolk.ir.types import I32
from kinfolk.testing.mutation import mutant_classes
from kinfolk.testing.mutation.carried import still_as_started

ROUNDS = 3


def counting(starts=(7, 7), condition=lambda lane, index: lane < 5, idle=lambda one, other: (one, other)):
    """Return the body of a kernel whose first lanes count two numbers up, the others hand them on."""

    def body(n, y):
        lane = lanes.lane_id()

        def round_(index, carried):
            one, other = carried
            return control.if_else(condition(lane, index), lambda: (one + 1, other + 2), lambda: idle(one, other))

        one, other = control.for_range(0, ROUNDS, 1, tuple(constant(start, I32) for start in starts), round_)
        memory.store(memory.offset(y, lane), one * 100 + other)

    return body


def shown(toy, declare, body):
    """Return what is shown of exchanges in the yields of a kernel, in order of the text."""
    kernel = built(toy, body, declare("n", I32), declare("y", I32, "write"))
    mutants = [mutant for each in mutant_classes(kernel) for mutant in each.mutants]
    order = {op: number for number, op in enumerate(kernel.walk())}
    exchanges = [each for each in mutants if each.operator.name == "exchanged_results"]
    return [bool(still_as_started(each)) for each in sorted(exchanges, key=lambda each: order[each.operation])]


def test_what_a_side_hands_on_as_it_came_may_change_places_and_what_is_counted_may_not(reference64, declare):
    """In order: the side that counts, the side that hands on, the loop's own."""
    yields = sorted(shown(reference64, declare, counting()))
    assert yields == [False, False, True]


@pytest.mark.parametrize(
    "other",
    [
        {"starts": (7, 8)},
        {"condition": lambda lane, index: lane < index},
        {"idle": lambda one, other: (one, other + 0 * one)},
        {"idle": lambda one, other: (other, one + 1)},
    ],
    ids=["other starts", "a condition of the round", "computed anew", "crossed and counted"],
)
def test_nothing_is_shown_where_the_two_may_differ(reference64, declare, other):
    assert not any(shown(reference64, declare, counting(**other)))


def test_what_is_no_exchange_is_left_alone_wherever_it_stands(reference64, declare):
    kernel = built(reference64, counting(), declare("n", I32), declare("y", I32, "write"))
    others = [
        mutant
        for each in mutant_classes(kernel)
        for mutant in each.mutants
        if mutant.operator.name != "exchanged_results"
    ]
    assert others and not any(map(still_as_started, others))


def in_a_row(conditions, starts=(7, 7), idle=lambda one, other: (one, other)):
    """Return the body of a kernel of branches in a row, whose first side counts two numbers up."""

    def body(n, y):
        lane = lanes.lane_id()
        numbers = tuple(constant(start, I32) for start in starts)
        for condition in conditions:
            one, other = numbers

            def counted(one=one, other=other):
                return one + 1, other + 2

            numbers = control.if_else(condition(lane, n), counted, lambda one=one, other=other: idle(one, other))
        memory.store(memory.offset(y, lane), numbers[0] * 100 + numbers[1])

    return body


def few(lane, n):
    return lane < 5


def test_a_side_of_branches_in_a_row_on_one_condition_hands_on_what_it_started_with(reference64, declare):
    """In order: the sides that count, then the second that hands on, as what the first one does is one value twice."""
    assert shown(reference64, declare, in_a_row([few, few])) == [False, False, True]


@pytest.mark.parametrize(
    ("conditions", "other"),
    [
        ((few, lambda lane, n: lane < 6), {}),
        ((few, lambda lane, n: lane >= 5), {}),
        ((few, few), {"starts": (7, 8)}),
        ((few, few), {"idle": lambda one, other: (one, other + 1)}),
    ],
    ids=["another condition", "the opposite", "other starts", "computed anew"],
)
def test_nothing_is_shown_where_branches_in_a_row_may_differ(reference64, declare, conditions, other):
    assert not shown(reference64, declare, in_a_row(conditions, **other))[-1]
