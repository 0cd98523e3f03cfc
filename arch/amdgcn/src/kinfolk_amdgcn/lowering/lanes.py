"""Who a lane is, and values that cross lanes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from kinfolk.ir.op import LlvmWriter, LowerToLlvm
from kinfolk.ir.types import DataType, Type, component_count, element_type
from kinfolk.ir.value import Kernel, Operation, Value
from kinfolk.lowering import FunctionWriter

# DPP controls that are an exclusive or of the lane index: exact, one vector instruction that folds into its user.
_DPP_XOR: Final = {1: 0xB1, 2: 0x4E, 8: 0x128}  # quad_perm [1,0,3,2], quad_perm [2,3,0,1], row_ror 8 of a row of 16
_ALL_ROWS: Final = ("i32 15", "i32 15")


def kernel_of(w: LlvmWriter) -> Kernel:
    """Return the kernel that is being written."""
    assert isinstance(w, FunctionWriter)
    return w.kernel


def bit_count(type_: Type) -> int:
    """Return how many bits a lane holds of a scalar or vector."""
    assert isinstance(type_, DataType)
    return component_count(type_) * element_type(type_).bits


def as_integer(w: LlvmWriter, value: Value) -> str:
    """Return a scalar or vector as the one integer that has its bits (the name alone)."""
    integer, type_ = f"i{bit_count(value.type)}", w.type(value.type)
    return w.name(value) if type_ == integer else w.fresh(f"bitcast {w.typed(value)} to {integer}")


def from_integer(w: LlvmWriter, name: str, result: Value) -> None:
    """Define `result` by the bits of an integer."""
    integer, type_ = f"i{bit_count(result.type)}", w.type(result.type)
    if type_ == integer:
        w.alias(result, name)
    else:
        w.define(result, f"bitcast {integer} {name} to {type_}")


def _lower_thread_id(w: LlvmWriter, op: Operation) -> None:
    w.alias(op.results[0], w.call("i32", "llvm.amdgcn.workitem.id.x"))


def lane_index(w: LlvmWriter) -> str:
    """Return the lane's index in its wave: the low bits of the thread index, since blocks have one dimension.

    One instruction where mbcnt takes two, none where the block is one wave; and its range is known to the compiler.
    """
    thread, kernel = w.call("i32", "llvm.amdgcn.workitem.id.x"), kernel_of(w)
    return thread if kernel.block == kernel.wave_size else w.fresh(f"and i32 {thread}, {kernel.wave_size - 1}")


def _lower_lane_id(w: LlvmWriter, op: Operation) -> None:
    w.alias(op.results[0], lane_index(w))


def _lower_wave_id(w: LlvmWriter, op: Operation) -> None:
    kernel = kernel_of(w)
    if kernel.block == kernel.wave_size:
        w.alias(op.results[0], "0")
        return
    thread = w.call("i32", "llvm.amdgcn.workitem.id.x")
    wave = w.fresh(f"lshr i32 {thread}, {kernel.wave_size.bit_length() - 1}")
    w.alias(op.results[0], w.call("i32", "llvm.amdgcn.readfirstlane.i32", f"i32 {wave}"))


def _lower_block_id(w: LlvmWriter, op: Operation) -> None:
    axis = op.attributes["axis"]
    assert isinstance(axis, int)
    w.alias(op.results[0], w.call("i32", f"llvm.amdgcn.workgroup.id.{'xyz'[axis]}"))


def _lower_shuffle_xor(w: LlvmWriter, op: Operation) -> None:
    """DPP where it is exact, ds_swizzle within 32 lanes, ds_bpermute beyond."""
    (x,), (result,) = op.operands, op.results
    mask = op.attributes["mask"]
    assert isinstance(mask, int)
    value = as_integer(w, x)
    if mask in _DPP_XOR:
        control = f"i32 {_DPP_XOR[mask]}"
        moved = w.call(
            "i32", "llvm.amdgcn.update.dpp.i32", "i32 poison", f"i32 {value}", control, *_ALL_ROWS, "i1 true"
        )
    elif mask < 32:
        moved = w.call("i32", "llvm.amdgcn.ds.swizzle", f"i32 {value}", f"i32 {mask << 10 | 0x1F}")
    else:
        source = w.fresh(f"xor i32 {lane_index(w)}, {mask}")
        address = w.fresh(f"shl nuw i32 {source}, 2")  # in bytes of one 32-bit register per lane
        moved = w.call("i32", "llvm.amdgcn.ds.bpermute", f"i32 {address}", f"i32 {value}")
    from_integer(w, moved, result)


def read_lane(read: Callable[[LlvmWriter, int, str], str]) -> LowerToLlvm:
    """Lower to a read of one lane's 16, 32 or 64 bits; `read(writer, bits, name)` writes it for an i32 or an i64."""

    def lower(w: LlvmWriter, op: Operation) -> None:
        (result,) = op.results
        bits, value = bit_count(result.type), as_integer(w, op.operands[0])
        if bits == 16:
            wide = read(w, 32, w.fresh(f"zext i16 {value} to i32"))
            from_integer(w, w.fresh(f"trunc i32 {wide} to i16"), result)
        else:
            from_integer(w, read(w, bits, value), result)

    return lower


def first_lane(w: LlvmWriter, bits: int, name: str) -> str:
    """Return an integer as the lowest active lane has it, in a scalar register."""
    return w.call(f"i{bits}", f"llvm.amdgcn.readfirstlane.i{bits}", f"i{bits} {name}")


def _lower_any_lane(w: LlvmWriter, op: Operation) -> None:
    mask = f"i{kernel_of(w).wave_size}"
    lanes = w.call(mask, f"llvm.amdgcn.ballot.{mask}", w.typed(op.operands[0]))
    w.define(op.results[0], f"icmp ne {mask} {lanes}, 0")


def _lower_byte_permute(w: LlvmWriter, op: Operation) -> None:
    """v_perm_b32 counts bytes 0 to 3 in its second operand and 4 to 7 in its first."""
    low, high = op.operands
    selector = op.attributes["selector"]
    assert isinstance(selector, tuple)
    control = sum(byte << (8 * position) for position, byte in enumerate(selector))
    w.alias(op.results[0], w.call("i32", "llvm.amdgcn.perm", w.typed(high), w.typed(low), f"i32 {control}"))


LOWERINGS: Final[Mapping[str, LowerToLlvm]] = {
    "core.thread_id": _lower_thread_id,
    "core.lane_id": _lower_lane_id,
    "core.wave_id": _lower_wave_id,
    "core.block_id": _lower_block_id,
    "core.shuffle_xor": _lower_shuffle_xor,
    "core.first_lane": read_lane(first_lane),
    "core.uniform": read_lane(first_lane),
    "core.any_lane": _lower_any_lane,
    "core.byte_permute": _lower_byte_permute,
}
