"""Mistakes in loops, branches and in how waves wait for each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kinfolk.ir.meaning import MemoryAccess
from kinfolk.ir.ops import arithmetic
from kinfolk.ir.types import I1, DataType, element_type
from kinfolk.ir.value import Operation, Value
from kinfolk.testing.mutation.operators.declare import (
    Change,
    Operator,
    Surroundings,
    dropped,
    is_control,
    is_short_cut,
    operand_replaced,
    operands_swapped,
    plus,
)
from kinfolk.testing.mutation.rewrite import Place

_CARRIED = 3
"""The operands of a loop before those that it carries: lower bound, upper bound, step."""


def _dropped_barriers(op: Operation, around: Surroundings) -> Iterator[Change]:
    if "barrier" in op.definition.effects and not op.results:
        yield Change("it is gone", dropped)


def _lax_waits(op: Operation, around: Surroundings) -> Iterator[Change]:
    meaning = op.definition.meaning
    if not isinstance(meaning, MemoryAccess) or meaning.action != "wait":
        return
    left = op.attributes["outstanding"]
    assert isinstance(left, int)
    yield Change("one more may be on its way", lambda place: place.again(outstanding=left + 1))
    yield Change("it is gone", dropped)


def _bounds(op: Operation, around: Surroundings) -> Iterator[Change]:
    if not is_control(op, "for"):
        return
    for number, amount in ((0, 1), (1, 1), (1, -1)):
        name = op.definition.operands[number]
        yield Change(f"{name} bound {amount:+d}", operand_replaced(number, plus(amount)))


def _steps(op: Operation, around: Surroundings) -> Iterator[Change]:
    if is_control(op, "for"):
        yield Change(
            "step doubled", operand_replaced(2, lambda place, step: place.build(arithmetic.add, (step, step))[0])
        )


def _conditions(op: Operation, around: Surroundings) -> Iterator[Change]:
    if not is_control(op, "if"):
        return

    def negated(place: Place, condition: Value) -> Value:
        return place.build(arithmetic.xor, (condition, place.bits(1, I1)))[0]

    yield Change("the condition is negated", operand_replaced(0, negated))


def _guards(op: Operation, around: Surroundings) -> Iterator[Change]:
    if not is_control(op, "if"):
        return
    if not is_short_cut(op):  # which may be taken at any time
        yield Change("its first side is always taken", operand_replaced(0, lambda place, _: place.bits(1, I1)))
    yield Change("its first side is never taken", operand_replaced(0, lambda place, _: place.bits(0, I1)))


def _uninitialised(op: Operation, around: Surroundings) -> Iterator[Change]:
    if not is_control(op, "for"):
        return

    def undefined(place: Place, value: Value) -> Value:
        assert isinstance(value.type, DataType)
        return place.bits((1 << element_type(value.type).bits) - 1, value.type)

    by_type: dict[DataType, list[int]] = {}
    for number, value in enumerate(op.operands[_CARRIED:]):
        if isinstance(value.type, DataType):
            by_type.setdefault(value.type, []).append(number)
    for numbers in by_type.values():
        for number in sorted({numbers[0], numbers[-1]}):
            yield Change(f"carried value {number} starts undefined", operand_replaced(_CARRIED + number, undefined))


def _exchanged_carried(op: Operation, around: Surroundings) -> Iterator[Change]:
    if not is_control(op, "yield"):
        return
    pairs = [
        (a, a + 1)
        for a, (one, other) in enumerate(zip(op.operands, op.operands[1:], strict=False))
        if one.type == other.type and one is not other
    ]
    for a, b in dict.fromkeys((*pairs[:1], *pairs[len(pairs) // 2 :][:1], *pairs[-1:])):
        yield Change(f"values {a} and {b} have changed places", operands_swapped(a, b))


def _axes(op: Operation, around: Surroundings) -> Iterator[Change]:
    axis = op.attributes.get("axis")
    if type(axis) is int and not op.operands:
        yield Change(f"axis {axis} -> {(axis + 1) % 3}", lambda place: place.again(axis=(axis + 1) % 3))


OPERATORS: Sequence[Operator] = (
    Operator("dropped_barrier", "a barrier is left out", _dropped_barriers),
    Operator("lax_wait", "a wait lets one staging more be on its way, or is left out", _lax_waits),
    Operator("loop_bound", "a loop begins or ends a round too early or too late", _bounds),
    Operator("loop_step", "a loop leaves out every other round", _steps),
    Operator("negated_condition", "a branch takes the other side", _conditions),
    Operator("dropped_guard", "a branch always or never takes its first side", _guards),
    Operator("uninitialised", "what a loop carries starts undefined", _uninitialised),
    Operator("exchanged_results", "what a loop carries or a branch gives has changed places", _exchanged_carried),
    Operator("wrong_axis", "an index along another axis of the grid", _axes),
)
