"""Vector instructions on f64, and conversions from and to it.

Source: "AMD Instinct MI300 Instruction Set Architecture", VOP1, VOP2, VOPC and VOP3 instructions; oracle: AMD's
pseudo-code of each, in tests.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from kinfolk.ir.numpy_lanes import NumpyLane
from kinfolk.ir.types import F32, F64, I32, I64
from kinfolk_amdgcn.isa.vector_alu import (
    MAX_I32,
    MIN_I32,
    float_compares,
    floor,
    lane,
    larger_float,
    smaller_float,
    to_unsigned,
    truncated,
)

Array = npt.NDArray[Any]


def scaled_f64(m: Any, x: Any, exponent: Any) -> Any:
    """x times two to an exponent, in two steps: neither of them leaves the range of f64 by itself."""
    limited = MIN_I32(m, MAX_I32(m, exponent, m.const(-2000, I32)), m.const(2000, I32))
    first = m.ashr(limited, 1)
    for part in (first, limited - first):
        x = x * m.bits((m.sext(part, I64) + 1023) << 52, F64)
    return x


def sum_to_odd(product: Array, addend: Array) -> Array:
    """Return a sum in f64, to odd where it is not exact: rounded again to fewer digits, it is as if rounded once."""
    total = product + addend
    virtual = total - product
    error = (product - (total - virtual)) + (addend - virtual)
    bits = np.asarray(total).view(np.int64)
    inexact = np.isfinite(total) & (error != 0) & ((bits & 1) == 0)
    odd = np.where(inexact, np.where((error > 0) == (total > 0), bits + 1, bits - 1), bits)
    return odd.view(np.float64)


def fma(m: Any, a: Any, b: Any, c: Any, power: Any = 0) -> Any:
    """a * b + c, times two to a power, rounded once: lane by lane in rational numbers."""
    x, y, z, powers = np.broadcast_arrays(a.data, b.data, c.data, power)
    result = np.ldexp(x * y + z, powers)
    exact = np.isfinite(x) & np.isfinite(y) & np.isfinite(z)
    for place in np.argwhere(exact):
        at = tuple(place)
        total = Fraction(float(x[at])) * Fraction(float(y[at])) + Fraction(float(z[at]))
        if total:
            total *= Fraction(2) ** int(powers[at])
            try:
                result[at] = float(total)
            except OverflowError:
                result[at] = np.inf if total > 0 else -np.inf
    return NumpyLane(F64, result)


def _declare_all() -> None:
    lane("v_cvt_i32_f64", "VOP1", 3, "i32: f64", lambda m, x: m.to_int(x, I32))
    lane("v_cvt_f64_i32", "VOP1", 4, "f64: i32", lambda m, x: m.to_float(x, F64))
    lane("v_cvt_f32_f64", "VOP1", 15, "f32: f64", lambda m, x: m.convert(x, F32))
    lane("v_cvt_f64_f32", "VOP1", 16, "f64: f32", lambda m, x: m.convert(x, F64))
    lane("v_cvt_u32_f64", "VOP1", 21, "i32: f64", to_unsigned)
    lane("v_cvt_f64_u32", "VOP1", 22, "f64: i32", lambda m, x: m.to_float(m.zext(x, I64), F64))
    lane("v_trunc_f64", "VOP1", 23, "f64: f64", truncated)
    lane("v_rndne_f64", "VOP1", 25, "f64: f64", lambda m, x: m.rint(x))
    lane("v_floor_f64", "VOP1", 26, "f64: f64", floor)
    lane("v_fmac_f64", "VOP2", 4, "f64: f64 f64 f64", fma, reads_destination=True)
    lane("v_fma_f64", "VOP3", 460, "f64: f64 f64 f64", fma)
    lane("v_add_f64", "VOP3", 640, "f64: f64 f64", lambda m, a, b: a + b)
    lane("v_mul_f64", "VOP3", 641, "f64: f64 f64", lambda m, a, b: a * b)
    lane("v_min_f64", "VOP3", 642, "f64: f64 f64", smaller_float(I64, F64))
    lane("v_max_f64", "VOP3", 643, "f64: f64 f64", larger_float(I64, F64))
    lane("v_ldexp_f64", "VOP3", 644, "f64: f64 i32", scaled_f64)
    float_compares("f64", 0x60)


_declare_all()
