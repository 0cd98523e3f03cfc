"""Sets of integers and what ops make of them, against every member of small sets and numpy's own evaluation."""

from __future__ import annotations

import ir_evaluation
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kinfolk.analysis.strided import (
    added,
    between,
    combined,
    common,
    conjoined,
    divided,
    joined,
    low_bits,
    met,
    multiplied,
    negated,
    number,
    remaining,
    signed,
    strided,
    unsigned,
    without,
    wrapped,
)
from kinfolk.analysis.transfer import MAY_WRAP, TRANSFERS, exact
from kinfolk.analysis.values import computed
from kinfolk.ir.builder import complete_attributes
from kinfolk.ir.ops import CORE_OPS
from kinfolk.ir.types import I1, I8, I32
from kinfolk.ir.value import Operation, Region

BITS = 5
WHOLE = signed(BITS)


def members(numbers):
    return [value for value in range(numbers.low, numbers.high + 1) if value in numbers]


def sets_within(whole):
    ends = st.lists(st.integers(whole.low, whole.high), min_size=2, max_size=2).map(sorted)
    made = st.builds(lambda ends, step, rest: strided(*ends, step, rest), ends, st.integers(1, 9), st.integers(-9, 9))
    return st.one_of(made.filter(lambda each: each is not None), st.integers(whole.low, whole.high).map(number))


SETS = sets_within(WHOLE)


def holds(found, numbers):
    """Whether a set has all these numbers, and both its ends are members of it."""
    assert found.low in found and found.high in found
    return all(each in found for each in numbers)


@settings(max_examples=60, deadline=None)
@given(SETS, SETS)
def test_two_sets(a, b):
    pairs = [(x, y) for x in members(a) for y in members(b)]
    assert holds(joined(a, b), members(a) + members(b))
    assert holds(added(a, b), [x + y for x, y in pairs])
    assert holds(multiplied(a, b), [x * y for x, y in pairs])
    assert holds(conjoined(a, b, BITS), [x & y for x, y in pairs])
    assert holds(combined(a, b, BITS, either=True), [x | y for x, y in pairs])
    assert holds(combined(a, b, BITS, either=False), [x ^ y for x, y in pairs])
    both = set(members(a)) & set(members(b))
    found = common(a, b)
    assert not both if found is None else holds(found, both)


@given(SETS, st.integers(1, 9), st.integers(WHOLE.low, WHOLE.high), st.integers(WHOLE.low, WHOLE.high))
def test_one_set(a, by, low, high):
    size = 1 << BITS
    assert holds(divided(a, by), [x // by for x in members(a)])
    assert holds(remaining(a, by), [x % by for x in members(a)])
    assert holds(negated(a), [-x for x in members(a)])
    assert holds(unsigned(a, BITS), [x % size for x in members(a)])
    assert holds(
        wrapped(multiplied(a, number(by)), BITS), [(x * by + size // 2) % size - size // 2 for x in members(a)]
    )
    known, bits = low_bits(a)
    assert {x % (1 << known) for x in members(a)} == {bits}
    kept = [x for x in members(a) if low <= x <= high]
    found = met(a, low, high)
    assert not kept if found is None else members(found) == kept
    rest = without(a, low)
    assert members(a) == [low] if rest is None else holds(rest, [x for x in members(a) if x != low])


def test_what_is_known_is_as_much_as_can_be():
    assert added(number(3), strided(0, 20, 4)) == strided(3, 23, 4, 3)
    assert multiplied(strided(0, 20, 4), number(6)) == strided(0, 120, 24)
    assert multiplied(strided(2, 10, 4, 2), strided(0, 8, 2)).step == 4
    assert conjoined(between(-16, 15), number(-4), BITS) == strided(-16, 12, 4)
    assert conjoined(between(-16, 15), number(6), BITS) == strided(0, 6, 2)
    assert combined(between(0, 7), between(0, 7), 32, either=False) == between(0, 7)
    assert combined(strided(-16, 8, 8), between(0, 3), 64, either=True) == between(-16, 15)
    assert combined(between(-1, 0), number(-17), 64, either=False) == between(-32, 31)
    assert divided(strided(8, 24, 8), 4) == strided(2, 6, 2)
    assert without(strided(0, 12, 4), 12) == strided(0, 8, 4)
    assert common(strided(0, 30, 4), strided(2, 31, 6, 2)) == strided(2, 26, 6, 2)


def test_a_set_is_told_as_people_say_it():
    assert str(number(-1234)) == "-1,234"
    assert str(between(0, 65535)) == "0 to 65,535"
    assert str(strided(16, 32, 16)) == "16 to 32, a multiple of 16"
    assert str(strided(3, 35, 16, 3)) == "3 to 35, 3 past a multiple of 16"


UNARY = {"core.sext": I32, "core.zext": I32, "core.trunc": I1}
OPS = [name for name in TRANSFERS if len(CORE_OPS[name].operands) == 2 and name != "core.shuffle"]
CASES = [(name, {}) for name in [*OPS, *UNARY] if name != "core.icmp"]
CASES += [("core.icmp", {"predicate": p}) for p in ("eq", "ne", "slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge")]


@pytest.mark.parametrize("name, attributes", CASES, ids=str)
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_an_op_gives_what_numpy_evaluates(name, attributes, data):
    """Each op's declared meaning on all members of two sets of i8; whatever its requirement refuses is left out."""
    definition = CORE_OPS[name]
    attributes = {**attributes, **({"to": UNARY[name]} if name in UNARY else {})}
    sets = [data.draw(sets_within(signed(8))) for _ in definition.operands]
    operands = tuple(np.meshgrid(*(np.array(members(each), np.int8).view(np.uint8) for each in sets)))
    flat = [each.ravel() for each in operands]
    found, broken = ir_evaluation.evaluate(name, [I8] * len(sets), flat, **attributes)
    right = np.ones(len(found), bool)
    right[sorted(set().union(*broken.values()))] = False
    region = Region((I8,) * len(sets))
    complete = complete_attributes(definition, attributes)
    type_ = definition.result((I8,) * len(sets), complete)[0]
    op = Operation(definition, region.arguments, complete, (type_,))
    numbers = found[right] if type_ == I1 else found[right].view(f"int{type_.bits}")
    told = computed(op, sets)
    assert holds(told, set(numbers.tolist()))
    if name in MAY_WRAP and len(sets) == 2 and name != "core.shl":
        whole = exact(op, sets)
        fits = whole.low >= signed(8).low and whole.high <= signed(8).high
        _, wrong = ir_evaluation.evaluate(name, [I8] * len(sets), flat, **{**attributes, "nsw": True})
        assert not (fits and wrong)
