"""States of loops and branches: the values come back where they were, and results are those of a plain loop."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
import pytest

from kinfolk.errors import IRError
from kinfolk.ir.builder import constant
from kinfolk.ir.ops import lanes
from kinfolk.ir.types import I32
from kinfolk.ir.value import Value
from kinfolk.tile.state import branch, flattened, loop, rebuilt


@attrs.frozen(eq=False)
class Row:
    name: str
    total: Value
    _last: Value


@attrs.frozen(eq=False)
class Table:
    rows: list[Row]
    pair: tuple[Value, int]
    note: None = None


def numbers(count):
    return [constant(number, I32) for number in range(count)]


def table(values):
    return Table([Row("a", values[0], values[1]), Row("b", values[2], values[3])], (values[4], 7))


def test_values_come_in_the_order_of_fields_and_go_back_there(evaluate):
    def body():
        values, others = numbers(5), numbers(9)[4:]
        state = table(values)
        assert all(a is b for a, b in zip(flattened(state), values, strict=True))
        again = rebuilt(state, others)
        assert all(a is b for a, b in zip(flattened(again), others, strict=True))
        assert (again.rows[1].name, again.pair[1], again.note, type(again.pair)) == ("b", 7, None, tuple)
        return []

    evaluate(body)


@pytest.mark.parametrize("count", [4, 6])
def test_another_number_of_values_is_told(evaluate, count):
    def body():
        with pytest.raises(IRError, match=f"a Table holds 5 values, got {count}"):
            rebuilt(table(numbers(5)), numbers(count))
        return []

    evaluate(body)


def test_what_is_no_state_is_told(evaluate):
    def body():
        wrong: Any = [constant(1, I32), {1, 2}]
        with pytest.raises(IRError, match="got a set"):
            flattened(wrong)
        return []

    evaluate(body)


def test_a_loop_and_a_branch_over_states(evaluate):
    """Fibonacci by a pair, then by lanes the sum or the difference."""

    def body():
        start = (constant(0, I32), [constant(1, I32)])
        a, (b,) = loop(0, 10, start, lambda _, now: (now[1][0], [now[0] + now[1][0]]))
        low = lanes.lane_id() < 3
        return list(branch(low, lambda: (a + b,), lambda: (a - b,)))

    found = evaluate(body).integers()
    assert (found == np.where(np.arange(64) < 3, 55 + 89, 55 - 89)).all()
