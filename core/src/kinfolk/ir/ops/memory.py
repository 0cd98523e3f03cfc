"""Global memory by pointers, bounded views, workgroup memory. Families address in elements; types give the bytes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kinfolk.errors import IRError
from kinfolk.ir import rules
from kinfolk.ir.meaning import MemoryAccess
from kinfolk.ir.op import AttributeDef, LlvmWriter, OpDef, effects
from kinfolk.ir.ops.declare import BY_TARGET, CORE_OPS
from kinfolk.ir.types import (
    I1,
    I8,
    I32,
    BufferType,
    DataType,
    ScalarType,
    Type,
    VectorType,
    ViewType,
    component_count,
    element_type,
    vector,
    with_element,
)
from kinfolk.ir.value import Operation, Value

COUNT = AttributeDef("count", "int", default=1)
ALIGNMENT = AttributeDef("alignment", "int", default=0)
"""Bytes the address is a multiple of, a claim that is checked; 0 stands for the element's size."""
OFFSET = AttributeDef("offset", "int", default=0)
"""Elements added to the index, at no cost where the instruction has room for it."""
SCOPE = AttributeDef("scope", "str", default="")
"""The alias scope: accesses in different non-empty scopes never touch the same bytes at the same time."""


def alignment_of(op: Operation, element: ScalarType) -> int:
    """Return the alignment in bytes that a memory op claims."""
    claimed = op.attributes["alignment"]
    assert isinstance(claimed, int)
    return claimed or element.bytes


def _check_access(element: ScalarType, attributes: Mapping[str, Any]) -> None:
    claimed = attributes.get("alignment", 0)
    rules.expect(
        claimed == 0 or (claimed & (claimed - 1) == 0 and claimed >= element.bytes),
        f"alignment {claimed} is no power of two of at least {element.bytes}",
    )


def _fits(value: Type, element: ScalarType) -> None:
    rules.expect(
        isinstance(value, (ScalarType, VectorType)) and element_type(value) == element, f"stores {element}, got {value}"
    )


def _in_memory(w: LlvmWriter, type_: DataType) -> str:
    """Return the type that memory holds for another: a byte for each i1, which LLVM would pack in a vector."""
    return w.type(with_element(type_, I8) if element_type(type_) == I1 else type_)


def _read(w: LlvmWriter, result: Value, rest: str) -> None:
    type_ = rules.data(result.type, "the result")
    held = _in_memory(w, type_)
    if element_type(type_) != I1:
        w.define(result, f"load {held}, {rest}")
    else:
        loaded = w.fresh(f"load {held}, {rest}")
        w.define(result, f"trunc {held} {loaded} to {w.type(type_)}")


def _write(w: LlvmWriter, value: Value, rest: str) -> None:
    type_ = rules.data(value.type, "the value")
    held, typed = _in_memory(w, type_), w.typed(value)
    if element_type(type_) == I1:
        typed = f"{held} {w.fresh(f'zext {typed} to {held}')}"
    w.emit(f"store {typed}, {rest}")


def _offset_rule(types: tuple[Type, ...], _: Mapping[str, Any]) -> tuple[Type, ...]:
    pointer = rules.pointer(types[0])
    rules.index(types[1], wide=True)
    return (pointer,)


def _lower_offset(w: LlvmWriter, op: Operation) -> None:
    base, index = op.operands
    element = w.type(element_type(base.type))
    w.define(op.results[0], f"getelementptr {element}, {w.typed(base)}, {w.typed(index)}")


offset = CORE_OPS.register(
    OpDef(
        name="core.offset",
        operands=("pointer", "index"),
        result=_offset_rule,
        issue="scalar",
        meaning=MemoryAccess("global", "offset"),
        lowering=_lower_offset,
    )
)
"""The pointer `index` elements further; the index is signed and multiplied in 64 bits."""


def _load_rule(types: tuple[Type, ...], attributes: Mapping[str, Any]) -> tuple[Type, ...]:
    element = rules.pointer(types[0]).element
    _check_access(element, attributes)
    return (vector(element, attributes["count"]),)


def _lower_load(w: LlvmWriter, op: Operation) -> None:
    (pointer,), (result,) = op.operands, op.results
    suffix = ", !invariant.load !0" if op.attributes["invariant"] else ""
    alignment = alignment_of(op, element_type(pointer.type))
    _read(w, result, f"{w.typed(pointer)}, align {alignment}{suffix}{w.kind_of_memory(op)}")


load = CORE_OPS.register(
    OpDef(
        name="core.load",
        operands=("pointer",),
        attributes=(COUNT, ALIGNMENT, AttributeDef("invariant", "bool", default=False), SCOPE),
        result=_load_rule,
        effects=effects("reads"),
        issue="global_memory",
        meaning=MemoryAccess("global", "load"),
        lowering=_lower_load,
    )
)
"""`count` elements at an address. `invariant`: nothing writes them while the kernel runs."""


