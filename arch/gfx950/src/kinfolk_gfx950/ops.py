"""What gfx950 has beyond the ops of every AMD arch: reads that transpose, a packed conversion, swaps of lanes, loads to
workgroup memory of 4 and 16 bytes a lane.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from kinfolk.ir import rules
from kinfolk.ir.meaning import LaneFunction, LaneIndex, LanePermutation, MemoryAccess
from kinfolk.ir.op import AttributeDef, LlvmWriter, OpDef, effects
from kinfolk.ir.ops.convert import narrow_float
from kinfolk.ir.ops.memory import OFFSET, SCOPE, buffer_address
from kinfolk.ir.types import BF16, F32, Type, VectorType
from kinfolk.ir.value import Operation
from kinfolk_amdgcn import ops
from kinfolk_amdgcn.lowering.lanes import as_integer, bit_count, from_integer
from kinfolk_amdgcn.staging import staging_ops

_ISA: Final = "AMD Instinct CDNA4 Instruction Set Architecture"
ROW: Final = 16  # lanes that exchange among themselves
READ_BYTES: Final = 8  # a lane's own, and the alignment of its address


def _transpose_read(bits: int) -> OpDef:
    """Declare the read of 8 bytes a lane after which 16 lanes hold the transpose of what they loaded.

    Lane l of a row gets component l % per_lane of the lanes that loaded column block l // per_lane, in order.
    """
    per_lane, lanes_per_element = READ_BYTES * 8 // bits, ROW * bits // (READ_BYTES * 8)

    def exchange(wave_size: int, lane: LaneIndex, component: LaneIndex) -> tuple[LaneIndex, LaneIndex]:
        source = ROW * (lane // ROW) + lanes_per_element * component + lane % ROW // per_lane
        return source, lane % per_lane

    def rule(types: tuple[Type, ...], attributes: Mapping[str, Any]) -> tuple[Type, ...]:
        element = rules.buffer(types[0]).element
        rules.index(types[1])
        rules.expect(element.bits == bits, f"transposes elements of {bits} bits, got {element}")
        alignment = attributes["alignment"]
        rules.expect(
            alignment >= READ_BYTES and alignment & (alignment - 1) == 0,
            f"reads at addresses that are a multiple of {READ_BYTES} bytes, alignment is {alignment}",
        )
        return (VectorType(element, per_lane),)

    def lower(w: LlvmWriter, op: Operation) -> None:
        (result,) = op.results
        word, name = ("<4 x i16>", "tr16.b64.v4i16") if bits == 16 else ("<2 x i32>", "tr8.b64.v2i32")
        address = buffer_address(w, op, *op.operands)
        read = w.call(word, f"llvm.amdgcn.ds.read.{name}", address, attributes=w.kind_of_memory(op))
        w.define(result, f"bitcast {word} {read} to {w.type(result.type)}")

    return OpDef(
        name=f"gfx950.transpose_read_{bits}",
        operands=("buffer", "index"),
        attributes=(OFFSET, AttributeDef("alignment", "int", default=READ_BYTES), SCOPE),
        result=rule,
        effects=effects("reads", "convergent"),  # all lanes take part
        issue="workgroup_memory",
        meaning=MemoryAccess("workgroup", "load", exchange),
        lowering=lower,
        uniform=False,
        source=f"{_ISA}, DS_READ_B64_TR_B{bits}; lane map: Triton, chooseDotDsReadB64TrLayout",
    )


TRANSPOSE_READ_16: Final = _transpose_read(16)
"""Four 16-bit elements a lane; lane l of 16 gets element l % 4 of lanes l // 4, l // 4 + 4, + 8 and + 12."""
TRANSPOSE_READ_8: Final = _transpose_read(8)
"""Eight 8-bit elements a lane; lane l of 16 gets element l % 8 of lanes l // 8, l // 8 + 2, ... + 14."""


def _narrow(m: Any, a: list[Any], b: list[Any], *, result: tuple[Any, ...]) -> list[Any]:
    return [narrow_float(m, x, BF16) for x in (a[0], b[0])]


