"""The transcendental ops as the hardware's instructions, without the range fixes of `llvm.exp2` and `llvm.log2`.

v_exp_f32, v_log_f32 and v_rcp_f32 flush denormals in and out: exp2 of less than -126 is 0, as the op declares; log2 of
a denormal is -inf, as the op declares; rcp of a denormal is infinite, and a result below 2^-126 (of x > 2^126) is 0.
Source: "AMD Instinct MI300 Instruction Set Architecture", VOP1 instructions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kinfolk.ir.op import LlvmWriter, LowerToLlvm
from kinfolk.ir.types import ScalarType, VectorType
from kinfolk.ir.value import Operation


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


LOWERINGS: Final[Mapping[str, LowerToLlvm]] = {
    "core.exp2": _componentwise("exp2"),
    "core.log2": _componentwise("log"),
    "core.rcp": _componentwise("rcp"),
}
