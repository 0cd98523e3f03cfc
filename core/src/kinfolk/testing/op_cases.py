"""What an op takes: operand types and attributes found by asking its declaration, and operands to draw."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, cast

import attrs
import numpy as np
import numpy.typing as npt

from kinfolk.arch import Arch
from kinfolk.errors import IRError
from kinfolk.ir.meaning import Control, LaneFunction, LanePermutation, Matrix, MemoryAccess, ScheduleMarker
from kinfolk.ir.numpy_lanes import storage_dtype
from kinfolk.ir.op import AttributeDef, OpDef
from kinfolk.ir.types import (
    BF16,
    F16,
    F32,
    F64,
    I1,
    I8,
    I16,
    I32,
    I64,
    SCALARS,
    BufferType,
    DataType,
    PointerType,
    ScalarType,
    VectorType,
    ViewType,
    vector,
)

TYPES = (*SCALARS.values(), *(VectorType(t, 4) for t in (I1, I8, I16, I32, BF16, F16, F32)), VectorType(F32, 2))
TO = (*SCALARS.values(), *(VectorType(t, n) for t in (I8, I16, I32, I64, BF16, F32) for n in (2, 4, 8)))
NUMBERS = {
    "index": (0, 3),
    "count": (1, 2, 3, 4),
    "indices": ((1, 0), (6, 0, 0, 5, 3)),
    "selector": ((5, 0, 7, 2), (3, 3, 4, 1)),
    "bits": (0x7FA12345, 0xA5),
}
"""Attributes of numbers: what is tried, by name; for other names a few small ones."""
COUNTS = (1, 2, 4, 8, 16)
"""Components of what is loaded, stored or staged at once."""
BUFFER = 256
"""Elements of a buffer in workgroup memory: a wave's, one further on each lane, with the largest offset and count."""
SPECIAL = {
    F32: """0 80000000 1 80000001 7fffff 800000 3f800000 3f800001 4b000000 7f7fffff 7f800000 ff800000 7fc00000 7fa12345
         ffc54321 42ffffff 4f000000 cf000000 38800000 477ff000 477fefff 33000000 33000001 3f808000 3f818000 5f000000
         3fb504f3 c2fc0000""",
    F64: """0 8000000000000000 1 7ff0000000000000 fff0000000000000 7ff8000000000000 7ff0000000000123 3ff0000000000000
         47efffffe0000000 47effffff0000000 36a0000000000000 3690000000000000 380fffffffffffff 43e0000000000000
         c3e0000000000000 41dfffffffc00000 3fe0000000000000""",
    F16: "0 8000 1 8001 3ff 400 7bff 7c00 fc00 7e00 7d01 fe55 3c00",
    BF16: "0 8000 1 8001 7f 80 7f7f 7f80 ff80 7fc0 7fa1 ff81 3f80",
}
"""Storage bits in hexadecimal: zeros, denormals, halves, limits of conversions, infinities, NaNs of both kinds."""


