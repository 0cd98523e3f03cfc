"""Vector instructions on f32 and f64 beyond arithmetic: roots, angles, parts of numbers, classes, other maxima.

Source: "AMD Instinct MI300 Instruction Set Architecture" and its successor for CDNA4, VOP1, VOPC and VOP3 instructions;
oracle: AMD's pseudo-code of each, in tests. Roots and inverse roots of f64 are rounded to nearest, where the machine is
less exact; angles are computed in f64 and rounded.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kinfolk.ir.numpy_lanes import NumpyLane
from kinfolk.ir.types import F32, F64, I1, I32
from kinfolk_amdgcn.isa.declare import Meaning
from kinfolk_amdgcn.isa.division import DOUBLE, HALF, SINGLE, Format, exponent, fraction
from kinfolk_amdgcn.isa.doubles import Array
from kinfolk_amdgcn.isa.vector_alu import ceiling, floor, lane, max_f32, min_f32, three


def fraction_part(m: Any, x: Any) -> Any:
    """What is left of x without the largest whole number that is not above it."""
    return x - floor(m, x)


def _angle(function: Any) -> Meaning:
    """Return a function of an angle in turns."""

    def meaning(m: Any, x: Any) -> Any:
        turns = np.asarray(x.data, np.float64)
        return NumpyLane(x.type, np.asarray(function((turns - np.rint(turns)) * (2.0 * np.pi)), x.data.dtype))

    return meaning


sine, cosine = _angle(np.sin), _angle(np.cos)


def frexp_mantissa(m: Any, x: Any) -> Any:
    """x times a power of two, so that its size is 0.5 or more and below 1; zeros, infinities and NaN as they are."""
    whole: Array = x.data
    split: tuple[Array, Array] = np.frexp(whole)
    return NumpyLane(x.type, np.where(np.isfinite(whole), split[0], whole))


def frexp_exponent(m: Any, x: Any) -> Any:
    """That power, negated; 0 of zeros, infinities and NaN."""
    _, power = np.frexp(x.data)
    return NumpyLane(I32, np.where(np.isfinite(x.data), power, 0).astype(np.int32).view(np.uint32))


def _inverse_root(m: Any, x: Any) -> Any:
    """Rounded once: of f32 from f64, of f64 by the host's division and root."""
    wide = m.convert(x, F64) if x.type == F32 else x
    found = m.const(1.0, F64) / m.sqrt(wide)
    return m.convert(found, F32) if x.type == F32 else found


def larger_or_nan(m: Any, a: Any, b: Any) -> Any:
    """The larger one, +0 above -0; NaN where one is."""
    return m.where(a.ne(a), a, m.where(b.ne(b), b, max_f32(m, a, b)))


def smaller_or_nan(m: Any, a: Any, b: Any) -> Any:
    """The smaller one, -0 below +0; NaN where one is."""
    return m.where(a.ne(a), a, m.where(b.ne(b), b, min_f32(m, a, b)))


def of_class(of: Format) -> Meaning:
    """Return whether x is of a class whose bit is set: NaN signalling and quiet, then from -infinity to infinity."""

    def meaning(m: Any, x: Any, classes: Any) -> Any:
        power, rest = exponent(m, x, of), fraction(m, x, of)
        negative, none = m.bits(x, of.integer) < 0, rest.eq(0)
        quiet = m.where((rest & 1 << of.fraction - 1).ne(0), m.const(1, I32), m.const(0, I32))

        def signed(minus: int, plus: int) -> Any:
            return m.where(negative, m.const(minus, I32), m.const(plus, I32))

        which = m.where(power.eq(of.largest), m.where(none, signed(2, 9), quiet), signed(3, 8))
        which = m.where(power.eq(0), m.where(none, signed(5, 6), signed(4, 7)), which)
        return m.trunc(m.lshr(classes, which), I1)

    return meaning


def _legacy_product(m: Any, a: Any, b: Any) -> Any:
    """A product in which zero times anything is +0."""
    zero = m.where(a.eq(0.0), m.const(1, I1), b.eq(0.0))
    return m.where(zero, m.const(0.0, F32), a * b)


def _declare_all() -> None:
    slow: dict[str, Any] = {"facts": {"transcendental": True}}
    lane("v_ceil_f64", "VOP1", 24, "f64: f64", ceiling)
    lane("v_fract_f32", "VOP1", 27, "f32: f32", fraction_part)
    lane("v_rsq_f32", "VOP1", 36, "f32: f32", _inverse_root, **slow)
    lane("v_rcp_f64", "VOP1", 37, "f64: f64", lambda m, x: m.const(1.0, F64) / x, **slow)
    lane("v_rsq_f64", "VOP1", 38, "f64: f64", _inverse_root, **slow)
    lane("v_sqrt_f64", "VOP1", 40, "f64: f64", lambda m, x: m.sqrt(x), **slow)
    lane("v_sin_f32", "VOP1", 41, "f32: f32", sine, **slow)
    lane("v_cos_f32", "VOP1", 42, "f32: f32", cosine, **slow)
    lane("v_frexp_exp_i32_f64", "VOP1", 48, "i32: f64", frexp_exponent)
    lane("v_frexp_mant_f64", "VOP1", 49, "f64: f64", frexp_mantissa)
    lane("v_fract_f64", "VOP1", 50, "f64: f64", fraction_part)
    lane("v_frexp_exp_i32_f32", "VOP1", 51, "i32: f32", frexp_exponent)
    lane("v_frexp_mant_f32", "VOP1", 52, "f32: f32", frexp_mantissa)
    lane("v_mul_legacy_f32", "VOP3", 673, "f32: f32 f32", _legacy_product)
    lane("v_minimum3_f32", "VOP3", 680, "f32: f32 f32 f32", three(smaller_or_nan))
    lane("v_maximum3_f32", "VOP3", 681, "f32: f32 f32 f32", three(larger_or_nan))
    for number, of in enumerate((SINGLE, DOUBLE, HALF)):
        lane(f"v_cmp_class_{of.name}", "VOPC", 0x10 + 2 * number, f"mask: {of.name} i32", of_class(of))


_declare_all()
