"""Loaded values in addresses: every check that counts, each beside what is like it and does not."""

from __future__ import annotations

import pytest

from kinfolk.analysis import indirections
from kinfolk.arch import Arch
from kinfolk.ir import build_kernel
from kinfolk.ir.builder import constant
from kinfolk.ir.ops import arithmetic, control, convert, lanes, memory
from kinfolk.ir.types import I32, I64, PointerType
from kinfolk.matrix import MatrixCatalog
from kinfolk.parameters import Parameter


def never(*_):
    raise AssertionError("nothing is lowered here")


ARCH = Arch(
    name="paper",
    target_ids=("paper",),
    wave_size=64,
    facts={"lds_bytes": 4096, "max_workgroup_size": 256},
    matrix=MatrixCatalog(()),
    lower_kernel=never,
    read_usage=never,
)


def found(body):
    """Return what is found in a kernel whose body is given pointers `ids`, `x`, `y` and the number `n`."""
    pointers = [
        Parameter(name=name, type=PointerType(I32), access="readwrite", alignment=4) for name in ("ids", "x", "y")
    ]
    kernel = build_kernel("k", [*pointers, Parameter(name="n", type=I32)], arch=ARCH, block=64, body=body)
    return indirections(kernel)


def read(checked):
    """Return the missing bounds of an address that `checked(value, n)` gives for a loaded value; None where none is."""

    def body(ids, x, y, n):
        value = memory.load(ids)
        memory.store(y, memory.load(memory.offset(x, checked(value, n))))

    result = found(body)
    return result[0].missing if result else None


def zero():
    return constant(0, I32)


def between(v, n):
    return (v >= 0) & (v < n)