def bits_of(random: np.random.Generator, element: ScalarType, count: int) -> npt.NDArray[Any]:
    """Draw storage bits: any, edges, small numbers."""
    if element == I1:
        return random.integers(0, 2, count).astype(np.bool_)
    unsigned = np.dtype(f"u{element.bytes}")
    data = random.integers(0, 256, (count, element.bytes)).astype(np.uint8).view(unsigned)[:, 0]
    top = 1 << element.bits
    integers = (0, 1, 2, 7, element.bits - 1, element.bits, top - 1, top - 2, top // 2, top // 2 - 1, top // 2 + 1)
    named = [int(bits, 16) for bits in SPECIAL.get(element, "").split()]
    edges = np.array(named or integers, np.uint64).astype(unsigned)
    data = np.where(random.random(count) < 0.5, edges[random.integers(0, len(edges), count)], data)
    if element in (F32, F64):
        ordinary = (random.normal(size=count) * 8).astype(storage_dtype(element)).view(unsigned)
        data = np.where(random.random(count) < 0.3, ordinary, data)
    return np.ascontiguousarray(data)


@attrs.frozen
class Case:
    """An op with operand types and attributes that it accepts."""

    op: OpDef
    types: tuple[Any, ...]
    attributes: dict[str, Any]
    results: tuple[DataType, ...]


def operand_types(op: OpDef) -> Iterator[tuple[Any, ...]]:
    """Yield operand types to try: all alike, or an i1 or its vector before others that are alike."""
    if isinstance(op.meaning, Matrix):
        m = op.meaning
        yield tuple(vector(t, o.slots) for t, o in ((m.a_type, m.a), (m.b_type, m.b), (m.c_type, m.c)))
        return
    arity = 3 if op.operands and op.operands[-1].endswith("*") else len(op.operands)
    for type_ in TYPES if arity else (I32,):
        yield (type_,) * arity
        if arity == 3:
            yield (I1, type_, type_)
            if isinstance(type_, VectorType):
                yield (VectorType(I1, type_.count), type_, type_)


def tried(attribute: AttributeDef) -> tuple[Any, ...]:
    """Return the values that are tried of an attribute."""
    if attribute.kind == "bool":
        return (False, True)
    if attribute.kind == "str":
        return attribute.choices or ("" if attribute.name == "scope" else "there",)
    if attribute.kind == "type":
        return TO
    return NUMBERS.get(attribute.name, (0, 1, 2, 16, 63))


def cases(arch: Arch, op: OpDef) -> list[Case]:
    """Return what an op on registers accepts on an arch; nothing for an op of another kind."""
    match op.meaning:
        case LaneFunction() | LanePermutation() | Matrix() | ScheduleMarker() | Control("any" | "uniform"):
            return _accepted(arch, op, operand_types(op), tried)
        case _:
            return []


def memory_cases(arch: Arch, op: OpDef) -> list[Case]:
    """Return what an op that accesses memory, or waits, accepts on an arch; nothing for an op of another kind."""
    match op.meaning:
        case MemoryAccess(space, "load" | "store" | "atomic_add" | "stage" | "wait" as action):
            return _accepted(arch, op, _memory_operands(space, action), _tried_of_memory)
        case Control("barrier"):
            return _accepted(arch, op, [()], tried)
        case _:
            return []


def _memory_operands(space: str, action: str) -> Iterator[tuple[Any, ...]]:
    """Yield operand types to try: where it is, then what is stored, or where it is staged to."""
    if action == "wait":
        yield ()
        return
    for scalar in SCALARS.values():
        buffer = BufferType(scalar, BUFFER)
        place = {"global": (PointerType(scalar),), "view": (ViewType(scalar), I32), "workgroup": (buffer, I32)}[space]
        if action == "load":
            yield place
        elif action == "stage":
            yield (*place, buffer, I32)
        else:
            yield from ((*place, vector(scalar, count)) for count in COUNTS)


def _tried_of_memory(attribute: AttributeDef) -> tuple[Any, ...]:
    return {"count": COUNTS, "offset": (0, 64), "alignment": (0, 8, 16)}.get(attribute.name) or tried(attribute)


def _accepted(
    arch: Arch, op: OpDef, operands: Iterable[tuple[Any, ...]], values: Callable[[AttributeDef], tuple[Any, ...]]
) -> list[Case]:
    """Return the operand types and values of attributes that an op's own rule takes and the arch does not lack."""
    found: list[Case] = []
    for types in operands:
        for chosen in itertools.product(*(values(attribute) for attribute in op.attributes)):
            attributes = {attribute.name: value for attribute, value in zip(op.attributes, chosen, strict=True)}
            try:
                results = op.result(types, attributes)
            except (IRError, IndexError):
                continue
            if arch.lacks(op.name, *types, *results) is None:
                found.append(Case(op, types, attributes, cast("tuple[DataType, ...]", results)))
    return found