def _store_rule(types: tuple[Type, ...], attributes: Mapping[str, Any]) -> tuple[Type, ...]:
    element = rules.pointer(types[0]).element
    _check_access(element, attributes)
    _fits(types[1], element)
    return ()


def _lower_store(w: LlvmWriter, op: Operation) -> None:
    pointer, value = op.operands
    alignment = alignment_of(op, element_type(pointer.type))
    _write(w, value, f"{w.typed(pointer)}, align {alignment}{w.kind_of_memory(op)}")


STORE = CORE_OPS.register(
    OpDef(
        name="core.store",
        operands=("pointer", "value"),
        attributes=(ALIGNMENT, SCOPE),
        result=_store_rule,
        effects=effects("writes"),
        issue="global_memory",
        meaning=MemoryAccess("global", "store"),
        lowering=_lower_store,
    )
)


def store(pointer: Value, value: Value, *, alignment: int = 0) -> None:
    """Write a scalar or vector at an address."""
    STORE.add(pointer, value, alignment=alignment)


def _atomic_rule(types: tuple[Type, ...], _: Mapping[str, Any]) -> tuple[Type, ...]:
    element = rules.pointer(types[0]).element
    rules.expect(
        types[1] == element and element.name in ("i32", "f32"),
        f"adds i32 or f32 to memory of the same type, got {types[1]} to {types[0]}",
    )
    return ()


ATOMIC_ADD = CORE_OPS.register(
    OpDef(
        name="core.atomic_add",
        operands=("pointer", "value"),
        result=_atomic_rule,
        effects=effects("reads", "writes"),
        issue="global_memory",
        meaning=MemoryAccess("global", "atomic_add"),
        lowering=BY_TARGET,
    )
)


def atomic_add(pointer: Value, value: Value) -> None:
    """Add to memory, indivisibly, in no stated order among lanes; integers wrap."""
    ATOMIC_ADD.add(pointer, value)


def _bound_rule(types: tuple[Type, ...], _: Mapping[str, Any]) -> tuple[Type, ...]:
    pointer = rules.pointer(types[0])
    rules.expect(types[1] == I32, f"the size of a view is i32 elements, got {types[1]}")
    return (ViewType(pointer.element),)


bound = CORE_OPS.register(
    OpDef(
        name="core.bound",
        operands=("pointer", "count"),
        result=_bound_rule,
        issue="scalar",
        meaning=MemoryAccess("view", "bound"),
        lowering=BY_TARGET,
    )
)
"""A view of `count` elements from a pointer on, both equal on all lanes; its bytes are a multiple of 4 below 2^31."""


def _view(type_: Type) -> ViewType:
    if not isinstance(type_, ViewType):
        raise IRError(f"takes a view, got {type_}")
    return type_


def _view_load_rule(types: tuple[Type, ...], attributes: Mapping[str, Any]) -> tuple[Type, ...]:
    element = _view(types[0]).element
    rules.index(types[1])
    rules.expect(element != I1, "loads whole bytes, view i8 in place of i1")
    result = vector(element, attributes["count"])
    rules.expect(result.bytes in (2, 4, 8, 16), f"loads 2, 4, 8 or 16 bytes, got {result} of {result.bytes}")
    return (result,)


view_load = CORE_OPS.register(
    OpDef(
        name="core.view_load",
        operands=("view", "index"),
        attributes=(COUNT, SCOPE),
        result=_view_load_rule,
        effects=effects("reads"),
        issue="global_memory",
        meaning=MemoryAccess("view", "load"),
        lowering=BY_TARGET,
    )
)
"""`count` elements of a view at an element index; those outside the view, or at a negative index, are 0 and touch
nothing.

Claimed and checked: in bytes the index fits a signed 32-bit number; where it is the sum of a constant and a negative
number, it is negative itself, for hardware may add the constant last.
"""


def _view_store_rule(types: tuple[Type, ...], _: Mapping[str, Any]) -> tuple[Type, ...]:
    element = _view(types[0]).element
    rules.index(types[1])
    rules.expect(element != I1, "stores whole bytes, view i8 in place of i1")
    _fits(types[2], element)
    rules.expect(
        rules.data(types[2], "the value").bytes in (2, 4, 8, 16), f"stores 2, 4, 8 or 16 bytes, got {types[2]}"
    )
    return ()


VIEW_STORE = CORE_OPS.register(
    OpDef(
        name="core.view_store",
        operands=("view", "index", "value"),
        attributes=(SCOPE,),
        result=_view_store_rule,
        effects=effects("writes"),
        issue="global_memory",
        meaning=MemoryAccess("view", "store"),
        lowering=BY_TARGET,
    )
)


