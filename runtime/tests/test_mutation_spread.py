"""Differences that nothing comes of, against those that reach memory."""

from __future__ import annotations

import pytest
from workgroup_toy import STAGE_VIEW, WAIT, built

from kinfolk.analysis.values import Values
from kinfolk.ir import constant
from kinfolk.ir.ops import arithmetic, control, convert, lanes, memory, vector
from kinfolk.ir.types import F32, I32, I64
from kinfolk.testing.mutation import mutant_classes
from kinfolk.testing.mutation.rounds import as_many_rounds
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


def staged_rows(x, n, y):
    """The same rows go straight to workgroup memory, 16 elements behind the first, which is no place in the view."""
    rows = lanes.uniform(arithmetic.smin(arithmetic.smax(memory.load(n), 0), ROWS))
    buffer = memory.allocate(I32, 96)
    view, place = memory.bound(x, rows), lanes.lane_id() % ROWS
    STAGE_VIEW.add(view, place, buffer, constant(0, I32), count=1, offset=16)
    WAIT.add()
    memory.store(memory.offset(y, lanes.thread_id()), memory.workgroup_load(buffer, lanes.lane_id(), offset=16))


def test_a_row_more_than_is_staged_is_no_difference_and_a_row_fewer_is(reference64, declare):
    shown = proofs(reference64, declare, staged_rows)
    assert shown["constant", "smin", "b 16 -> 17"] == shown["dropped_clamp", "smin", "only a is left"] == [True]
    assert shown["constant", "smin", "b 16 -> 15"] == shown["dropped_clamp", "smax", "only a is left"] == [False]


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


def carried_page(together):
    """A checked page id and how many rows it has are handed on to the next round, `together` or the rows a round late;
    the first has none then.
    """

    def body(x, n, y):
        def checked(number):
            page = lanes.uniform(memory.load(memory.offset(n, number)))
            inside = arithmetic.icmp(page, constant(4, I32), predicate="ult")
            rows = lanes.uniform(arithmetic.select(inside, constant(ROWS, I32), constant(0, I32)))
            return arithmetic.select(inside, page, constant(0, I32)), rows

        def step(number, now):
            page, rows, late = now
            first = memory.offset(x, convert.sext(page, to=I64) * ROWS)
            read = memory.view_load(memory.bound(first, rows if together else late), lanes.lane_id())
            memory.store(memory.offset(y, lanes.thread_id()), read)
            return [*checked(number), rows]

        control.for_range(1, 4, 1, [*checked(constant(0, I32)), constant(0, I32)], step)

    return body


@pytest.mark.parametrize("together", [True, False])
def test_a_base_is_no_matter_where_the_loop_carries_its_view_s_emptiness_beside_it(reference64, declare, together):
    shown = proofs(reference64, declare, carried_page(together))["dropped_select", "select", "always a"]
    assert shown == [False, True, False, together]  # of the rows and of the page, before the loop and in it


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


@pytest.mark.parametrize(
    ("end", "step", "shown"),
    [
        (lambda count: count & -2, 2, True),
        (lambda count: count & -4, 2, True),
        (lambda count: count & -2, 4, False),
        (lambda count: (count & -2) + 1, 2, False),
        (lambda count: count, 1, False),
    ],
    ids=["even", "fours", "two in four", "odd", "each"],
)
def test_a_bound_one_less_is_no_difference_where_steps_pass_over_it(reference64, declare, end, step, shown):
    def body(x, n, y):
        count = lanes.uniform(arithmetic.smin(arithmetic.smax(memory.load(n), 0), ROWS))

        def round_(number, now):
            memory.store(memory.offset(y, lanes.thread_id() + number * 64), constant(1, I32))
            return now

        control.for_range(0, end(count), step, [], round_)

    kernel = built(reference64, body, declare("x", I32), declare("n", I32), declare("y", I32, "write"))
    values = Values(kernel, reference64.arch)
    found = {
        mutant.change.about: bool(as_many_rounds(mutant, values))
        for each in mutant_classes(kernel)
        for mutant in each.mutants
        if mutant.operator.name == "loop_bound"
    }
    assert found == {"lower bound +1": False, "upper bound +1": False, "upper bound -1": shown}


def masked_row(key):
    """A key counts that is below what is seen and below the rows there are, both counted from a lane's first key."""

    def body(x, n, y):
        rows = arithmetic.smin(memory.load(n), ROWS)
        bound = arithmetic.smin(memory.load(memory.offset(n, constant(1, I32))), rows) - lanes.lane_id() % 2
        counts = constant(key, I32) < bound
        memory.store(memory.offset(y, lanes.thread_id()), arithmetic.select(counts, constant(3, I32), lanes.lane_id()))

    return body


@pytest.mark.parametrize(("key", "shown"), [(14, True), (15, False)])
def test_rows_past_the_last_key_of_every_lane_are_no_difference_in_a_mask(reference64, declare, key, shown):
    assert proofs(reference64, declare, masked_row(key))["constant", "smin", "b 16 -> 17"] == [shown]


def tokens_of_heads(more):
    """A lane reads 8 elements and `more` of its head in rows [tokens, heads, 8], of up to 16 tokens."""

    def body(x, n, y):
        heads = arithmetic.smin(arithmetic.smax(memory.load(n), 1), 64)
        tokens = arithmetic.smin(arithmetic.smax(memory.load(memory.offset(n, constant(1, I32))), 0), ROWS)
        view = memory.bound(x, tokens * (heads * 8))
        place = lanes.lane_id() % ROWS * (heads * 8) + lanes.block_id(axis=0, below=64) * 8
        read = memory.view_load(view, place + lanes.lane_id() // ROWS * 2 + more, count=2)
        memory.store(memory.offset(y, lanes.thread_id()), vector.extract(read, index=0))

    return body


@pytest.mark.parametrize(
    ("more", "known", "shown"), [(0, True, True), (1, True, False), (0, False, False)], ids=["own", "next", "unknown"]
)
def test_a_row_of_heads_more_is_no_difference_where_the_head_is_one_of_them(reference64, declare, more, known, shown):
    """That a place in the grid is below the number of heads is known of the launch, where it is known."""
    kernel = built(reference64, tokens_of_heads(more), declare("x", I32), declare("n", I32), declare("y", I32, "write"))
    ops = list(kernel.walk())
    (head,) = [op.results[0] for op in ops if op.definition is lanes.block_id]
    (heads,) = [
        op.results[0]
        for op in ops
        if op.definition is arithmetic.smin and op.operands[1].defining_op.attributes["bits"] == 64
    ]
    values = Values(kernel, reference64.arch)
    found = {
        mutant.change.about: bool(dies_out(mutant, values, {head: heads} if known else {}))
        for each in mutant_classes(kernel)
        for mutant in each.mutants
        if mutant.operator.name == "constant" and mutant.site.op == "core.smin"
    }
    assert found["b 16 -> 17"] is shown
    assert found["b 16 -> 15"] is found["b 64 -> 63"] is False


def test_nothing_is_said_of_a_barrier_or_a_float(reference64, declare):
    def body(x, n, y):
        control.barrier()
        weight = convert.sitofp(memory.load(x), to=F32) * 2.0
        memory.store(memory.offset(y, lanes.thread_id()), convert.fptosi(weight, to=I32))

    assert not any(any(each) for each in proofs(reference64, declare, body).values())
