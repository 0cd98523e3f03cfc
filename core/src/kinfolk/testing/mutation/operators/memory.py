"""Mistakes in accesses of memory: wrong places, lost bounds, lost writes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kinfolk.ir.meaning import MemoryAccess
from kinfolk.ir.types import BufferType, ViewType, element_type
from kinfolk.ir.value import Operation
from kinfolk.testing.mutation.operators.declare import (
    Change,
    Operator,
    Surroundings,
    dropped,
    is_integer,
    operand_name,
    operand_replaced,
    plus,
)

_LARGEST_VIEW = (1 << 31) - 4
"""Bytes of the largest view."""
_DATA_LAST = ("store", "atomic_add")


def _indices(op: Operation) -> Sequence[int]:
    """Return which operands say where memory is accessed: integers, but for the data that is stored."""
    meaning = op.definition.meaning
    if not isinstance(meaning, MemoryAccess) or meaning.action == "bound":
        return ()
    places = op.operands[:-1] if meaning.action in _DATA_LAST else op.operands
    return [number for number, value in enumerate(places) if is_integer(value.type, 32)]


def _off_by_one(op: Operation, around: Surroundings) -> Iterator[Change]:
    for number in _indices(op):
        for amount in (1, -1):
            yield Change(f"{operand_name(op, number)} {amount:+d}", operand_replaced(number, plus(amount)))


def _offsets(op: Operation, around: Surroundings) -> Iterator[Change]:
    offset = op.attributes.get("offset")
    if not isinstance(op.definition.meaning, MemoryAccess) or type(offset) is not int:
        return
    one = op.attributes.get("count", 1)
    assert isinstance(one, int)
    for amount in dict.fromkeys((one, -one)):
        yield Change(f"offset {amount:+d}", lambda place, amount=amount: place.again(offset=offset + amount))


def _exchanged(op: Operation, around: Surroundings) -> Iterator[Change]:
    """The index of the nearest access before it that has another."""
    for number in _indices(op)[:1]:
        own = op.operands[number]
        for other in around.before(op):
            if other.definition is not op.definition:
                continue
            theirs = other.operands[number]
            if theirs is not own and theirs.type == own.type:
                edit = operand_replaced(number, lambda place, _, theirs=theirs: place.value(theirs))
                yield Change(f"{operand_name(op, number)} is that of the access before it", edit)
                return


def _bounds(op: Operation, around: Surroundings) -> Iterator[Change]:
    meaning = op.definition.meaning
    if not isinstance(meaning, MemoryAccess) or meaning.action != "bound":
        return
    (view,), count = op.results, op.operands[1]
    assert isinstance(view.type, ViewType)
    step = max(1, 4 // element_type(view.type).bytes)
    for amount in (step, -step):
        yield Change(f"{operand_name(op, 1)} {amount:+d}", operand_replaced(1, plus(amount)))
    most = _LARGEST_VIEW // view.type.element.bytes
    edit = operand_replaced(1, lambda place, value: place.constant(most, count.type))  # type: ignore[arg-type]
    yield Change("everything is inside", edit)


def _lost_writes(op: Operation, around: Surroundings) -> Iterator[Change]:
    meaning = op.definition.meaning
    if isinstance(meaning, MemoryAccess) and meaning.action in ("store", "stage", "atomic_add") and not op.results:
        yield Change("nothing is written", dropped)


def _other_buffers(op: Operation, around: Surroundings) -> Iterator[Change]:
    """Another allocation of the same type."""
    meaning = op.definition.meaning
    if not isinstance(meaning, MemoryAccess) or meaning.action == "allocate":
        return
    for number, value in enumerate(op.operands):
        if not isinstance(value.type, BufferType):
            continue
        for other in around.kernel.body.operations:
            if other is not value.defining_op and [one.type for one in other.results] == [value.type]:
                edit = operand_replaced(number, lambda place, _, other=other: place.value(other.results[0]))
                yield Change("another buffer of the same size", edit)
                return


OPERATORS: Sequence[Operator] = (
    Operator("index_off_by_one", "memory is accessed an element further, or one before", _off_by_one),
    Operator("offset_off_by_one", "the constant part of an address is one access off", _offsets),
    Operator("exchanged_index", "an access takes the index of another", _exchanged),
    Operator("view_bound", "a view is an element larger or smaller, or has no bound", _bounds),
    Operator("lost_write", "something is not written", _lost_writes),
    Operator("wrong_buffer", "workgroup memory of the same size is mistaken for another", _other_buffers),
)
