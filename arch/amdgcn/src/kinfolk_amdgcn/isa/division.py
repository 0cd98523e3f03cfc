"""Instructions that divisions of floats are made of: scaling of operands, the last step, results of special operands.

Source: "AMD Instinct MI300 Instruction Set Architecture", VOP3 instructions; oracle: AMD's pseudo-code of each, and
that LLVM's division, which is made of them, is rounded to nearest, in tests. The text is read differently in four
places, in which with its words no division would come out: what it says of the reciprocal of an f32 "in f64" is of
f32, whose denormals the machine's reciprocal has not; a denominator whose reciprocal and quotient are denormals is
scaled down, up it is infinite; the last step undoes the scaling, by 64 and 128 bits in the direction that the quotient
tells; and a quotient of numbers that is none is too large, where a step on the way to it was.
"""

from __future__ import annotations

from typing import Any, Final

import attrs
import numpy as np

from kinfolk.ir.numpy_lanes import NumpyLane
from kinfolk.ir.types import F16, F32, F64, I1, I16, I32, I64, ScalarType
from kinfolk_amdgcn.isa import doubles
from kinfolk_amdgcn.isa.declare import Meaning
from kinfolk_amdgcn.isa.vector_alu import lane, scaled_f32


@attrs.frozen
class Format:
    """A float type: its integer, bits of the fraction, and what division needs to know of its exponents.

    A quotient is near the largest number where exponents differ by `far`; a numerator is tiny up to `tiny`; operands
    are scaled by two to `scale`; a quotient vanishes where exponents differ by less than `vanishes`.
    """

    type: ScalarType
    integer: ScalarType
    fraction: int
    far: int = 0
    tiny: int = 0
    scale: int = 0
    vanishes: int = 0

    @property
    def largest(self) -> int:
        """The exponent of infinities and NaNs."""
        return (1 << self.type.bits - 1 - self.fraction) - 1

    @property
    def name(self) -> str:
        """The type's name."""
        return self.type.name


SINGLE: Final = Format(F32, I32, 23, far=96, tiny=23, scale=64, vanishes=-150)
DOUBLE: Final = Format(F64, I64, 52, far=768, tiny=53, scale=128, vanishes=-1075)
HALF: Final = Format(F16, I16, 10)


def exponent(m: Any, x: Any, of: Format) -> Any:
    """The field of the exponent, as an integer of 32 bits."""
    field = m.lshr(m.bits(x, of.integer), of.fraction) & of.largest
    return field if of.integer == I32 else m.zext(field, I32) if of.integer == I16 else m.trunc(field, I32)


def fraction(m: Any, x: Any, of: Format) -> Any:
    """The field of the fraction."""
    return m.bits(x, of.integer) & (1 << of.fraction) - 1


def both(m: Any, a: Any, b: Any) -> Any:
    """Whether both conditions hold."""
    return m.where(a, b, m.const(0, I1))


def either(m: Any, a: Any, b: Any) -> Any:
    """Whether one of the conditions holds."""
    return m.where(a, m.const(1, I1), b)


def is_nan(m: Any, x: Any, of: Format) -> Any:
    """Whether x is no number."""
    return both(m, exponent(m, x, of).eq(of.largest), fraction(m, x, of).ne(0))


def _is_denormal(m: Any, x: Any, of: Format) -> Any:
    return both(m, exponent(m, x, of).eq(0), fraction(m, x, of).ne(0))


def _is_zero(m: Any, x: Any, of: Format) -> Any:
    return (m.bits(x, of.integer) << 1).eq(0)


def _is_infinite(m: Any, x: Any, of: Format) -> Any:
    return both(m, exponent(m, x, of).eq(of.largest), fraction(m, x, of).eq(0))


