"""Bounds of views that are off by elements that nobody reads, against those that cut rows or show the next."""

from __future__ import annotations

import pytest
from workgroup_toy import built

from kinfolk.analysis.values import Values
from kinfolk.ir import constant
from kinfolk.ir.ops import arithmetic, lanes, memory, vector
from kinfolk.ir.types import I32
from kinfolk.testing.mutation import mutant_classes
from kinfolk.testing.mutation.rims import none_between


def rows_of(width, first, count, stride=None):
    """A lane reads `count` elements from `first` on of its row, rows `width` wide, of as many rows as there are."""

    def body(x, n, y):
        row = arithmetic.smin(arithmetic.smax(memory.load(n), 1), 64) * width
        tokens = arithmetic.smin(arithmetic.smax(memory.load(memory.offset(n, constant(1, I32))), 0), 64)
        place = lanes.lane_id() * (row if stride is None else stride)
        read = memory.view_load(memory.bound(x, tokens * row), place + first, count=count)
        memory.store(memory.offset(y, lanes.thread_id()), vector.extract(read, index=0))

    return body


@pytest.mark.parametrize(
    ("body", "more", "fewer"),
    [
        (rows_of(4, 1, 2), True, True),
        (rows_of(4, 0, 2), False, True),
        (rows_of(4, 2, 2), True, False),
        (rows_of(4, 0, 4), False, False),
        (rows_of(4, 3, 2), False, False),
        (rows_of(4, 1, 2, stride=4), False, False),
    ],
    ids=["between", "first", "last", "whole", "of the next row", "of another width"],
)
def test_a_bound_is_off_by_what_is_between_rows(reference64, declare, body, more, fewer):
    kernel = built(reference64, body, declare("x", I32), declare("n", I32), declare("y", I32, "write"))
    values = Values(kernel, reference64.arch)
    found = {
        mutant.change.about: bool(none_between(mutant, values, {}))
        for each in mutant_classes(kernel)
        for mutant in each.mutants
        if mutant.operator.name == "view_bound"
    }
    assert found == {"count +1": more, "count -1": fewer, "everything is inside": False}
