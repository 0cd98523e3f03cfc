"""Transcendental ops as the hardware's instructions, without the range fixes of `llvm.exp2` and `llvm.log2`; shifts.

v_exp_f32, v_log_f32 and v_rcp_f32 flush denormals in and out: exp2 of less than -126 is 0, as the op declares; log2 of
a denormal is -inf, as the op declares; rcp of a denormal is infinite, and a result below 2^-126 (of x > 2^126) is 0.
Source: "AMD Instinct MI300 Instruction Set Architecture", VOP1 instructions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kinfolk.ir.op import LlvmWriter, LowerToLlvm
from kinfolk.ir.types import ScalarType, VectorType
from kinfolk.ir.value import Operation, Value


def _componentwise(function: str) -> LowerToLlvm:
    def lower(w: LlvmWriter, op: Operation) -> None:
        (x,), (result,) = op.operands, op.results
        if isinstance(x.type, ScalarType):
            w.alias(result, w.call("float", f"llvm.amdgcn.{function}.f32", w.typed(x)))
            return
        assert isinstance(x.type, VectorType)
        text, type_ = "poison", w.type(x.type)
        for index in range(x.type.count):
            part = w.fresh(f"extractelement {w.typed(x)}, i32 {index}")
            value = w.call("float", f"llvm.amdgcn.{function}.f32", f"float {part}")
            text = w.fresh(f"insertelement {type_} {text}, float {value}, i32 {index}")
        w.alias(result, text)

    return lower


def _lower_mul(w: LlvmWriter, op: Operation) -> None:
    """A multiplication; by a power of two a shift, which LLVM 22 does not make of it and addresses fold with."""
    a, b = op.operands
    flag = " nsw" if op.attributes["nsw"] else ""
    for x, factor in ((a, b), (b, a)):
        shift = _power_of_two(factor)
        if shift is not None:
            w.define(op.results[0], f"shl{flag} {w.typed(x)}, {shift}")
            return
    w.define(op.results[0], f"mul{flag} {w.typed(a)}, {w.name(b)}")


def _power_of_two(factor: Value) -> int | None:
    """Return the exponent of a constant scalar that is a power of two and positive as a signed number."""
    source = factor.defining_op
    if source is None or source.name != "core.constant" or not isinstance(factor.type, ScalarType):
        return None
    bits = source.attributes["bits"]
    if not isinstance(bits, int) or bits.bit_count() != 1 or bits >> (factor.type.bits - 1):
        return None
    return bits.bit_length() - 1


LOWERINGS: Final[Mapping[str, LowerToLlvm]] = {
    "core.mul": _lower_mul,
    "core.exp2": _componentwise("exp2"),
    "core.log2": _componentwise("log"),
    "core.rcp": _componentwise("rcp"),
}
