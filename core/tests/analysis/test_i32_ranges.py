"""Sums and products that may not fit: each with the smallest bounds that break it, beside the twin that cannot."""

from __future__ import annotations

import pytest

from kinfolk.errors import InternalError
from kinfolk.ir.builder import constant
from kinfolk.ir.ops import arithmetic, control, convert, lanes, memory
from kinfolk.ir.types import F32, I32, I64, PointerType
from kinfolk.parameters import Parameter

MOST = 2**31 - 1


def number(value):
    return constant(value, I32)


def given(**bounds):
    """Return parameters `x`, `y`, then an i32 per bound."""
    return [
        Parameter(name="x", type=PointerType(I32), alignment=4),
        Parameter(name="y", type=PointerType(I32), access="write", alignment=4),
        *(Parameter(name=name, type=I32, minimum=low, maximum=high) for name, (low, high) in bounds.items()),
    ]


@pytest.fixture
def told(defects):
    """Return the problems of a kernel whose body gets `x`, `y` and the bounded numbers."""

    def problems(body, **bounds):
        found = defects(body, "i32_range", parameters=given(**bounds))
        return [defect.problem for defect in found]

    return problems


def at(x, y, index):
    memory.store(y, memory.load(memory.offset(x, index)))


def test_the_smallest_bounds_that_break_a_product(told):
    def body(x, y, num_pages, page_stride):
        at(x, y, num_pages * page_stride)

    bounds = {"num_pages": (0, MOST), "page_stride": (1, 32768)}
    assert told(body, **bounds) == [
        "num_pages * page_stride exceeds 2^31-1 at num_pages = 65,536 with page_stride = 32,768"
    ]
    assert told(body, num_pages=(0, 65535), page_stride=(1, 32768)) == []
    assert told(body, num_pages=(0, 65536), page_stride=(1, 32767)) == []


def test_the_same_in_64_bits_is_not_judged(told):
    def body(x, y, num_pages, page_stride):
        at(x, y, convert.sext(num_pages, to=I64) * convert.sext(page_stride, to=I64))

    assert told(body, num_pages=(0, MOST), page_stride=(1, MOST)) == []


