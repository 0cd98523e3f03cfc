"""Comparisons that are wrong at equality, where nothing or something comes of it."""

from __future__ import annotations

import pytest
from workgroup_toy import built

from kinfolk.analysis.values import Values
from kinfolk.ir import constant
from kinfolk.ir.ops import arithmetic, control, lanes, memory
from kinfolk.ir.types import I32
from kinfolk.testing.mutation import mutant_classes
from kinfolk.testing.mutation.equality import same_at_equality


def counted(made):
    """How many there are from one offset to the next, 0 where the first is negative or they fall."""

    def body(x, n, y):
        begin, end = memory.load(n), memory.load(memory.offset(n, constant(1, I32)))
        memory.store(memory.offset(y, lanes.thread_id()), made(begin, end, constant(0, I32)))

    return body


def guarded(begin, end, zero):
    return control.if_else(begin < end, lambda: (arithmetic.sub(end, begin),), lambda: (zero,))[0]


@pytest.mark.parametrize(
    ("made", "shown"),
    [
        (lambda a, b, zero: arithmetic.select((a >= 0) & (a < b), arithmetic.sub(b, a), zero), True),
        (lambda a, b, zero: arithmetic.select((a >= 0) & (a < b), b + 2 - a, zero + 2), True),
        (lambda a, b, zero: arithmetic.select((a >= 0) & (a < b), arithmetic.sub(b, a), zero + 1), False),
        (lambda a, b, zero: arithmetic.select((a >= 0) & (a < b), b, zero), False),
        (lambda a, b, zero: arithmetic.select(zero.eq(0), arithmetic.select(a < b, b, a), zero), True),
        (guarded, False),
    ],
    ids=["difference", "two more", "one off", "not a difference", "the larger", "a branch"],
)
def test_at_equality_both_sides_are_one_number(reference64, declare, made, shown):
    kernel = built(reference64, counted(made), declare("x", I32), declare("n", I32), declare("y", I32, "write"))
    values = Values(kernel, reference64.arch)
    found = {
        mutant.change.about: bool(same_at_equality(mutant, values))
        for each in mutant_classes(kernel)
        for mutant in each.mutants
        if mutant.operator.name in ("comparison", "swapped_operands") and mutant.site.op == "core.icmp"
    }
    assert found.pop("slt -> sle") is shown
    assert found and not any(found.values())
