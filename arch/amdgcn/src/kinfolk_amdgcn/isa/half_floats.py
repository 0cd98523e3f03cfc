"""Vector instructions on f16, alone and two to a register, and with f32 beside them.

Source: "AMD Instinct MI300 Instruction Set Architecture", VOP1, VOP2, VOPC, VOP3 and VOP3P instructions; oracle: AMD's
pseudo-code of each, in tests. Sums, products and quotients of two f16 are computed in f32 and rounded again: f32 has
more than twice the digits of f16, so that this is as good as one rounding.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from kinfolk.ir.numpy_lanes import NumpyLane
from kinfolk.ir.ops import arithmetic
from kinfolk.ir.ops.convert import narrow_float, widen_float
from kinfolk.ir.types import F16, F32, I1, I16, I32
from kinfolk_amdgcn.isa.declare import Meaning, OfTwo
from kinfolk_amdgcn.isa.doubles import sum_to_odd
from kinfolk_amdgcn.isa.floats import (
    cosine,
    fraction_part,
    frexp_exponent,
    frexp_mantissa,
    larger_or_nan,
    sine,
    smaller_or_nan,
)
from kinfolk_amdgcn.isa.vector_alu import ceiling, float_compares, floor, lane, op_meaning, scaled_f32, three, truncated


def in_f32(meaning: Meaning) -> Meaning:
    """Return a function of f32 as one of f16, its result rounded."""

    function: Callable[..., Any] = meaning

    def narrow(m: Any, *operands: Any) -> Any:
        return narrow_float(m, function(m, *[widen_float(m, each) for each in operands]), F16)

    return narrow


def fma_f16(m: Any, a: Any, b: Any, c: Any) -> Any:
    """a * b + c rounded once: the sum in f64 is rounded to odd first, so that rounding it again is harmless."""
    x, y, z = (each.data.view(np.float16).astype(np.float64) for each in (a, b, c))
    return NumpyLane(F16, sum_to_odd(x * y, z).astype(np.float16).view(np.uint16))


def _pick(larger: bool) -> OfTwo:
    """Return the larger or smaller one; a number where the other is NaN, +0 above -0."""

    def meaning(m: Any, a: Any, b: Any) -> Any:
        x, y = widen_float(m, a), widen_float(m, b)
        sign = m.bits(a, I16) < 0
        first = m.where(x.eq(y), sign.eq(m.const(0, I1)), x > y) if larger else m.where(x.eq(y), sign, x < y)
        found = m.where(first, a, b)
        return m.where(x.ne(x), b, m.where(y.ne(y), a, found))

    return meaning


MAX_F16, MIN_F16 = _pick(True), _pick(False)


def _of_numbers(larger: Callable[[Any, Any, Any], Any]) -> OfTwo:
    """Return a choice among f32 as one among f16, exactly."""
    return lambda m, a, b: narrow_float(m, larger(m, widen_float(m, a), widen_float(m, b)), F16)


MAXIMUM_F16, MINIMUM_F16 = _of_numbers(larger_or_nan), _of_numbers(smaller_or_nan)


def _median(m: Any, a: Any, b: Any, c: Any) -> Any:
    middle = MAX_F16(m, MIN_F16(m, a, b), MIN_F16(m, MAX_F16(m, a, b), c))
    some_nan = m.where(_nan(m, a), m.const(1, I1), m.where(_nan(m, b), m.const(1, I1), _nan(m, c)))
    return m.where(some_nan, MIN_F16(m, MIN_F16(m, a, b), c), middle)


def _nan(m: Any, x: Any) -> Any:
    wide = widen_float(m, x)
    return wide.ne(wide)


def _mad(m: Any, a: Any, b: Any, c: Any) -> Any:
    """The product and the sum each rounded."""
    product = narrow_float(m, widen_float(m, a) * widen_float(m, b), F16)
    return narrow_float(m, widen_float(m, product) + widen_float(m, c), F16)


def _to_integer(low: int, high: int) -> Meaning:
    def meaning(m: Any, x: Any) -> Any:
        whole = m.to_int(widen_float(m, x), I32)
        capped = m.where(whole > high, m.const(high, I32), m.where(whole < low, m.const(low, I32), whole))
        return m.trunc(capped, I16)

    return meaning


def _toward_zero(m: Any, x: Any) -> Any:
    """f32 as f16, rounded toward zero: what is too large is the largest number."""
    bits = m.bits(x, I32)
    sign, size = m.lshr(bits, 16) & 0x8000, bits & 0x7FFFFFFF
    small = m.to_int(m.bits(size, F32) * 2.0**24, I32)
    value = m.where(size < 0x38800000, small, m.lshr(size - 0x38000000, 13))
    value = m.where(size >= 0x47800000, m.const(0x7BFF, I32), value)
    value = m.where(size.eq(0x7F800000), m.const(0x7C00, I32), value)
    value = m.where(x.eq(x), value, m.const(0x7E00, I32) | m.lshr(size, 13) & 0x3FF)
    return value | sign


def _reciprocal(m: Any, x: Any) -> Any:
    return m.const(1.0, F32) / x


UNARY: Final[tuple[tuple[str, int, Meaning], ...]] = (
    ("rcp", 61, _reciprocal),
    ("sqrt", 62, lambda m, x: m.sqrt(x)),
    ("rsq", 63, lambda m, x: _reciprocal(m, m.sqrt(x))),
    ("log", 64, op_meaning(arithmetic.log2)),
    ("exp", 65, op_meaning(arithmetic.exp2)),
    ("floor", 68, floor),
    ("ceil", 69, ceiling),
    ("trunc", 70, truncated),
    ("rndne", 71, lambda m, x: m.rint(x)),
    ("fract", 72, fraction_part),
    ("sin", 73, sine),
    ("cos", 74, cosine),
)
_TRANSCENDENTAL: Final = ("rcp", "sqrt", "rsq", "log", "exp", "sin", "cos")


def _declare_unary() -> None:
    for name, opcode, meaning in UNARY:
        facts = {"transcendental": name in _TRANSCENDENTAL}
        lane(f"v_{name}_f16", "VOP1", opcode, "f16: f16", in_f32(meaning), facts=facts)
    lane("v_cvt_f16_u16", "VOP1", 57, "f16: i16", lambda m, x: narrow_float(m, m.to_float(m.zext(x, I32), F32), F16))
    lane("v_cvt_f16_i16", "VOP1", 58, "f16: i16", lambda m, x: narrow_float(m, m.to_float(x, F32), F16))
    lane("v_cvt_u16_f16", "VOP1", 59, "i16: f16", _to_integer(0, 0xFFFF))
    lane("v_cvt_i16_f16", "VOP1", 60, "i16: f16", _to_integer(-0x8000, 0x7FFF))
    lane("v_frexp_mant_f16", "VOP1", 66, "f16: f16", in_f32(frexp_mantissa))
    lane("v_frexp_exp_i16_f16", "VOP1", 67, "i16: f16", lambda m, x: m.trunc(frexp_exponent(m, widen_float(m, x)), I16))


def _declare_binary() -> None:
    rows: tuple[tuple[str, int, Meaning], ...] = (
        ("add", 31, in_f32(lambda m, a, b: a + b)),
        ("sub", 32, in_f32(lambda m, a, b: a - b)),
        ("subrev", 33, in_f32(lambda m, a, b: b - a)),
        ("mul", 34, in_f32(lambda m, a, b: a * b)),
        ("max", 45, MAX_F16),
        ("min", 46, MIN_F16),
    )
    for name, opcode, meaning in rows:
        lane(f"v_{name}_f16", "VOP2", opcode, "f16: f16 f16", meaning)
    ldexp: Meaning = lambda m, x, n: narrow_float(m, scaled_f32(m, widen_float(m, x), m.sext(n, I32)), F16)  # noqa: E731
    lane("v_ldexp_f16", "VOP2", 51, "f16: f16 i16", ldexp)
    lane("v_mac_f16", "VOP2", 35, "f16: f16 f16 f16", _mad, reads_destination=True)
    for name, opcode, place in (("v_madmk_f16", 36, 1), ("v_madak_f16", 37, 2)):
        lane(name, "VOP2", opcode, "f16: f16 f16 f16", _mad, facts={"literal_at": place})
    fused: tuple[tuple[str, int, Meaning, bool], ...] = (
        ("v_mad_legacy_f16", 490, _mad, True),
        ("v_fma_legacy_f16", 494, fma_f16, True),
        ("v_min3_f16", 500, three(MIN_F16), False),
        ("v_max3_f16", 503, three(MAX_F16), False),
        ("v_med3_f16", 506, _median, False),
        ("v_mad_f16", 515, _mad, False),
        ("v_fma_f16", 518, fma_f16, False),
    )
    for name, opcode, meaning, legacy in fused:
        lane(name, "VOP3", opcode, "f16: f16 f16 f16", meaning, facts={"clears_upper_half": legacy})
    rounded: Meaning = lambda m, a, b: _toward_zero(m, a) | (_toward_zero(m, b) << 16)  # noqa: E731
    lane("v_cvt_pkrtz_f16_f32", "VOP3", 662, "i32: f32 f32", rounded)
    lane("v_cvt_f32_bf16", "VOP1", 91, "f32: bf16", widen_float)
    float_compares("f16", 0x20, widen_float)


def _declare_packed() -> None:
    two: tuple[tuple[str, int, Meaning], ...] = (
        ("add", 15, in_f32(lambda m, a, b: a + b)),
        ("mul", 16, in_f32(lambda m, a, b: a * b)),
        ("min", 17, MIN_F16),
        ("max", 18, MAX_F16),
    )
    for name, opcode, meaning in two:
        lane(f"v_pk_{name}_f16", "VOP3P", opcode, "f16: f16 f16", meaning, packed=True)
    of_three: tuple[tuple[str, int, Meaning], ...] = (
        ("fma", 14, fma_f16),
        ("minimum3", 27, three(MINIMUM_F16)),
        ("maximum3", 28, three(MAXIMUM_F16)),
    )
    for name, opcode, meaning in of_three:
        lane(f"v_pk_{name}_f16", "VOP3P", opcode, "f16: f16 f16 f16", meaning, packed=True)
    lane("v_pk_fmac_f16", "VOP2", 60, "f16: f16 f16 f16", fma_f16, packed=True, reads_destination=True)
    single: Meaning = lambda m, a, b, c: m.fma(_f32(m, a), _f32(m, b), _f32(m, c))  # noqa: E731
    lane("v_mad_mix_f32", "VOP3P", 32, "f32: f32 f32 f32", single, facts={"half": None})
    for half, name in enumerate(("lo", "hi")):
        lane(f"v_mad_mix{name}_f16", "VOP3P", 33 + half, "f16: f32 f32 f32", _mixed_to_half, facts={"half": half})


def _f32(m: Any, x: Any) -> Any:
    return widen_float(m, x) if x.type == F16 else x


def _mixed_to_half(m: Any, a: Any, b: Any, c: Any) -> Any:
    """The sum rounded to f32, as the machine's text has it, and then to f16."""
    return narrow_float(m, m.fma(_f32(m, a), _f32(m, b), _f32(m, c)), F16)


_declare_unary()
_declare_binary()
_declare_packed()
