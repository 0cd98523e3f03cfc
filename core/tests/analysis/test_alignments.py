"""Vector accesses at addresses that are multiples of what they claim, each beside the twin that is not proved to be."""

from __future__ import annotations

import pytest

from kinfolk.ir.builder import constant
from kinfolk.ir.ops import arithmetic, control, convert, lanes, memory
from kinfolk.ir.types import BF16, F32, I32, I64, PointerType
from kinfolk.parameters import Parameter


def number(value):
    return constant(value, I32)


def parameters(alignment=16):
    return [
        Parameter(name="x", type=PointerType(BF16), alignment=alignment),
        Parameter(name="y", type=PointerType(F32), access="write", alignment=16),
        Parameter(name="n", type=I32, minimum=0, maximum=1000),
        Parameter(name="wide", type=I64),
    ]


def reads(x, index, count=8, alignment=16):
    return memory.load(memory.offset(x, index), count=count, alignment=alignment)


def cut(wide, mask):
    return wide - convert.sext(convert.trunc(wide & mask, to=I32), to=I64)


ACCESSES = {
    "a vector a lane": (lambda x, n: reads(x, lanes.lane_id() * 8), lambda x, n: reads(x, lanes.lane_id() * 4)),
    "a stride that is not known": (lambda x, n: reads(x, n * 8 + 16), lambda x, n: reads(x, n * 8 + 12)),
    "a product of two": (lambda x, n: reads(x, (n * 2) * (n * 4)), lambda x, n: reads(x, (n * 2) * (n * 3))),
    "a shift": (lambda x, n: reads(x, n << 3), lambda x, n: reads(x, n << 2)),
    "a mask": (lambda x, n: reads(x, n & -8), lambda x, n: reads(x, n & -4)),
    "a mask of low bits": (lambda x, n: reads(x, n & 24), lambda x, n: reads(x, n & 28)),
    "a multiple rounded down": (lambda x, n: reads(x, n // 8 * 8), lambda x, n: reads(x, n // 8 * 6)),
    "a rest cut off": (lambda x, n: reads(x, n - (n & 7)), lambda x, n: reads(x, n - (n & 6))),
    "a rest cut off in 64 bits": (
        lambda x, n: reads(x, cut(convert.sext(n, to=I64), 7)),
        lambda x, n: reads(x, cut(convert.sext(n, to=I64), 3)),
    ),
    "a remainder": (lambda x, n: reads(x, (n * 8) % 24), lambda x, n: reads(x, (n * 8) % 28)),
    "bits exchanged": (
        lambda x, n: reads(x, ((n & 7) ^ (n // 8 & 7)) * 8),
        lambda x, n: reads(x, (n & 7) ^ (n // 8 & 7) * 8),
    ),
    "one of two": (
        lambda x, n: reads(x, arithmetic.select(n < 5, n * 8, number(64))),
        lambda x, n: reads(x, arithmetic.select(n < 5, n * 8, number(60))),
    ),
    "the smaller of two": (
        lambda x, n: reads(x, arithmetic.smin(n * 16, number(24))),
        lambda x, n: reads(x, arithmetic.smin(n * 16, number(28))),
    ),
    "what a branch gives": (
        lambda x, n: reads(x, control.if_else(n < 5, lambda: (n * 8,), lambda: (number(0),))[0]),
        lambda x, n: reads(x, control.if_else(n < 5, lambda: (n * 8,), lambda: (n,))[0]),
    ),
    "what a loop carries": (
        lambda x, n: control.for_range(0, n, 1, [number(8)], lambda i, v: [reads(x, v[0]), v[0] + 24][1:]),
        lambda x, n: control.for_range(0, n, 1, [number(8)], lambda i, v: [reads(x, v[0]), v[0] + 20][1:]),
    ),
    "the count of a loop": (
        lambda x, n: control.for_range(16, n, 8, [], lambda i, v: [reads(x, i)][1:]),
        lambda x, n: control.for_range(16, n, 4, [], lambda i, v: [reads(x, i)][1:]),
    ),
    "sums that wrap": (
        lambda x, n: reads(x, arithmetic.mul(n, 1 << 29) & 0x7FFFFFFF),
        lambda x, n: reads(x, arithmetic.mul(n, 3) & 0x7FFFFFFF),
    ),
    "a claim of less": (lambda x, n: reads(x, n * 4, alignment=8), lambda x, n: reads(x, n * 4)),
    "an offset of an offset": (
        lambda x, n: reads(memory.offset(x, n * 8 + 4), n * 8 + 4),
        lambda x, n: reads(memory.offset(x, n * 8 + 4), n * 8),
    ),
}


@pytest.mark.parametrize("case", ACCESSES)
def test_what_is_proved_of_an_offset(defects, case):
    def found(made):
        def body(x, y, n, wide):
            made(x, n)

        return defects(body, "unaligned_access", parameters=parameters())

    right, wrong = ACCESSES[case]
    assert found(right) == ()
    assert len(found(wrong)) == 1


def test_a_parameter_must_be_as_aligned_as_what_is_read_there(defects):
    def body(x, y, n, wide):
        reads(x, n * 8)

    assert defects(body, "unaligned_access", parameters=parameters(16)) == ()
    [defect] = defects(body, "unaligned_access", parameters=parameters(8))
    assert defect.problem == (
        "core.load needs an address that is a multiple of 16 bytes; it is known to be a multiple of 8"
    )


def test_what_is_known_is_told(defects):
    def told(index):
        def body(x, y, n, wide):
            reads(x, index(n))

        [defect] = defects(body, "unaligned_access", parameters=parameters())
        return defect.problem.partition("; ")[2]

    assert told(lambda n: n * 2) == "it is known to be a multiple of 4"
    assert told(lambda n: n * 8 + 2) == "it is 4 past a multiple of 16, so it never is one"
    assert told(lambda n: n * 4 + 2) == "it is 4 past a multiple of 8, so it never is one"


def test_stores_and_sums_into_memory(defects):
    def found(index, alignment):
        def body(x, y, n, wide):
            value = memory.load(memory.offset(y, number(0)), count=2, alignment=8)
            memory.store(memory.offset(y, index(n)), value, alignment=alignment)

        return len(defects(body, "unaligned_access", parameters=parameters()))

    assert found(lambda n: n * 2, 8) == 0 and found(lambda n: n, 8) == 1 and found(lambda n: n, 4) == 0


def test_workgroup_memory(defects, built):
    def found(index, offset=0, alignment=16):
        def body(x, y, n, wide):
            buffer = memory.allocate(F32, 256)
            memory.workgroup_load(buffer, index(n), count=4, offset=offset, alignment=alignment)
            memory.workgroup_store(buffer, number(0), memory.load(y), offset=offset)

        return len(defects(body, "unaligned_access", parameters=parameters()))

    assert found(lambda n: n * 4) == 0 and found(lambda n: n * 2) == 1
    assert found(lambda n: n * 4, offset=8) == 0 and found(lambda n: n * 4, offset=6) == 1
    assert found(lambda n: n * 2, alignment=8) == 0


def test_views_begin_and_end_at_whole_words(defects):
    def found(first, size, place=lambda n: number(0), count=2):
        def body(x, y, n, wide):
            memory.view_load(memory.bound(memory.offset(x, first(n)), size(n)), place(n), count=count)

        return [defect.problem for defect in defects(body, "unaligned_access", parameters=parameters())]

    def even(n):
        return n * 2

    assert found(even, even) == []
    assert any("a base of the view" in problem for problem in found(lambda n: n, even))
    assert any("a size of the view" in problem for problem in found(even, lambda n: n))
    assert any("a place in the view" in problem for problem in found(even, even, lambda n: n))
    assert found(even, even, lambda n: n, count=1) == []
