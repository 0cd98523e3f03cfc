"""Atomics, bounded views as buffer resources, and workgroup memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kinfolk.ir.op import LlvmWriter, LowerToLlvm
from kinfolk.ir.types import BufferType, element_type
from kinfolk.ir.value import Operation, Value
from kinfolk.lowering import FunctionWriter
from kinfolk_amdgcn.lowering.lanes import bit_count

# How LLVM 22 spells make.buffer.rsrc and the width of its size; LLVM 20 differs in both.
_WIDE_RECORDS_SINCE: Final = 22
_RAW_TYPES: Final = {16: "i16", 32: "i32", 64: "v2i32", 128: "v4i32"}
_RAW_WORDS: Final = {16: "i16", 32: "i32", 64: "<2 x i32>", 128: "<4 x i32>"}
_NATIVE_ATOMIC: Final = ", !amdgpu.no.fine.grained.memory !0, !amdgpu.no.remote.memory !0"


def _lower_atomic_add(w: LlvmWriter, op: Operation) -> None:
    """An atomic instruction without fences around it.

    The metadata states that the memory is ordinary device memory, which plans say of whatever a kernel reads and writes
    (`Binding.memory`): else LLVM expands the f32 form into a loop.
    """
    pointer, value = op.operands
    floating = element_type(pointer.type).kind == "float"
    extra = ", !amdgpu.ignore.denormal.mode !0" if floating else ""
    w.fresh(
        f"atomicrmw {'fadd' if floating else 'add'} {w.typed(pointer)}, {w.typed(value)} "
        f'syncscope("agent") monotonic, align 4{_NATIVE_ATOMIC}{extra}'
    )


def lower_bound(word3: int) -> LowerToLlvm:
    """Lower `core.bound` to a raw buffer resource (stride 0, size in bytes) whose last word is `word3`.

    Base and size are equal on all lanes by declaration, and are read from the first lane: LLVM puts a clamped size into
    a vector register (v_med3) and would wrap every access in a loop over lanes. Where they are scalar it costs nothing.
    """

    def lower(w: LlvmWriter, op: Operation) -> None:
        pointer, count = op.operands
        base, size = w.typed(pointer), _scaled(w, count, element_type(pointer.type).bytes, "nuw ")
        if pointer.defining_op is not None:
            base = f"ptr addrspace(1) {w.call('ptr addrspace(1)', 'llvm.amdgcn.readfirstlane.p1', base)}"
        if size.startswith("%"):
            size = w.call("i32", "llvm.amdgcn.readfirstlane.i32", f"i32 {size}")
        name, records = "llvm.amdgcn.make.buffer.rsrc.p1", f"i32 {size}"
        if w.llvm >= _WIDE_RECORDS_SINCE:
            wide = w.fresh(f"zext i32 {size} to i64") if size.startswith("%") else size
            name, records = "llvm.amdgcn.make.buffer.rsrc.p8.p1", f"i64 {wide}"
        w.alias(op.results[0], w.call("ptr addrspace(8)", name, base, "i16 0", records, f"i32 {word3}"))

    return lower


def _scaled(w: LlvmWriter, value: Value, element_bytes: int, flag: str = "") -> str:
    """Return an i32 count of elements in bytes: a literal stays one."""
    name = w.name(value)
    if not name.startswith("%"):
        return str(_wrapped(int(name) * element_bytes))
    return name if element_bytes == 1 else w.fresh(f"shl {flag}i32 {name}, {element_bytes.bit_length() - 1}")


def _wrapped(value: int) -> int:
    """Return the signed 32-bit number with the low bits of `value`."""
    return (value + (1 << 31)) % (1 << 32) - (1 << 31)


def byte_offset(w: LlvmWriter, index: Value, element_bytes: int) -> str:
    """Return an element index in bytes. A constant in it is added last, where LLVM looks for an offset to fold.

    LLVM folds it whatever the sign of the rest, and nothing says that the hardware's sum wraps: an index whose variable
    part is negative may lie outside the view even where the sum does not. In bytes an index fits 32 bits.
    """
    add = index.defining_op
    if add is None or add.name != "core.add" or not add.attributes["nsw"]:
        return _scaled(w, index, element_bytes)
    for variable, constant in (add.operands, add.operands[::-1]):
        if not w.name(constant).startswith("%") and w.name(variable).startswith("%"):
            scaled = _scaled(w, variable, element_bytes)
            return w.fresh(f"add i32 {scaled}, {_wrapped(int(w.name(constant)) * element_bytes)}")
    return _scaled(w, index, element_bytes)


def _lower_view_load(w: LlvmWriter, op: Operation) -> None:
    """A buffer load at a byte offset: a constant added to the index goes into the instruction's own 12-bit offset."""
    view, index = op.operands
    (result,) = op.results
    bits = bit_count(result.type)
    raw = w.call(
        _RAW_WORDS[bits],
        f"llvm.amdgcn.raw.ptr.buffer.load.{_RAW_TYPES[bits]}",
        w.typed(view),
        f"i32 {byte_offset(w, index, element_type(view.type).bytes)}",
        "i32 0",  # no scalar offset: sources disagree on whether the range check counts it
        "i32 0",
        attributes=w.kind_of_memory(op),
    )
    type_ = w.type(result.type)
    if type_ == _RAW_WORDS[bits]:
        w.alias(result, raw)
    else:
        w.define(result, f"bitcast {_RAW_WORDS[bits]} {raw} to {type_}")


def _lower_view_store(w: LlvmWriter, op: Operation) -> None:
    view, index, value = op.operands
    bits = bit_count(value.type)
    type_, name = w.type(value.type), w.name(value)
    if type_ != _RAW_WORDS[bits] or not name.startswith("%"):
        name = w.fresh(f"bitcast {w.typed(value)} to {_RAW_WORDS[bits]}")
    w.call(
        "void",
        f"llvm.amdgcn.raw.ptr.buffer.store.{_RAW_TYPES[bits]}",
        f"{_RAW_WORDS[bits]} {name}",
        w.typed(view),
        f"i32 {byte_offset(w, index, element_type(view.type).bytes)}",
        "i32 0",
        "i32 0",
        attributes=w.kind_of_memory(op),
    )


def _lower_allocate(w: LlvmWriter, op: Operation) -> None:
    assert isinstance(w, FunctionWriter)
    buffer = op.results[0].type
    assert isinstance(buffer, BufferType)
    name = f"@{w.kernel.name}.workgroup{w.global_count()}"
    memory = f"[{buffer.count} x {w.type(buffer.element)}] poison"
    w.global_memory(f"{name} = internal unnamed_addr addrspace(3) global {memory}, align 16")
    w.alias(op.results[0], name)


LOWERINGS: Final[Mapping[str, LowerToLlvm]] = {
    "core.atomic_add": _lower_atomic_add,
    "core.view_load": _lower_view_load,
    "core.view_store": _lower_view_store,
    "core.allocate": _lower_allocate,
}
