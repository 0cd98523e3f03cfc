"""Vector instructions on integers beyond arithmetic: sums of products and differences, packing, shifts of pairs.

Source: "AMD Instinct MI300 Instruction Set Architecture" and its successor for CDNA4, VOP1, VOP2, VOP3 and VOP3P
instructions; oracle: AMD's pseudo-code of each, in tests.
"""

from __future__ import annotations

from typing import Any, Final

from kinfolk.ir.ops.convert import widen_float
from kinfolk.ir.types import BF16, F16, F32, I1, I16, I32, I64
from kinfolk_amdgcn.isa.declare import Meaning, OfTwo
from kinfolk_amdgcn.isa.saturation import capped
from kinfolk_amdgcn.isa.vector_alu import (
    MAX_I32,
    MAX_U32,
    MIN_I32,
    MIN_U32,
    floor,
    lane,
    median,
    population,
    three,
)


def part(m: Any, x: Any, low: int, bits: int, signed: bool) -> Any:
    """Bits of an integer of 32, from `low` on, with or without a sign."""
    moved = x << (32 - bits - low)
    return m.ashr(moved, 32 - bits) if signed else m.lshr(moved, 32 - bits)


def _dot(bits: int, signed: bool) -> Meaning:
    """Add products of all parts of two registers to an integer."""

    def meaning(m: Any, a: Any, b: Any, c: Any) -> Any:
        for low in range(0, 32, bits):
            c = c + part(m, a, low, bits, signed) * part(m, b, low, bits, signed)
        return c

    return meaning


def _half(m: Any, x: Any, number: int, type_: Any) -> Any:
    return widen_float(m, m.bits(m.trunc(m.lshr(x, 16 * number), I16), type_))


def _dot_of_f16(m: Any, a: Any, b: Any, c: Any) -> Any:
    for number in (0, 1):
        c = c + _half(m, a, number, F16) * _half(m, b, number, F16)
    return c


def _dot_of_bf16(m: Any, a: Any, b: Any, c: Any) -> Any:
    low, high = (_half(m, a, number, BF16) * _half(m, b, number, BF16) for number in (0, 1))
    return low + high + c


def _dot_of_bf16_to(m: Any, a: Any, b: Any, c: Any) -> Any:
    for number in (0, 1):
        c = c + _half(m, a, number, BF16) * _half(m, b, number, BF16)
    return c


def _differences(bits: int, shift: int = 0) -> Meaning:
    """Add how far parts of two registers are apart, moved by `shift`, to an integer."""

    def meaning(m: Any, a: Any, b: Any, c: Any) -> Any:
        total = m.const(0, I32)
        for low in range(0, 32, bits):
            x, y = part(m, a, low, bits, False), part(m, b, low, bits, False)
            total = total + m.where(m.unsigned_less(y, x), x - y, y - x)
        return c + (total << shift)

    return meaning


def _high_24(signed: bool) -> Meaning:
    def meaning(m: Any, a: Any, b: Any) -> Any:
        x, y = part(m, a, 0, 24, signed), part(m, b, 0, 24, signed)
        wide = m.sext if signed else m.zext
        return m.trunc(m.lshr(wide(x, I64) * wide(y, I64), 32), I32)

    return meaning


def _mad_i64(m: Any, a: Any, b: Any, c: Any) -> Any:
    """A product of 32 bits added to 64, with the bit above them."""
    product = m.sext(a, I64) * m.sext(b, I64)
    total = product + c
    sign = m.lshr(product, 63) + m.lshr(c, 63) + m.zext(m.unsigned_less(total, product), I64)
    return total, m.trunc(sign, I1)


def _wide_16(signed: bool) -> Meaning:
    def meaning(m: Any, a: Any, b: Any, c: Any) -> Any:
        wide = m.sext if signed else m.zext
        return wide(a, I32) * wide(b, I32) + c

    return meaning


def _packing(low: int, high: int, signed: bool) -> OfTwo:
    """Return both operands kept in a range, in 16 bits each."""

    def meaning(m: Any, a: Any, b: Any) -> Any:
        x, y = (capped(m, each, low, high, signed) & 0xFFFF for each in (a, b))
        return x | (y << 16)

    return meaning


def _shifted_pair(low: int, high: int) -> Meaning:
    def meaning(m: Any, a: Any, b: Any, n: Any) -> Any:
        x, y = (capped(m, m.ashr(each, n & 31), low, high, True) & 0xFF for each in (a, b))
        return m.trunc(x | (y << 8), I16)

    return meaning


def _saturated_bytes(m: Any, x: Any) -> Any:
    low, high = (capped(m, part(m, x, 16 * number, 16, True), 0, 255, True) for number in (0, 1))
    return m.trunc(low | (high << 8), I16)


def _align_bytes(m: Any, a: Any, b: Any, n: Any) -> Any:
    pair = (m.zext(a, I64) << 32) | m.zext(b, I64)
    return m.trunc(m.lshr(pair, m.zext((n & 3) << 3, I64)), I32)


def _next_random(m: Any, x: Any) -> Any:
    return (x << 1) ^ m.where(x < 0, m.const(197, I32), m.const(0, I32))