EDGES = {
    "a sum": (lambda n: n + 15, MOST - 15, "n + 15 exceeds 2^31-1 at n = 2,147,483,633"),
    "a negative sum": (lambda n: n * -1 - 10, MOST - 9, "(n * -1) - 10 falls below -2^31 at n = 2,147,483,639"),
    "a product": (lambda n: n * 3, MOST // 3, "n * 3 exceeds 2^31-1 at n = 715,827,883"),
    "a rounded product": (lambda n: (n + 3) // 4 * 4, MOST - 3, "n + 3 exceeds 2^31-1 at n = 2,147,483,645"),
    "what lanes add": (lambda n: n + lanes.lane_id(), MOST - 63, "n + lane exceeds 2^31-1 at n = 2,147,483,585"),
    "what threads add": (lambda n: n + lanes.thread_id(), MOST - 127, "n + thread exceeds 2^31-1 at n = 2,147,483,521"),
    "a claim of few workgroups": (
        lambda n: n * lanes.block_id(axis=0, below=4),
        MOST // 3,
        "n * workgroup x exceeds 2^31-1 at n = 715,827,883 with workgroup x = 3",
    ),
    "workgroups as many as the arch has": (
        lambda n: n * lanes.block_id(axis=1),
        MOST // 65534,
        "n * workgroup y exceeds 2^31-1 at n = 32,770 with workgroup y = 65,533",
    ),
    "a shift": (
        lambda n: n << 4,
        MOST >> 4,
        "n << 4 exceeds 2^31-1 at n = 134,217,728, and wraps on its way to an address at",
    ),
    "a product that wraps by declaration": (
        lambda n: arithmetic.mul(n, 4),
        MOST // 4,
        "n * 4 exceeds 2^31-1 at n = 536,870,912, and wraps on its way to an address at",
    ),
    "a cut of 64 bits": (
        lambda n: convert.trunc(convert.sext(n, to=I64) * 8, to=I32),
        MOST // 8,
        "n * 8, cut to i32, exceeds 2^31-1 at n = 268,435,456, and wraps on its way to an address at",
    ),
}


@pytest.mark.parametrize("case", EDGES)
def test_the_edge_of_each_kind_of_sum(told, case):
    made, edge, problem = EDGES[case]

    def body(x, y, n):
        at(x, y, arithmetic.umin(made(n), 7) if "negative" in case else made(n))

    assert told(body, n=(0, edge)) == []
    [found] = told(body, n=(0, edge + 1))
    assert found.startswith(problem)


CHECKED = {
    "a loaded value": (lambda v, n: v + 1, lambda v, n: arithmetic.smin(v, n) + 1),
    "in a branch": (
        lambda v, n: control.if_else(v > n, lambda: (v * 4,), lambda: (n,))[0],
        lambda v, n: control.if_else((v < n) & (v >= 0), lambda: (v * 4,), lambda: (n,))[0],
    ),
    "on the other side": (
        lambda v, n: control.if_else((v < 0) | (v < n), lambda: (n,), lambda: (v * 4,))[0],
        lambda v, n: control.if_else((v < 0) | (v >= n), lambda: (n,), lambda: (v * 4,))[0],
    ),
    "an unsigned comparison": (
        lambda v, n: control.if_else(arithmetic.icmp(v, n, predicate="ugt"), lambda: (v * 4,), lambda: (n,))[0],
        lambda v, n: control.if_else(arithmetic.icmp(v, n, predicate="ult"), lambda: (v * 4,), lambda: (n,))[0],
    ),
    "where no lane has it": (
        lambda v, n: control.if_else(lanes.any_lane((v < 0) | (v > n)), lambda: (v * 4,), lambda: (n,))[0],
        lambda v, n: control.if_else(lanes.any_lane((v < 0) | (v > n)), lambda: (n,), lambda: (v * 4,))[0],
    ),
    "compared by its next": (
        lambda v, n: control.if_else(n > v, lambda: (v - 1,), lambda: (n,))[0],
        lambda v, n: control.if_else((n > v) & (v >= 1), lambda: (v - 1,), lambda: (n,))[0],
    ),
    "equal to what is bounded": (
        lambda v, n: control.if_else(v.ne(n), lambda: (v * 4,), lambda: (n,))[0],
        lambda v, n: control.if_else(v.eq(n), lambda: (v * 4,), lambda: (n,))[0],
    ),
    "selected": (
        lambda v, n: arithmetic.select(v < n, v, n) * 4,
        lambda v, n: arithmetic.select((v < n) & (v >= 0), v, n) * 4,
    ),
    "as far from what it is below": (
        lambda v, n: control.if_else((v <= n) & (v >= 0), lambda: (-(2**31) + (n - v) - 1,), lambda: (n,))[0],
        lambda v, n: control.if_else((v < n) & (v >= 0), lambda: (-(2**31) + (n - v) - 1,), lambda: (n,))[0],
    ),
    "as far from what it is not above": (
        lambda v, n: control.if_else((v > n) | (v < 0), lambda: (-(2**31) + (n - v) - 1,), lambda: (n,))[0],
        lambda v, n: control.if_else((v > n) | (v < 0), lambda: (n,), lambda: (-(2**31) + (n - v),))[0],
    ),
}


@pytest.mark.parametrize("case", CHECKED)
def test_what_is_checked_is_known(told, case):
    def body(made):
        def kernel(x, y, n):
            at(x, y, arithmetic.umin(made(memory.load(x), n), 7))

        return told(kernel, n=(0, 1000))

    wrong, right = CHECKED[case]
    [problem] = body(wrong)
    assert "it may be" in problem
    assert body(right) == []


def loop(upper, body, carried=(), lower=0, step=1):
    return control.for_range(lower, upper, step, carried, body)


def stored(y, value):
    memory.store(y, value)
    return ()


LOOPS = {
    "the index": (
        lambda x, y, n: loop(n, lambda i, _: stored(y, i * 4)),
        (MOST // 4 + 1, MOST // 4 + 2),
    ),
    "the count past the last": (
        lambda x, y, n: loop(n, lambda i, _: stored(y, i), step=16),
        (MOST - 15, MOST - 14),
    ),
    "what grows by a constant a round": (
        lambda x, y, n: loop(n, lambda i, v: (v[0] + 5,), [number(7)]),
        ((MOST - 7) // 5, (MOST - 7) // 5 + 1),
    ),
    "what grows in a branch": (
        lambda x, y, n: loop(
            n,
            lambda i, v: control.if_else(i < 3, lambda: (v[0] + 4,), lambda: (v[0],)),
            [number(0)],
        ),
        (MOST // 4, MOST // 4 + 1),
    ),
    "what shrinks": (
        lambda x, y, n: loop(n, lambda i, v: (v[0] - 4,), [number(0)]),
        (2**29, 2**29 + 1),
    ),
    "what a loop inside adds": (
        lambda x, y, n: loop(n, lambda i, v: loop(8, lambda j, w: (w[0] + 2,), [v[0]]), [number(0)]),
        (MOST // 16, MOST // 16 + 1),
    ),
}


@pytest.mark.parametrize("case", LOOPS)
def test_the_edge_of_what_a_loop_counts(told, case):
    body, (right, wrong) = LOOPS[case]
    assert told(body, n=(0, right)) == []
    assert len(told(body, n=(0, wrong))) == 1


def test_a_ring_of_slots_does_not_grow(told):
    """As long as one steps from slot to slot, the slot after the last is the first, not somewhere behind it."""

    def ring(after):
        def body(x, y, n):
            def turn(i, values):
                at(x, y, values[0] * 10000)
                return [after(values[0])]

            loop(n, turn, [number(0)])

        return told(body, n=(0, MOST))

    assert ring(lambda slot: arithmetic.select(slot.eq(3 * 64), number(0), slot + 64)) == []
    assert ring(lambda slot: arithmetic.select(slot.eq(0), number(192), slot - 64)) == []
    assert len(ring(lambda slot: arithmetic.select(slot.eq(3 * 64 + 1), number(0), slot + 64))) == 2


def test_waves_with_parts_of_their_own_are_told_apart(told):
    """Each wave's ring begins elsewhere; only for one wave at a time is its last slot a number."""

    def body(x, y, n):
        begin = lanes.wave_id() * 1000
        last = begin + 300

        def turn(i, values):
            at(x, y, values[0] * 10000)
            return [arithmetic.select(values[0].eq(last), begin, values[0] + 100)]

        loop(n, turn, [begin])

    assert told(body, n=(0, MOST)) == []


def test_what_wraps_by_declaration_may_where_it_decides_nothing(told):
    def body(use):
        def kernel(x, y, n):
            use(x, y, arithmetic.mul(memory.load(x), n), n)

        return told(kernel, n=(0, 9))

    assert body(lambda x, y, v, n: memory.store(y, v)) == []
    assert body(lambda x, y, v, n: at(x, y, v & 63)) == []
    assert body(lambda x, y, v, n: at(x, y, arithmetic.smin(arithmetic.smax(v, number(0)), n))) == []
    [address] = body(lambda x, y, v, n: at(x, y, v))
    [compared] = body(lambda x, y, v, n: memory.store(y, arithmetic.select(v < n, n, number(0))))
    [counted] = body(lambda x, y, v, n: loop(lanes.uniform(arithmetic.smax(v, n)), lambda i, _: stored(y, number(1))))
    assert "on its way to an address" in address
    assert "on its way to a signed comparison" in compared
    assert "on its way to the bound of a loop" in counted


VIEWS = {
    "its size": (lambda x, y, n: memory.bound(x, n), (2**29 - 1, 2**29), "the size of a view, n elements of 4 bytes,"),
    "a place in it": (
        lambda x, y, n: memory.view_load(memory.bound(x, number(4)), n),
        (2**29 - 1, 2**29),
        "the place in a view, n times 4 bytes,",
    ),
}


@pytest.mark.parametrize("case", VIEWS)
def test_the_bytes_of_a_view(told, case):
    body, (right, wrong), problem = VIEWS[case]
    assert told(body, n=(0, right)) == []
    [found] = told(body, n=(0, wrong))
    assert found == f"{problem} exceeds 2^31-1 at n = 536,870,912"


def test_a_view_of_fewer_than_no_elements(told):
    [found] = told(lambda x, y, n: memory.bound(x, n), n=(-1, 5))
    assert found == "the size of a view, n elements of 4 bytes, falls below 0 at n = -1"


def test_many_lines_are_told_the_later_ones_without_a_search(defects):
    def body(x, y, n):
        values = [
            n + 1, n + 2, n + 3,
            n + 4,
            n + 5,
            n + 6,
            n + 7,
            n + 8,
            n + 9,
            n + 10,
            n + 11,
        ]  # fmt: skip
        for value in values:
            memory.store(y, value)

    found = defects(body, "i32_range", parameters=given(n=(0, MOST)))
    assert len(found) == 9  # one a line
    assert "at n = 2,147,483,647" in found[0].problem and "it may be" in found[-1].problem


def test_bounds_that_are_none():
    for bounds in ({"minimum": 5, "maximum": 4}, {"maximum": 2**31}, {"minimum": 1.0}, {"minimum": True}):
        with pytest.raises(InternalError, match=r"parameter n .*declares"):
            Parameter(name="n", type=I32, **bounds)
    with pytest.raises(InternalError, match="an i32 or i64 has bounds"):
        Parameter(name="s", type=F32, minimum=0)
    with pytest.raises(InternalError, match="has no bounds"):
        _ = Parameter(name="s", type=F32).bounds
    assert Parameter(name="n", type=I32, minimum=3).bounds == (3, MOST)
    assert Parameter(name="n", type=I64).bounds == (-(2**63), 2**63 - 1)


def test_a_formula_is_told_as_it_is_made(told):
    """Parameters, places and constants by name; what is deep, or no arithmetic, is left out."""

    def body(x, y, n, m):
        checked = arithmetic.smin(arithmetic.smax(memory.load(x), number(0)), m)
        memory.store(y, checked + 15)
        memory.store(y, lanes.uniform(n) * lanes.lane_id() - m)

    [first] = told(body, n=(0, 9), m=(0, MOST))
    assert first == "min(max(loaded value, 0), m) + 15 exceeds 2^31-1 at m = 2,147,483,633"
    [second] = told(lambda x, y, n: memory.store(y, ((n + 1) * 2 + 3) // 4 * 8), n=(0, 2**29))
    assert second == "((... + 3) // 4) * 8 exceeds 2^31-1 at n = 536,870,910"