CHECKS = {
    "none": (lambda v, n: v, ("low", "high")),
    "a shift of it": (lambda v, n: v * 4 + 1, ("low", "high")),
    "both clamps": (lambda v, n: arithmetic.smin(arithmetic.smax(v, zero()), n), None),
    "the clamp above": (arithmetic.smin, ("low",)),
    "the clamp below": (lambda v, n: arithmetic.smax(v, zero()), ("high",)),
    "a clamp by what is loaded too": (lambda v, n: arithmetic.smin(arithmetic.smax(v, zero()), v), ("low", "high")),
    "an unsigned minimum": (arithmetic.umin, None),
    "a product after both clamps": (lambda v, n: arithmetic.umin(v, n) * n, None),
    "a product after one": (lambda v, n: arithmetic.smin(v, n) * n, ("low", "high")),
    "a difference, its bounds exchanged": (lambda v, n: n - arithmetic.smin(v, n), ("high",)),
    "a remainder": (lambda v, n: v % n, None),
    "the remainder by what is loaded": (lambda v, n: n % v, ("low", "high")),
    "a mask": (lambda v, n: v & 63, None),
    "a mask that only aligns": (lambda v, n: v & -4, ("low", "high")),
    "an unsigned shift": (lambda v, n: v >> 4, ("high",)),
    "an unsigned shift that leaves the upper bits": (lambda v, n: v >> 28, None),
    "an unsigned shift that leaves more than half of them": (lambda v, n: v >> 15, ("high",)),
    "an unsigned shift that leaves half of them": (lambda v, n: v >> 16, None),
    "a division that leaves a few bits": (lambda v, n: v // (1 << 20), None),
    "a division that leaves many": (lambda v, n: v // 1000, ("high",)),
    "selected by comparisons of the next": (lambda v, n: arithmetic.select(between(v + 1, n), v, zero()), None),
    "selected by one comparison of the next": (lambda v, n: arithmetic.select(v + 1 < n, v, zero()), ("low",)),
    "selected by a comparison of a mirrored one": (lambda v, n: arithmetic.select(100 - v < n, v, zero()), ("high",)),
    "selected by a signed comparison of one that may wrap": (
        lambda v, n: arithmetic.select(between(arithmetic.add(v, 1), n), v, zero()),
        ("low", "high"),
    ),
    "selected by an unsigned comparison of one that may wrap": (
        lambda v, n: arithmetic.select(arithmetic.icmp(arithmetic.add(v, 1), n, predicate="ult"), v, zero()),
        None,
    ),
    "selected by a comparison of its sum with another": (
        lambda v, n: arithmetic.select(between(v + n, n), v, zero()),
        ("low", "high"),
    ),
    "selected by an unsigned comparison": (
        lambda v, n: arithmetic.select(arithmetic.icmp(v, n, predicate="ult"), v, zero()),
        None,
    ),
    "selected by two comparisons": (lambda v, n: arithmetic.select(between(v, n), v, zero()), None),
    "selected by one comparison": (lambda v, n: arithmetic.select(v < n, v, zero()), ("low",)),
    "selected on the wrong side": (lambda v, n: arithmetic.select(between(v, n), zero(), v), ("low", "high")),
    "selected by a comparison with itself": (
        lambda v, n: arithmetic.select(arithmetic.icmp(v, v + 1, predicate="ult"), v, zero()),
        ("low", "high"),
    ),
    "selected by a comparison of another": (lambda v, n: arithmetic.select(between(n, n), v, zero()), ("low", "high")),
    "selected where either is wrong": (lambda v, n: arithmetic.select((v < 0) | (v >= n), zero(), v), None),
    "what is made of it, selected": (lambda v, n: arithmetic.select(between(v, n), v * 8 + 3, zero()), None),
    "a claim of uniformity": (lambda v, n: lanes.uniform(v), ("low", "high")),
    "compared as a claim of uniformity": (
        lambda v, n: arithmetic.select(between(lanes.uniform(v), n), v, zero()),
        None,
    ),
    "a whole way in 64 bits": (lambda v, n: convert.sext(arithmetic.umin(v, n), to=I64) * 4096, None),
}


@pytest.mark.parametrize("check", CHECKS)
def test_what_counts_as_a_range_check(check):
    checked, missing = CHECKS[check]
    assert read(checked) == missing


def test_a_branch_counts_where_it_is_and_not_behind_it():
    def body(ids, x, y, n):
        value = memory.load(ids)
        place = memory.offset(x, value)
        control.if_else(between(value, n), lambda: memory.store(place, n) or (), lambda: memory.store(y, n) or ())

    def behind(ids, x, y, n):
        value = memory.load(ids)
        (kept,) = control.if_else(between(value, n), lambda: (n,), lambda: (value,))
        memory.store(memory.offset(x, kept), n)

    def carried_out(ids, x, y, n):
        value = memory.load(ids)
        (kept,) = control.if_else(between(value, n), lambda: (value,), lambda: (n,))
        memory.store(memory.offset(x, kept), n)

    assert found(body) == () and found(carried_out) == ()
    [one] = found(behind)
    assert [op.name for op in one.chain] == ["core.load", "core.if", "core.offset", "core.store"]


def test_what_loops_carry_and_count_is_followed():
    def carried(first, following):
        def body(ids, x, y, n):
            def turn(i, values):
                memory.store(memory.offset(x, values[0]), i)
                return [following(values, memory.load(ids), n), values[0]]

            control.for_range(0, n, 1, [first(ids, n), n], turn)

        return found(body)

    assert carried(lambda ids, n: n, lambda values, loaded, n: values[1]) == ()
    assert carried(lambda ids, n: n, lambda values, loaded, n: arithmetic.umin(loaded, n)) == ()
    [one] = carried(lambda ids, n: n, lambda values, loaded, n: loaded)
    assert one.chain[0].name == "core.load" and one.op.name == "core.store"
    [one] = carried(lambda ids, n: memory.load(ids), lambda values, loaded, n: values[1])
    assert one.missing == ("low", "high")

    def counted(lower, upper):
        def body(ids, x, y, n):
            def turn(i, values):
                memory.store(memory.offset(x, i), i)
                return []

            loaded = memory.load(ids)
            control.for_range(lower(loaded, n), upper(loaded, n), 1, [], turn)

        result = found(body)
        return result[0].missing if result else None

    assert counted(lambda v, n: n, arithmetic.smin) is None
    assert counted(lambda v, n: n, lambda v, n: v) == ("high",)
    assert counted(lambda v, n: v, arithmetic.smin) == ("low",)
    assert counted(arithmetic.smax, lambda v, n: arithmetic.smax(v, n) + 16) == ("high",)


@pytest.mark.parametrize("rounds", range(1, 6))
@pytest.mark.parametrize("checked", [True, False])
def test_what_a_loop_carries_for_some_rounds_is_followed(rounds, checked):
    """Each round hands a loaded value to the next carried one; the last of them is the address behind the loop."""

    def body(ids, x, y, n):
        def turn(i, values):
            loaded = memory.load(ids)
            return [*values[1:], arithmetic.umin(loaded, n) if checked else loaded]

        first, *_ = control.for_range(0, n, 1, [n] * rounds, turn)
        memory.store(memory.offset(x, first), n)

    assert len(found(body)) == (0 if checked else 1)


OF_ANOTHER_LANE = {
    "exchanged": lambda v: lanes.shuffle_xor(v, mask=1),
    "of the first lane": lanes.first_lane,
}


@pytest.mark.parametrize("moved", OF_ANOTHER_LANE.values(), ids=OF_ANOTHER_LANE.keys())
def test_a_check_on_this_lane_is_none_of_what_another_lane_holds(moved):
    def selected(v, n):
        return arithmetic.select(between(v, n), moved(v), zero())

    def selected_alike_everywhere(v, n):
        return arithmetic.select(lanes.any_lane((v < 0) | (v >= n)), zero(), moved(v))

    def selected_after(v, n):
        other = moved(v)
        return arithmetic.select(between(other, n), other, zero())

    assert read(selected) == ("low", "high")
    assert read(selected_alike_everywhere) is None and read(selected_after) is None

    def branches(ids, x, y, n, before):
        value = memory.load(ids)
        early = moved(value)
        control.if_else(
            between(value, n), lambda: memory.store(memory.offset(x, early if before else moved(value)), n) or ()
        )

    assert found(lambda *given: branches(*given, before=False)) == ()
    assert len(found(lambda *given: branches(*given, before=True))) == 1


def test_a_check_of_the_first_lane_is_none_of_the_others():
    def checked(v, n):
        return arithmetic.select(between(lanes.first_lane(v), n), v, zero())

    assert read(checked) == ("low", "high")


def test_a_branch_that_no_wrong_lane_takes():
    """Where no lane is wrong all are right; where some lane is right others may be wrong."""

    def body(ids, x, y, n, right):
        value = memory.load(ids)

        def use():
            return memory.store(memory.offset(x, value), n) or ()

        if right:
            control.if_else(lanes.any_lane((value < 0) | (value >= n)), tuple, use)
        else:
            control.if_else(lanes.any_lane(between(value, n)), use)

    assert found(lambda *given: body(*given, right=True)) == ()
    assert len(found(lambda *given: body(*given, right=False))) == 1


MOVES = {
    **OF_ANOTHER_LANE,
    "claimed uniform": lanes.uniform,
    "hidden from the compiler": control.opaque,
}


@pytest.mark.parametrize("moved", MOVES.values(), ids=MOVES.keys())
def test_a_clamp_lasts_while_a_value_moves(moved):
    assert read(lambda v, n: arithmetic.smax(moved(arithmetic.smin(v, n)), zero())) is None
    assert read(lambda v, n: moved(arithmetic.smin(v, n))) == ("low",)
    assert read(lambda v, n: moved(arithmetic.smax(v, zero()))) == ("high",)


@pytest.mark.parametrize("checks", [True, False])
def test_what_goes_through_workgroup_memory_is_followed(checks):
    def body(ids, x, y, n):
        tile = memory.allocate(I32, 64)
        value = memory.load(ids)
        memory.workgroup_store(tile, lanes.lane_id(), arithmetic.umin(value, n) if checks else value)
        control.barrier()
        memory.store(memory.offset(x, memory.workgroup_load(tile, lanes.lane_id())), n)

    assert [one.op.name for one in found(body)] == ([] if checks else ["core.store"])


def test_views_and_workgroup_memory():
    """A view clamps its index; its base and size are what must be bounded, the base only where the view has a size."""

    def index(ids, x, y, n):
        memory.view_load(memory.bound(x, n), memory.load(ids))

    def base(ids, x, y, n):
        memory.bound(memory.offset(x, memory.load(ids)), n)

    def size(ids, x, y, n):
        memory.bound(x, memory.load(ids))

    def empty_where_it_is_wrong(ids, x, y, n):
        value = memory.load(ids)
        memory.bound(memory.offset(x, value), arithmetic.select(between(value, n), n, zero()))

    def empty_where_it_is_right(ids, x, y, n):
        value = memory.load(ids)
        memory.bound(memory.offset(x, value), arithmetic.select(between(value, n), zero(), n))

    def element(ids, x, y, n):
        memory.workgroup_load(memory.allocate(I32, 64), memory.load(ids))

    assert found(index) == () and found(empty_where_it_is_wrong) == ()
    for body, what in (
        (base, "the base of a view"),
        (size, "the size of a view"),
        (empty_where_it_is_right, "the base of a view"),
        (element, "an index into workgroup memory"),
    ):
        [one] = found(body)
        assert one.what == what


def test_a_long_way_is_followed():
    def body(ids, x, y, n):
        value = memory.load(ids)
        for _ in range(3000):
            value = value + 1
        memory.store(memory.offset(x, value), n)

    [one] = found(body)
    assert len(one.chain) == 3003


def test_the_chain_is_told_with_its_sources():
    def body(ids, x, y, n):
        value = memory.load(ids) + 1
        memory.store(memory.offset(x, value), n)

    [one] = found(body)
    assert [op.name for op in one.chain] == ["core.load", "core.add", "core.offset", "core.store"]
    assert str(one).count("test_indirection.py:") >= 4
    assert "an address made of a loaded value without a lower and an upper bound" in str(one)