def _scaling(of: Format) -> Meaning:
    """Scale an operand, which is the denominator or the numerator, so that no step between leaves the range.

    The second result says whether the last step has to scale back.
    """

    def meaning(m: Any, x: Any, denominator: Any, numerator: Any) -> Any:
        scaled = scaled_f32 if of is SINGLE else doubles.scaled_f64
        up, down = (scaled(m, x, m.const(power, I32)) for power in (of.scale, -of.scale))
        above, below = exponent(m, numerator, of), exponent(m, denominator, of)
        small_inverse = _is_denormal(m, m.const(1.0, of.type) / denominator, of)
        small_quotient = _is_denormal(m, numerator / denominator, of)
        up_denominator, down_denominator = (m.where(x.eq(denominator), each, x) for each in (up, down))
        far, no, yes = above - below >= of.far, m.const(0, I1), m.const(1, I1)
        value = m.where(above <= of.tiny, up, x)
        value = m.where(small_quotient, m.where(x.eq(numerator), up, x), value)
        value = m.where(small_inverse, down, value)
        value = m.where(both(m, small_inverse, small_quotient), down_denominator, value)
        value = m.where(_is_denormal(m, denominator, of), up, value)
        value = m.where(far, up_denominator, value)
        flag = m.where(_is_denormal(m, denominator, of), no, small_quotient)
        flag = m.where(far, yes, flag)
        zero = either(m, _is_zero(m, numerator, of), _is_zero(m, denominator, of))
        return m.where(zero, m.const(float("nan"), of.type), value), m.where(zero, no, flag)

    return meaning


def _last_step(of: Format) -> Meaning:
    """Return a * b + c scaled back, rounded once: a quotient c of 2 or more upwards, a smaller one downwards."""

    def meaning(m: Any, a: Any, b: Any, c: Any, scale: Any) -> Any:
        large = exponent(m, c, of) >= (of.largest >> 1) + 1
        power = np.where(scale.data, np.where(large.data, of.scale, -of.scale), 0)
        if of is DOUBLE:
            return doubles.fma(m, a, b, c, power)
        x, y, z = (each.data.astype(np.float64) for each in (a, b, c))
        return NumpyLane(F32, np.ldexp(doubles.sum_to_odd(x * y, z), power).astype(np.float32))

    return meaning


def _fixing(of: Format) -> Meaning:
    """Return a quotient with its sign, and what a division of special operands gives."""
    sign_bit, quiet = 1 << of.type.bits - 1, 1 << of.fraction - 1
    infinite = of.largest << of.fraction

    def meaning(m: Any, quotient: Any, denominator: Any, numerator: Any) -> Any:
        q, d, n = (m.bits(each, of.integer) for each in (quotient, denominator, numerator))
        sign = (d ^ n) & sign_bit
        zero, infinity = m.const(0, of.integer), m.const(infinite, of.integer)
        value = q & (sign_bit - 1)
        if of.vanishes:
            apart = exponent(m, numerator, of) - exponent(m, denominator, of)
            value = m.where(value > infinite, infinity, value)
            value = m.where(apart < of.vanishes, zero, value)
        no_numerator, no_denominator = _is_zero(m, numerator, of), _is_zero(m, denominator, of)
        endless_numerator, endless_denominator = _is_infinite(m, numerator, of), _is_infinite(m, denominator, of)
        value = m.where(either(m, endless_denominator, no_numerator), zero, value)
        value = m.where(either(m, no_denominator, endless_numerator), infinity, value)
        value = value | sign
        none = either(m, both(m, no_numerator, no_denominator), both(m, endless_numerator, endless_denominator))
        value = m.where(none, m.const(sign_bit | infinite | quiet, of.integer), value)
        value = m.where(is_nan(m, denominator, of), d | quiet, value)
        value = m.where(is_nan(m, numerator, of), n | quiet, value)
        return m.bits(value, of.type)

    return meaning


def _declare_all() -> None:
    for of, scale, last, fix in ((SINGLE, 480, 482, 478), (DOUBLE, 481, 483, 479)):
        name = of.name
        lane(f"v_div_scale_{name}", "VOP3", scale, f"{name} mask: {name} {name} {name}", _scaling(of))
        implied = {"implied_mask": True}
        lane(f"v_div_fmas_{name}", "VOP3", last, f"{name}: {name} {name} {name} mask", _last_step(of), facts=implied)
        lane(f"v_div_fixup_{name}", "VOP3", fix, f"{name}: {name} {name} {name}", _fixing(of))
    for name, opcode, legacy in (("v_div_fixup_legacy_f16", 495, True), ("v_div_fixup_f16", 519, False)):
        lane(name, "VOP3", opcode, "f16: f16 f16 f16", _fixing(HALF), facts={"clears_upper_half": legacy})


_declare_all()
