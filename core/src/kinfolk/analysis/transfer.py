"""What ops make of sets of integers: one function per op, on whole numbers that no register has cut yet."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import gcd, lcm
from typing import Final

from kinfolk.analysis.comparisons import constant_of
from kinfolk.analysis.strided import (
    Strided,
    added,
    all_joined,
    between,
    combined,
    conjoined,
    divided,
    joined,
    multiplied,
    negated,
    number,
    remaining,
    signed,
    strided,
    unsigned,
)
from kinfolk.ir.types import element_type
from kinfolk.ir.value import Operation, Value

Sets = Sequence[Strided]
Transfer = Callable[[Operation, Sets, int], Strided]
MAY_WRAP: Final = ("core.add", "core.sub", "core.mul", "core.shl", "core.trunc")
"""Ops whose results here are whole numbers, of which a register keeps the lowest bits."""


def exact(op: Operation, sets: Sets) -> Strided:
    """Return what an integer op gives for operands in sets, before a register cuts it."""
    bits = element_type(op.results[0].type).bits
    transfer = TRANSFERS.get(op.name)
    return signed(bits) if transfer is None else transfer(op, sets, bits)


def _added(op: Operation, sets: Sets, bits: int) -> Strided:
    return added(*sets)


def _subtracted(op: Operation, sets: Sets, bits: int) -> Strided:
    a, b = op.operands
    if a is b:
        return number(0)
    found = added(sets[0], negated(sets[1]))
    step = _cut_off(b, a)
    return found if step is None else strided(found.low, found.high, lcm(step, found.step), 0) or found


def _cut_off(value: Value, of: Value) -> int | None:
    """Return n, a power of two, where a value is what `of` leaves divided by n; None where it is anything else."""
    made = value.defining_op
    while made is not None and made.name in ("core.sext", "core.zext", "core.trunc", "core.uniform"):
        made = made.operands[0].defining_op
    if made is None or made.name not in ("core.and", "core.urem") or made.operands[0] is not of:
        return None
    constant = constant_of(made.operands[1])
    if constant is None:
        return None
    step = constant + 1 if made.name == "core.and" else constant
    return step if 0 < step < 1 << 31 and step & (step - 1) == 0 else None


def _multiplied(op: Operation, sets: Sets, bits: int) -> Strided:
    return multiplied(*sets)


def _shifted_left(op: Operation, sets: Sets, bits: int) -> Strided:
    low, high = max(0, sets[1].low), min(bits - 1, sets[1].high)
    if low > high:
        return signed(bits)
    powers = number(1 << low) if low == high else Strided(1 << low, 1 << high, 1 << low, 0)
    return multiplied(sets[0], powers)


def _unsigned_quotient(a: Strided, by: Strided) -> Strided:
    if by.low <= 0:
        return between(0, a.high)  # by 0 it is no number, by a negative one, which counts as large, 0 or 1
    if by.single is not None:
        return divided(a, by.single)
    return between(a.low // by.high, a.high // by.low)


def _divided(op: Operation, sets: Sets, bits: int) -> Strided:
    return _within(_unsigned_quotient(unsigned(sets[0], bits), sets[1]), bits)


def _remaining(op: Operation, sets: Sets, bits: int) -> Strided:
    a, by = unsigned(sets[0], bits), sets[1]
    if by.low <= 0:
        return signed(bits)
    if by.single is not None:
        return remaining(a, by.single)
    return a if a.high < by.low else between(0, min(a.high, by.high - 1))


def _shifted_right(op: Operation, sets: Sets, bits: int) -> Strided:
    low, high = max(0, sets[1].low), min(bits - 1, sets[1].high)
    a = unsigned(sets[0], bits)
    if low > high:
        return signed(bits)
    return _within(divided(a, 1 << low) if low == high else between(a.low >> high, a.high >> low), bits)


def _within(a: Strided, bits: int) -> Strided:
    """Return an unsigned result as a signed integer holds it."""
    return a if a.high <= signed(bits).high else signed(bits)


def _shifted_right_signed(op: Operation, sets: Sets, bits: int) -> Strided:
    count = sets[1].single
    return divided(sets[0], 1 << count) if count is not None and 0 <= count < bits else signed(bits)


def _divided_signed(op: Operation, sets: Sets, bits: int) -> Strided:
    a, by = sets
    if a.low >= 0 and by.low > 0:
        return _unsigned_quotient(a, by)
    most = max(abs(a.low), abs(a.high))
    return between(max(-most, signed(bits).low), min(most, signed(bits).high))


def _remaining_signed(op: Operation, sets: Sets, bits: int) -> Strided:
    a, by = sets
    most = max(abs(by.low), abs(by.high)) - 1
    if a.low >= 0 and by.low > 0 and by.single is not None:
        return remaining(a, by.single)
    return between(0 if a.low >= 0 else -max(most, 0), max(most, 0))


def _conjoined(op: Operation, sets: Sets, bits: int) -> Strided:
    return conjoined(sets[0], sets[1], bits)


def _either(op: Operation, sets: Sets, bits: int) -> Strided:
    return combined(sets[0], sets[1], bits, either=True)


def _exclusive(op: Operation, sets: Sets, bits: int) -> Strided:
    return combined(sets[0], sets[1], bits, either=False)


def _chosen(op: Operation, sets: Sets, bits: int) -> Strided:
    """The smaller or the larger of two: a member of either set, on the right side of both lower or both upper ends."""
    smaller = op.name in ("core.smin", "core.umin")
    if op.name in ("core.umin", "core.umax") and min(sets[0].low, sets[1].low) < 0:
        kept = [each for each in sets if each.low >= 0]
        return between(0, min(each.high for each in kept)) if kept and smaller else joined(*sets)
    both, choose = joined(*sets), min if smaller else max
    low, high = choose(sets[0].low, sets[1].low), choose(sets[0].high, sets[1].high)
    return number(low) if low == high else Strided(low, high, both.step, both.rest)


def _compared(op: Operation, sets: Sets, bits: int) -> Strided:
    predicate, (a, b) = str(op.attributes["predicate"]), sets
    if predicate[0] == "u" and min(a.low, b.low) < 0:
        return between(0, 1)
    apart = a.high < b.low or b.high < a.low or (a.rest - b.rest) % (gcd(a.step, b.step) or 1) != 0
    same = op.operands[0] is op.operands[1] or (a.single is not None and a.single == b.single)
    known: dict[str, tuple[bool, bool]] = {  # surely true, surely false
        "eq": (same, apart),
        "ne": (apart, same),
        "lt": (a.high < b.low, a.low >= b.high or same),
        "ge": (a.low >= b.high or same, a.high < b.low),
        "gt": (a.low > b.high, a.high <= b.low or same),
        "le": (a.high <= b.low or same, a.low > b.high),
    }
    true, false = known[predicate.lstrip("us") if len(predicate) == 3 else predicate]
    return number(1) if true else number(0) if false else between(0, 1)


def _constant(op: Operation, sets: Sets, bits: int) -> Strided:
    value = op.attributes["bits"]
    assert isinstance(value, int)
    return number(value - (1 << bits) if bits > 1 and value >> (bits - 1) else value)


def _selected(op: Operation, sets: Sets, bits: int) -> Strided:
    return joined(sets[1], sets[2])


def _same(op: Operation, sets: Sets, bits: int) -> Strided:
    return all_joined(sets)


def _widened_signed(op: Operation, sets: Sets, bits: int) -> Strided:
    return negated(sets[0]) if element_type(op.operands[0].type).bits == 1 else sets[0]


def _widened(op: Operation, sets: Sets, bits: int) -> Strided:
    return unsigned(sets[0], element_type(op.operands[0].type).bits)


def _same_bits(op: Operation, sets: Sets, bits: int) -> Strided:
    source = element_type(op.operands[0].type)
    return sets[0] if source.kind == "int" and source.bits == bits else signed(bits)


TRANSFERS: Final[Mapping[str, Transfer]] = {
    "core.add": _added,
    "core.sub": _subtracted,
    "core.mul": _multiplied,
    "core.shl": _shifted_left,
    "core.udiv": _divided,
    "core.urem": _remaining,
    "core.sdiv": _divided_signed,
    "core.srem": _remaining_signed,
    "core.lshr": _shifted_right,
    "core.ashr": _shifted_right_signed,
    "core.and": _conjoined,
    "core.or": _either,
    "core.xor": _exclusive,
    **dict.fromkeys(("core.smin", "core.smax", "core.umin", "core.umax"), _chosen),
    "core.icmp": _compared,
    "core.select": _selected,
    "core.constant": _constant,
    **dict.fromkeys(("core.splat", "core.pack", "core.extract", "core.shuffle", "core.trunc"), _same),
    "core.sext": _widened_signed,
    "core.zext": _widened,
    "core.bitcast": _same_bits,
}
"""By op. Those of one bit are 0 and 1; of a vector, a set holds all components."""

__all__ = ["MAY_WRAP", "TRANSFERS", "exact"]