def view_store(view: Value, index: Value, value: Value) -> None:
    """Write elements of a view; those outside it vanish. The index keeps the claims of `view_load`."""
    VIEW_STORE.add(view, index, value)


def _allocate_rule(types: tuple[Type, ...], attributes: Mapping[str, Any]) -> tuple[Type, ...]:
    rules.expect(not types and isinstance(attributes["element"], ScalarType), "allocates elements of a scalar type")
    rules.expect(attributes["count"] > 0, f"allocates at least one element, got {attributes['count']}")
    return (BufferType(attributes["element"], attributes["count"]),)


ALLOCATE = CORE_OPS.register(
    OpDef(
        name="core.allocate",
        attributes=(AttributeDef("element", "type"), AttributeDef("count", "int")),
        result=_allocate_rule,
        issue="none",
        meaning=MemoryAccess("workgroup", "allocate"),
        lowering=BY_TARGET,
    )
)


def allocate(element: ScalarType, count: int) -> Value:
    """Return workgroup memory of `count` elements, 16-byte aligned, undefined. Stands outside loops and branches."""
    return ALLOCATE(element=element, count=count)


def _workgroup_load_rule(types: tuple[Type, ...], attributes: Mapping[str, Any]) -> tuple[Type, ...]:
    element = rules.buffer(types[0]).element
    rules.index(types[1])
    _check_access(element, attributes)
    return (vector(element, attributes["count"]),)


def buffer_address(w: LlvmWriter, op: Operation, buffer: Value, index: Value) -> str:
    """Return the typed LLVM address of an op's `index + offset` in workgroup memory."""
    element = w.type(element_type(buffer.type))
    address = w.fresh(f"getelementptr {element}, {w.typed(buffer)}, {w.typed(index)}")
    if op.attributes["offset"]:
        address = w.fresh(f"getelementptr {element}, {w.type(buffer.type)} {address}, i32 {op.attributes['offset']}")
    return f"{w.type(buffer.type)} {address}"


def _lower_workgroup_load(w: LlvmWriter, op: Operation) -> None:
    (result,) = op.results
    alignment, address = alignment_of(op, element_type(op.operands[0].type)), buffer_address(w, op, *op.operands)
    _read(w, result, f"{address}, align {alignment}{w.kind_of_memory(op)}")


workgroup_load = CORE_OPS.register(
    OpDef(
        name="core.workgroup_load",
        operands=("buffer", "index"),
        attributes=(COUNT, OFFSET, ALIGNMENT, SCOPE),
        result=_workgroup_load_rule,
        effects=effects("reads"),
        issue="workgroup_memory",
        meaning=MemoryAccess("workgroup", "load"),
        lowering=_lower_workgroup_load,
    )
)
"""`count` elements of workgroup memory at `index + offset`."""


def _workgroup_store_rule(types: tuple[Type, ...], attributes: Mapping[str, Any]) -> tuple[Type, ...]:
    element = rules.buffer(types[0]).element
    rules.index(types[1])
    _check_access(element, attributes)
    _fits(types[2], element)
    return ()


def _lower_workgroup_store(w: LlvmWriter, op: Operation) -> None:
    buffer, index, value = op.operands
    alignment, address = alignment_of(op, element_type(buffer.type)), buffer_address(w, op, buffer, index)
    _write(w, value, f"{address}, align {alignment}{w.kind_of_memory(op)}")


WORKGROUP_STORE = CORE_OPS.register(
    OpDef(
        name="core.workgroup_store",
        operands=("buffer", "index", "value"),
        attributes=(OFFSET, ALIGNMENT, SCOPE),
        result=_workgroup_store_rule,
        effects=effects("writes"),
        issue="workgroup_memory",
        meaning=MemoryAccess("workgroup", "store"),
        lowering=_lower_workgroup_store,
    )
)


def workgroup_store(
    buffer: Value, index: Value, value: Value, *, offset: int = 0, alignment: int = 0, scope: str = ""
) -> None:
    """Write a scalar or vector to workgroup memory at `index + offset`."""
    WORKGROUP_STORE.add(buffer, index, value, offset=offset, alignment=alignment, scope=scope)


def access_bytes(op: Operation) -> int:
    """Return how many bytes one lane reads or writes with a memory op."""
    data = op.results[0].type if op.results else op.operands[-1].type
    return component_count(rules.data(data, "data")) * element_type(data).bytes


__all__ = [
    "access_bytes",
    "allocate",
    "atomic_add",
    "bound",
    "buffer_address",
    "load",
    "offset",
    "store",
    "view_load",
    "view_store",
    "workgroup_load",
    "workgroup_store",
]
