"""Conversions between the 8-bit floats and f32, f16 or bf16."""

from __future__ import annotations

from typing import Any, Final

from kinfolk.ir import rules
from kinfolk.ir.float8 import FORMATS, Float8
from kinfolk.ir.op import AttributeDef
from kinfolk.ir.ops.convert import narrow_float, widen_float
from kinfolk.ir.ops.declare import BY_TARGET, TO, lane_op
from kinfolk.ir.types import BF16, F16, F32, I8, I32, ScalarType

_WIDE: Final = (F32, F16, BF16)
OVERFLOWS: Final = ("saturate", "nonfinite")
"""What becomes of a value that rounds past the largest: the largest, or infinity (NaN where the format has none)."""


def _between(narrows: bool) -> Any:
    pairs = [(wide.name, narrow.name) if narrows else (narrow.name, wide.name) for wide in _WIDE for narrow in FORMATS]
    return rules.change_float(*pairs)


@lane_op("core.widen_float8", "x", _between(narrows=False), BY_TARGET, attributes=(TO,))
def widen_float8(m: Any, x: Any, *, to: ScalarType) -> Any:
    """An 8-bit float as f32, f16 or bf16, exactly. A NaN becomes a quiet one of its sign and loses its payload."""
    single = _widened(m, x, FORMATS[x.type])
    return single if to == F32 else narrow_float(m, single, to)


def _widened(m: Any, x: Any, form: Float8) -> Any:
    code = m.zext(m.bits(x, I8), I32)
    sign, magnitude = (code & 0x80) << 24, code & 0x7F
    normal = (magnitude << (23 - form.mantissa)) + ((127 - form.bias) << 23)
    denormal = m.bits(m.to_float(magnitude, F32) * 2.0 ** (1 - form.bias - form.mantissa), I32)
    value = m.where(magnitude < 1 << form.mantissa, denormal, normal)
    if form.infinity is not None:
        value = m.where(magnitude.eq(form.infinity), m.const(0x7F800000, I32), value)
    is_nan = code.eq(form.nan) if form.one_zero else magnitude > max(form.largest, form.infinity or 0)
    return m.bits(m.where(is_nan, m.const(0x7FC00000, I32), value) | sign, F32)


@lane_op(
    "core.narrow_float8",
    "x",
    _between(narrows=True),
    BY_TARGET,
    attributes=(TO, AttributeDef("overflow", "str", choices=OVERFLOWS)),
)
def narrow_float8(m: Any, x: Any, *, to: ScalarType, overflow: str) -> Any:
    """f32, f16 or bf16 as an 8-bit float, rounded once to nearest even; denormals are kept, a NaN stays one.

    `overflow="saturate"`: what is past the largest value, infinities included, becomes the largest of its sign.
    `overflow="nonfinite"`: it becomes infinity in f8E5M2, and NaN in the formats that have none.
    A NaN keeps its sign and loses its payload; the FNUZ formats have one NaN, and no negative zero.
    """
    form = FORMATS[to]
    bits = m.bits(x if x.type == F32 else widen_float(m, x), I32)
    sign, magnitude = m.lshr(bits, 24) & 0x80, bits & 0x7FFFFFFF
    shift = 23 - form.mantissa
    rebased = magnitude - ((127 - form.bias) << 23)
    normal = m.lshr(rebased + ((1 << (shift - 1)) - 1) + (m.lshr(magnitude, shift) & 1), shift)
    smallest_normal, last_place = (128 - form.bias) << 23, 2.0 ** (24 - form.bias - form.mantissa)
    ruled = m.bits(magnitude, F32) + last_place  # where an ulp of f32 is the smallest denormal
    denormal = m.bits(ruled, I32) - m.bits(m.const(last_place, F32), I32)
    code = m.where(magnitude < smallest_normal, denormal, normal)
    past = form.largest if overflow == "saturate" else form.past_largest
    code = m.where(magnitude >= form.overflow_bits, m.const(past, I32), code)
    code = m.where(magnitude > 0x7F800000, m.const(form.nan, I32), code)
    if form.one_zero:
        sign = m.where(code.eq(0), m.const(0, I32), sign)
    return m.bits(m.trunc(code | sign, I8), to)


__all__ = ["OVERFLOWS", "narrow_float8", "widen_float8"]
