"""Intervals of launch fields against brute force: every point of a box keeps the value, no point beyond it does."""

from types import SimpleNamespace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from kinfolk.dispatch import interval
from kinfolk.dispatch.interval import Observation, Range, holding
from kinfolk.expr import (
    I64_MAX,
    I64_MIN,
    ExprError,
    Scope,
    all_of,
    any_of,
    ceil_div,
    const,
    eq,
    field,
    is_zero,
    maximum,
    minimum,
    multiple_of,
    ne,
    not_,
    one_of,
    select,
)

X, Y, N = field("x"), field("y"), field("n")


def scope(**values):
    return Scope(request=SimpleNamespace(**{"n": 3, "dtype": "bf16"} | values), arch={})


def box(expr, **values):
    where = scope(**values)
    launch = {name: value for name, value in values.items() if name in ("x", "y")}
    return holding([Observation(expr, expr.evaluate(where), where)], launch)


EXACT = [
    (X <= 1024, 7, I64_MIN, 1024),
    (X <= 1024, 1024, I64_MIN, 1024),
    (X <= 1024, 1025, 1025, I64_MAX),
    (16 * X < 1000, 5, I64_MIN // 16, 62),
    (X - 5 > 0, 6, 6, I64_MAX),
    (X - 5 > 0, 5, I64_MIN + 5, 5),
    (ceil_div(X, 16) <= 4, 1, I64_MIN, 64),
    (ceil_div(X, 16), 17, 17, 32),
    (X // 16, 17, 16, 31),
    (-16 * X >= -160, 0, -(I64_MAX // 16), 10),
    (all_of(X >= 16, X <= 128), 64, 16, 128),
    (any_of(X < 16, X > 128), 15, I64_MIN, 15),
    (not_(X < 16), 16, 16, I64_MAX),
    (one_of(X, (1, 2, 3)), 2, 1, 3),
    (one_of(X, (1, 2, 3)), 4, 4, I64_MAX),
    (eq(X, 5), 5, 5, 5),
    (ne(X, 5), 6, 6, I64_MAX),
    (select(X < 10, X * N, 30), 20, 10, I64_MAX),
    (minimum(X, 8), 9, 8, I64_MAX),
    (maximum(X, 8), 3, I64_MIN, 8),
    (multiple_of(X, 16), 32, 32, 32),
    (field("dtype").eq("bf16"), 3, I64_MIN, I64_MAX),
    (all_of(field("dtype").eq("f16"), X < 5), 3, I64_MIN, I64_MAX),
    (const(12) // X, 5, 5, 6),
    (is_zero("x"), 0, 0, 0),
    (is_zero("x"), 3, 1, I64_MAX),
    (not_(is_zero("x")), -3, I64_MIN, -1),
]


@pytest.mark.parametrize("expr, x, low, high", EXACT)
def test_edges_by_hand(expr, x, low, high):
    found = box(expr, x=x)["x"]
    if expr == multiple_of(X, 16):  # not monotone, and reads x twice: nothing is claimed beyond the value itself
        assert x in found
        return
    reads_x = X in expr.leaves()
    expected = Range(low, high)
    assert found == expected or (expr.leaves()[0] == field("dtype") and reads_x and x in found)


small = st.integers(-12, 12)
leaves = st.one_of(small.map(const), st.sampled_from((X, Y, N)))
numbers = st.recursive(
    leaves,
    lambda inner: st.builds(
        lambda build, a, b: build(a, b),
        st.sampled_from(
            (
                lambda a, b: a + b,
                lambda a, b: a - b,
                lambda a, b: a * b,
                lambda a, b: a // b,
                ceil_div,
                minimum,
                maximum,
                lambda a, b: select(a < b, a, b * 2),
            )
        ),
        inner,
        inner,
    ),
    max_leaves=6,
)
comparisons = st.builds(
    lambda build, a, b: build(a, b),
    st.sampled_from((lambda a, b: a < b, lambda a, b: a <= b, lambda a, b: a > b, lambda a, b: a >= b, eq, ne)),
    numbers,
    numbers,
)
conditions = st.one_of(
    comparisons,
    st.builds(not_, comparisons),
    st.builds(all_of, comparisons, comparisons),
    st.builds(any_of, comparisons, comparisons),
    st.builds(one_of, numbers, st.lists(small, min_size=1, max_size=5)),
)


@given(st.one_of(numbers, conditions), small, small)
def test_no_point_of_the_box_has_another_value(expr, x, y):
    try:
        expected = expr.evaluate(scope(x=x, y=y))
    except ExprError:
        assume(False)
    found = box(expr, x=x, y=y)
    assert x in found["x"]
    assert y in found["y"]
    for i in range(max(found["x"].low, -20), min(found["x"].high, 20) + 1):
        for j in range(max(found["y"].low, -20), min(found["y"].high, 20) + 1):
            assert expr.evaluate(scope(x=i, y=j)) == expected, (i, j, found)


@given(st.integers(1, 40), small, st.sampled_from(("<=", ">=")), st.integers(-200, 200), small)
def test_the_range_of_a_linear_condition_cannot_be_widened(factor, offset, sign, bound, x):
    left = factor * X + offset
    expr = left <= bound if sign == "<=" else left >= bound
    expected = expr.evaluate(scope(x=x))
    found = box(expr, x=x)["x"]
    for end, beyond in ((found.low, found.low - 1), (found.high, found.high + 1)):
        if abs(end) < 2**57:  # not an end that the 64 bits set
            assert expr.evaluate(scope(x=end)) is expected
            assert expr.evaluate(scope(x=beyond)) is not expected


@pytest.mark.parametrize("expr, x, low, high", EXACT, ids=str)
def test_the_numbers_tried_first_change_no_range(expr, x, low, high, monkeypatch):
    """Against plain bisection."""
    tried_first = box(expr, x=x)
    monkeypatch.setattr(interval, "_named", lambda observation: set())
    assert box(expr, x=x) == tried_first


def test_an_end_that_an_expression_names_takes_a_few_boxes(monkeypatch):
    whole, judged = interval._decided, []
    monkeypatch.setattr(interval, "_decided", lambda seen, box: judged.append(box) or whole(seen, box))
    box(X <= 1024, x=7)
    few = len(judged)
    monkeypatch.setattr(interval, "_named", lambda observation: set())
    box(X <= 1024, x=7)
    assert few < 8 and len(judged) - few > 60


def test_two_fields_are_bounded_together():
    found = box(X * Y <= 100, x=3, y=4)
    assert found["x"].high == 25  # widened first, beside y = 4
    assert found["y"].high == 4  # beside x up to 25


def test_the_check_sees_an_interval_that_is_too_wide():
    """Negative control: the brute force of above, on a box one step too wide."""
    expr = X <= 5
    found = box(expr, x=3)["x"]
    assert not expr.evaluate(scope(x=found.high + 1))
