"""Ops of the AMD arches beyond the portable ones: reads of a lane, priorities, and where the compiler may keep a value.

An arch lists those it has among its own; each has its meaning and its lowering here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from kinfolk.ir import rules
from kinfolk.ir.meaning import LaneFunction, LanePermutation, ScheduleMarker
from kinfolk.ir.op import AttributeDef, LlvmWriter, OpDef, effects
from kinfolk.ir.types import I32, Type
from kinfolk.ir.value import Operation, Value
from kinfolk_amdgcn.lowering.lanes import bit_count, kernel_of, read_lane

_ISA: Final = "AMD Instinct MI300 Instruction Set Architecture"


def _read_lane_rule(types: tuple[Type, ...], attributes: Mapping[str, Any]) -> tuple[Type, ...]:
    type_ = rules.data(types[0], "the operand")
    rules.expect(bit_count(type_) in (16, 32, 64), f"moves 16, 32 or 64 bits, got {type_}")
    rules.expect(0 <= attributes["lane"] < 64, f"lane {attributes['lane']} is outside [0, 64)")
    return (type_,)


def _read_lane_sources(wave_size: int, active: Any, *, lane: int) -> Any:
    return ((0, np.full(wave_size, lane)),)


def _lower_read_lane(w: LlvmWriter, op: Operation) -> None:
    lane = op.attributes["lane"]

    def read(writer: LlvmWriter, bits: int, name: str) -> str:
        integer = f"i{bits}"
        return writer.call(integer, f"llvm.amdgcn.readlane.{integer}", f"{integer} {name}", f"i32 {lane}")

    read_lane(read)(w, op)


READ_LANE: Final = OpDef(
    name="amdgcn.read_lane",
    operands=("x",),
    attributes=(AttributeDef("lane", "int"),),
    result=_read_lane_rule,
    effects=effects("convergent"),
    meaning=LanePermutation(_read_lane_sources),
    lowering=_lower_read_lane,
    uniform=True,
    source=f"{_ISA}, V_READLANE_B32",
)
"""The operand as one lane has it, on all lanes: in a scalar register."""


def _no_result(types: tuple[Type, ...], attributes: Mapping[str, Any]) -> tuple[Type, ...]:
    rules.expect(not types, "takes no operands")
    rules.expect(0 <= attributes["level"] <= 3, f"a priority is 0 to 3, got {attributes['level']}")
    return ()


def _lower_priority(w: LlvmWriter, op: Operation) -> None:
    w.call("void", "llvm.amdgcn.s.setprio", f"i16 {op.attributes['level']}")


SET_PRIORITY: Final = OpDef(
    name="amdgcn.set_priority",
    attributes=(AttributeDef("level", "int"),),
    result=_no_result,
    effects=effects("convergent"),
    issue="scalar",
    meaning=ScheduleMarker(),
    lowering=_lower_priority,
    source=f"{_ISA}, S_SETPRIO",
)


def set_priority(level: int) -> None:
    """Let the wave issue before others of its SIMD with a lower level, 0 (as launched) to 3."""
    SET_PRIORITY.add(level=level)


_REGISTERS: Final = {"vector": "v", "accumulator": "a"}


def _pin_rule(types: tuple[Type, ...], _: Mapping[str, Any]) -> tuple[Type, ...]:
    type_ = rules.data(types[0], "the operand")
    bits = bit_count(type_)
    rules.expect(bits % 32 == 0 and bits <= 1024, f"pins whole 32-bit registers, at most 32 of them, got {type_}")
    return (type_,)


def _lower_pin(w: LlvmWriter, op: Operation) -> None:
    """An empty template: nothing is executed, and the compiler sees a value it knows nothing of."""
    (x,), (result,) = op.operands, op.results
    letter = _REGISTERS[str(op.attributes["register"])]
    words, type_ = bit_count(x.type) // 32, w.type(x.type)
    plain = "i32" if words == 1 else f"<{words} x i32>"
    value = w.name(x) if type_ == plain else w.fresh(f"bitcast {w.typed(x)} to {plain}")
    pinned = w.fresh(f'call {plain} asm sideeffect "", "={letter},0"({plain} {value})')
    if type_ == plain:
        w.alias(result, pinned)
    else:
        w.define(result, f"bitcast {plain} {pinned} to {type_}")


PIN: Final = OpDef(
    name="amdgcn.pin",
    operands=("x",),
    attributes=(AttributeDef("register", "str", default="vector", choices=tuple(_REGISTERS)),),
    result=_pin_rule,
    effects=effects("convergent"),
    issue="none",
    meaning=ScheduleMarker(),
    lowering=_lower_pin,
)


def pin(x: Value, register: str = "vector") -> Value:
    """Return the operand, computed by here and in a register of this kind; what is known of it (a common term, a
    constant) is forgotten, so that the compiler neither shares it nor computes it elsewhere."""
    return PIN(x, register=register)


def _lane_again(m: Any) -> Any:
    return m.lane_id()


def _lower_lane_again(w: LlvmWriter, op: Operation) -> None:
    zero = w.fresh('call i32 asm sideeffect "", "=s,0"(i32 0)')
    lane = w.call("i32", "llvm.amdgcn.mbcnt.lo", "i32 -1", f"i32 {zero}")
    if kernel_of(w).wave_size > 32:
        lane = w.call("i32", "llvm.amdgcn.mbcnt.hi", "i32 -1", f"i32 {lane}")
    w.alias(op.results[0], lane)


LANE_AGAIN: Final = OpDef(
    name="amdgcn.lane_again",
    result=rules.fixed(I32),
    effects=effects("convergent"),
    meaning=LaneFunction(_lane_again),
    lowering=_lower_lane_again,
    uniform=False,
    source=f"{_ISA}, V_MBCNT_LO_U32_B32 and V_MBCNT_HI_U32_B32",
)
"""The index of the lane in its wave, computed here: no register holds it from the start of the kernel to a late use."""

OPS: Final = (READ_LANE, SET_PRIORITY, PIN, LANE_AGAIN)
"""The ops that every arch of this kind has."""
