"""Differences that nothing comes of, against those that reach memory."""

from __future__ import annotations

import pytest
from workgroup_toy import built

from kinfolk.analysis.values import Values
from kinfolk.ir import constant
from kinfolk.ir.ops import arithmetic, control, convert, lanes, memory
from kinfolk.ir.types import F32, I32, I64
from kinfolk.testing.mutation import mutant_classes
from kinfolk.testing.mutation.spread import dies_out

ROWS = 16


def proofs(toy, declare, body):
    """Return, by operator, op and change, what is shown of the mutants of a kernel of one row a lane."""
    kernel = built(toy, body, declare("x", I32), declare("n", I32), declare("y", I32, "write"))
    values = Values(kernel, toy.arch)
    found: dict[tuple[str, str, str], list[bool]] = {}
    for each in mutant_classes(kernel):
        for mutant in each.mutants:
            key = (mutant.operator.name, mutant.site.op.removeprefix("core."), mutant.change.about)
            found.setdefault(key, []).append(bool(dies_out(mutant, values)))
    return found


def rows_of_a_view(x, n, y):
    """Rows are read up to 16 of a view of as many as there are: one more in the bound is nothing, one fewer is."""
    rows = lanes.uniform(arithmetic.smin(memory.load(n), ROWS))
    place = lanes.lane_id() % ROWS
    read = memory.view_load(memory.bound(x, rows), place)
    memory.store(memory.offset(y, lanes.thread_id()), arithmetic.select(place < rows, read, constant(0, I32)))


def test_a_row_more_than_anyone_reads_is_no_difference_and_a_row_fewer_is(reference64, declare):
    shown = proofs(reference64, declare, rows_of_a_view)
    assert shown["constant", "smin", "b 16 -> 17"] == [True]
    assert shown["constant", "smin", "b 16 -> 15"] == [False]
    assert shown["dropped_clamp", "smin", "only b is left"] == [False]
    assert shown["view_bound", "bound", "count +1"] == shown["view_bound", "bound", "everything is inside"] == [False]


def checked_page(bounded):
    """A page id is replaced where it is outside; the view of it has no element then, if `bounded`."""

    def body(x, n, y):
        page = lanes.uniform(memory.load(n))
        inside = arithmetic.icmp(page, constant(4, I32), predicate="ult")
        known = arithmetic.select(inside, page, constant(0, I32))
        rows = arithmetic.select(inside, constant(ROWS, I32), constant(0, I32)) if bounded else constant(ROWS, I32)
        first = memory.offset(x, convert.sext(known, to=I64) * ROWS)
        read = memory.view_load(memory.bound(first, rows), lanes.lane_id())
        memory.store(memory.offset(y, lanes.thread_id()), read)

    return body


@pytest.mark.parametrize("bounded", [True, False])
def test_a_base_is_no_matter_where_its_view_is_empty(reference64, declare, bounded):
    shown = proofs(reference64, declare, checked_page(bounded))
    assert shown["constant", "select", "b 0 -> 1"][0] is bounded
    assert shown["dropped_select", "select", "always a"][0] is bounded
    assert shown["dropped_select", "select", "always b"][0] is False
    assert shown["select_arms", "select", "its arms have changed places"][0] is False


def carried(x, n, y):
    """What a loop carries is looked into wherever it goes."""
    start = arithmetic.smin(memory.load(n), ROWS)

    def step(number, now):
        seen = (now[0] < ROWS) & (lanes.lane_id() < ROWS)
        memory.store(memory.offset(y, lanes.thread_id()), arithmetic.select(seen, number, constant(7, I32)))
        return [now[1], now[0]]

    last = control.for_range(0, 4, 1, [start, constant(3, I32)], step)
    memory.store(memory.offset(y, lanes.thread_id()), arithmetic.smin(last[0], ROWS))


def test_a_difference_is_followed_through_loops(reference64, declare):
    shown = proofs(reference64, declare, carried)
    assert shown["constant", "smin", "b 16 -> 17"][0] is True
    assert shown["constant", "smin", "b 16 -> 15"][0] is False


def test_nothing_is_said_of_a_barrier_or_a_float(reference64, declare):
    def body(x, n, y):
        control.barrier()
        weight = convert.sitofp(memory.load(x), to=F32) * 2.0
        memory.store(memory.offset(y, lanes.thread_id()), convert.fptosi(weight, to=I32))

    assert not any(any(each) for each in proofs(reference64, declare, body).values())