def _narrow_rule(types: tuple[Type, ...], _: Mapping[str, Any]) -> tuple[Type, ...]:
    rules.expect(types == (F32, F32), f"narrows two f32, got {types[0]} and {types[1]}")
    return (VectorType(BF16, 2),)


def _lower_narrow(w: LlvmWriter, op: Operation) -> None:
    """LLVM selects v_cvt_pk_bf16_f32 for the plain conversion of a pair."""
    a, b = op.operands
    first = w.fresh(f"insertelement <2 x float> poison, {w.typed(a)}, i32 0")
    pair = w.fresh(f"insertelement <2 x float> {first}, {w.typed(b)}, i32 1")
    w.define(op.results[0], f"fptrunc <2 x float> {pair} to {w.type(op.results[0].type)}")


NARROW_BF16: Final = OpDef(
    name="gfx950.narrow_bf16",
    operands=("a", "b"),
    result=_narrow_rule,
    meaning=LaneFunction(_narrow, "components"),
    lowering=_lower_narrow,
    source=f"{_ISA}, V_CVT_PK_BF16_F32",
)
"""Two f32 as a vector of bf16, rounded to nearest even; a NaN stays one."""


def _swap(lanes_apart: int) -> OpDef:
    """Declare the exchange of every second group of `lanes_apart` lanes of `a` with the group before it of `b`."""

    def sources(wave_size: int, active: Any) -> tuple[tuple[LaneIndex, LaneIndex], ...]:
        lane = np.arange(wave_size)
        upper = lane // lanes_apart % 2
        return (upper, lane - upper * lanes_apart), (upper, lane + (1 - upper) * lanes_apart)

    def rule(types: tuple[Type, ...], _: Mapping[str, Any]) -> tuple[Type, ...]:
        type_ = rules.data(types[0], "the first operand")
        rules.expect(bit_count(type_) == 32 and types[1] == type_, f"swaps 32 bits of one type, got {types}")
        return (type_, type_)

    def lower(w: LlvmWriter, op: Operation) -> None:
        a, b = (as_integer(w, operand) for operand in op.operands)
        name = f"llvm.amdgcn.permlane{lanes_apart}.swap"
        both = w.call("{ i32, i32 }", name, f"i32 {a}", f"i32 {b}", "i1 false", "i1 false")
        for index, result in enumerate(op.results):
            from_integer(w, w.fresh(f"extractvalue {{ i32, i32 }} {both}, {index}"), result)

    return OpDef(
        name=f"gfx950.swap_{lanes_apart}",
        operands=("a", "b"),
        result=rule,
        effects=effects("convergent"),
        meaning=LanePermutation(sources),
        lowering=lower,
        uniform=False,
        source=f"{_ISA}, V_PERMLANE{lanes_apart}_SWAP_B32",
    )


SWAP_16: Final = _swap(16)
"""Rows of 16 lanes: (a0 b0 a2 b2) and (a1 b1 a3 b3)."""
SWAP_32: Final = _swap(32)
"""Halves of the wave: (a0 b0) and (a1 b1)."""

STAGE_VIEW, STAGE, WAIT_STAGED = staging_ops("gfx950", (4, 16), f"{_ISA}, BUFFER_LOAD_DWORDX4 and GLOBAL_LOAD_LDS_*")

OPS: Final = (
    *ops.OPS,
    TRANSPOSE_READ_16,
    TRANSPOSE_READ_8,
    NARROW_BF16,
    SWAP_16,
    SWAP_32,
    STAGE_VIEW,
    STAGE,
    WAIT_STAGED,
)
ROLES: Final[Mapping[str, OpDef]] = {
    "transpose_read_16": TRANSPOSE_READ_16,
    "transpose_read_8": TRANSPOSE_READ_8,
    "narrow_bf16": NARROW_BF16,
    "swap_16": SWAP_16,
    "swap_32": SWAP_32,
    "stage_4": STAGE,
    "stage_16": STAGE,
    "stage_view_4": STAGE_VIEW,
    "stage_view_16": STAGE_VIEW,
    "wait_staged": WAIT_STAGED,
    "lane_again": ops.LANE_AGAIN,
    "pin": ops.PIN,
}
