"""The Python function of a condition says true exactly where the tree holds."""

import itertools
import random
from types import SimpleNamespace

import pytest

from kinfolk.expr import (
    ExprError,
    Scope,
    all_of,
    any_of,
    ceil_div,
    const,
    eq,
    fact,
    field,
    floor_div,
    maximum,
    minimum,
    ne,
    not_,
    one_of,
    select,
)
from kinfolk.expr.predicate import surely_holds

A, B = field("a"), field("b")
EDGES = (-(2**63), -(2**62), -7, -1, 0, 1, 2, 7, 2**31, 2**62, 2**63 - 1)
CONDITIONS = (
    A + B <= 7,
    A * B >= 2**62,
    A - B > 0,
    eq(floor_div(A, B), -1),
    ne(ceil_div(A, B), 0),
    minimum(A, B, 3) < maximum(A, B, -3),
    all_of(A >= 0, A * B > 5),
    all_of(),
    any_of(B > 2**40, eq(A * A, 49)),
    not_(any_of()),
    one_of(A, (0, 7)),
    select(eq(B, 0), eq(A, 0), A // B >= 1),
    all_of(const(True), field("flag")),
)


def holds(condition, values):
    try:
        return condition.holds(Scope(request=values))
    except ExprError:
        return False


@pytest.mark.parametrize("condition", CONDITIONS, ids=str)
def test_it_agrees_with_the_tree(condition):
    fast, answers = surely_holds(condition), set()
    for a, b in itertools.product(EDGES, EDGES):
        values = SimpleNamespace(a=a, b=b, flag=(a + b) % 2 == 0)
        assert fast(values) is holds(condition, values), (a, b)
        answers.add(fast(values))
    assert condition.leaves() == () or answers == {True, False}


def test_it_agrees_on_random_trees():
    chance = random.Random(5)

    def number(depth):
        if depth == 0:
            return chance.choice((A, B, const(chance.choice(EDGES))))
        left, right = number(depth - 1), number(depth - 1)
        operations = (left + right, left - right, left * right, minimum(left, right), maximum(left, right))
        return chance.choice((*operations, left // right, left.ceil_div(right)))

    for _ in range(300):
        condition = number(2) <= number(2)
        fast = surely_holds(condition)
        for a, b in ((1, 2), (2**40, 2**40), (-5, 3), (0, 0)):
            values = SimpleNamespace(a=a, b=b)
            assert fast(values) is holds(condition, values), (str(condition), a, b)


def test_what_only_an_arch_knows_is_refused():
    with pytest.raises(TypeError, match="reads its fields and constants, lds is neither"):
        surely_holds(fact("lds") > 3)