def _declare_32() -> None:
    lane("v_cvt_rpi_i32_f32", "VOP1", 12, "i32: f32", lambda m, x: m.to_int(floor(m, x + m.const(0.5, F32)), I32))
    lane("v_cvt_flr_i32_f32", "VOP1", 13, "i32: f32", lambda m, x: m.to_int(floor(m, x), I32))
    lane("v_sat_pk_u8_i16", "VOP1", 79, "i16: i32", _saturated_bytes)
    lane("v_prng_b32", "VOP1", 88, "i32: i32", _next_random)
    lane("v_mul_hi_i32_i24", "VOP2", 7, "i32: i32 i32", _high_24(signed=True))
    lane("v_mul_hi_u32_u24", "VOP2", 9, "i32: i32 i32", _high_24(signed=False))
    lane("v_alignbyte_b32", "VOP3", 463, "i32: i32 i32 i32", _align_bytes)
    for opcode, name, bits, shift in (
        (473, "u8", 8, 0),
        (474, "hi_u8", 8, 16),
        (475, "u16", 16, 0),
        (476, "u32", 32, 0),
    ):
        lane(f"v_sad_{name}", "VOP3", opcode, "i32: i32 i32 i32", _differences(bits, shift))
    lane("v_mad_i64_i32", "VOP3", 489, "i64 mask: i32 i32 i64", _mad_i64, facts={"upper_half_is_carried": True})
    lane("v_xad_u32", "VOP3", 499, "i32: i32 i32 i32", lambda m, a, b, c: (a ^ b) + c)
    for opcode, name, low, high in ((613, "i8", -128, 127), (614, "u8", 0, 255)):
        lane(f"v_ashr_pk_{name}_i32", "VOP3", opcode, "i16: i32 i32 i32", _shifted_pair(low, high))
    lane("v_bcnt_u32_b32", "VOP3", 651, "i32: i32 i32", lambda m, x, c: population(m, x) + c)
    lane("v_cvt_pk_u16_u32", "VOP3", 663, "i32: i32 i32", _packing(0, 0xFFFF, signed=False))
    lane("v_cvt_pk_i16_i32", "VOP3", 664, "i32: i32 i32", _packing(-0x8000, 0x7FFF, signed=True))
    lane("v_add_i32", "VOP3", 668, "i32: i32 i32", lambda m, a, b: a + b)
    lane("v_sub_i32", "VOP3", 669, "i32: i32 i32", lambda m, a, b: a - b)


def _declare_16() -> None:
    lane("v_mad_u32_u16", "VOP3", 497, "i32: i16 i16 i32", _wide_16(signed=False))
    lane("v_mad_i32_i16", "VOP3", 498, "i32: i16 i16 i32", _wide_16(signed=True))
    product: Meaning = lambda m, a, b, c: a * b + c  # noqa: E731
    for opcode, name, legacy in ((491, "legacy_u", 1), (492, "legacy_i", 1), (516, "u", 0), (517, "i", 0)):
        facts = {"clears_upper_half": bool(legacy)}
        lane(f"v_mad_{name}16", "VOP3", opcode, "i16: i16 i16 i16", product, facts=facts)
    for number, (name, low, high) in enumerate((("i", MIN_I32, MAX_I32), ("u", MIN_U32, MAX_U32))):
        types = "i16: i16 i16 i16"
        lane(f"v_min3_{name}16", "VOP3", 501 + number, types, three(low))
        lane(f"v_max3_{name}16", "VOP3", 504 + number, types, three(high))
        lane(f"v_med3_{name}16", "VOP3", 507 + number, types, median(high, low))
    lane("v_add_i16", "VOP3", 670, "i16: i16 i16", lambda m, a, b: a + b)
    lane("v_sub_i16", "VOP3", 671, "i16: i16 i16", lambda m, a, b: a - b)
    for opcode, name in ((0, "i"), (9, "u")):
        lane(f"v_pk_mad_{name}16", "VOP3P", opcode, "i16: i16 i16 i16", product, packed=True)


DOTS: Final[tuple[tuple[str, int, str, Meaning], ...]] = (
    ("v_dot2_f32_bf16", 26, "f32", _dot_of_bf16),
    ("v_dot2_f32_f16", 35, "f32", _dot_of_f16),
    ("v_dot2_i32_i16", 38, "i32", _dot(16, signed=True)),
    ("v_dot2_u32_u16", 39, "i32", _dot(16, signed=False)),
    ("v_dot4_i32_i8", 40, "i32", _dot(8, signed=True)),
    ("v_dot4_u32_u8", 41, "i32", _dot(8, signed=False)),
    ("v_dot8_i32_i4", 42, "i32", _dot(4, signed=True)),
    ("v_dot8_u32_u4", 43, "i32", _dot(4, signed=False)),
)


def _declare_dots() -> None:
    for name, opcode, type_, meaning in DOTS:
        lane(name, "VOP3P", opcode, f"{type_}: i32 i32 {type_}", meaning, facts={"whole_registers": True})
    for name, opcode, type_, meaning in (
        ("v_dot2c_f32_bf16", 22, "f32", _dot_of_bf16_to),
        ("v_dot2c_f32_f16", 55, "f32", _dot_of_f16),
        ("v_dot2c_i32_i16", 56, "i32", _dot(16, signed=True)),
        ("v_dot4c_i32_i8", 57, "i32", _dot(8, signed=True)),
        ("v_dot8c_i32_i4", 58, "i32", _dot(4, signed=True)),
    ):
        lane(name, "VOP2", opcode, f"{type_}: i32 i32 {type_}", meaning, reads_destination=True)


_declare_32()
_declare_16()
_declare_dots()
