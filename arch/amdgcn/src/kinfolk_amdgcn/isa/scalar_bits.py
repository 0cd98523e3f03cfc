"""Scalar instructions on single bits and masks, and moves that the condition bit decides.

Source: "AMD Instinct MI300 Instruction Set Architecture", SOP1, SOP2, SOPC and SOPK instructions; oracle: AMD's
pseudo-code of each, in tests.
"""

from __future__ import annotations

from typing import Any

from kinfolk.ir.types import I32, I64
from kinfolk_amdgcn.isa.declare import Meaning
from kinfolk_amdgcn.isa.scalar_alu import BITWISE, count_ones, first_one, inverse, nonzero, scalar
from kinfolk_amdgcn.isa.vector_alu import leading_signs, leading_zeros, reversed_bits

ONES = 0xFFFFFFFFFFFFFFFF


def _leading_zeros_64(m: Any, x: Any) -> Any:
    spread = x
    for count in (1, 2, 4, 8, 16, 32):
        spread = spread | m.lshr(spread, count)
    return m.where(x.eq(0), m.const(-1, I32), m.const(64, I32) - count_ones(m, spread))


def _leading_signs_64(m: Any, x: Any) -> Any:
    return _leading_zeros_64(m, m.where(x < 0, x ^ ONES, x))


def _reversed_64(m: Any, x: Any) -> Any:
    low, high = m.trunc(x, I32), m.trunc(m.lshr(x, 32), I32)
    return (m.zext(reversed_bits(m, low), I64) << 32) | m.zext(reversed_bits(m, high), I64)


def _set_bit(type_: Any, value: int) -> Meaning:
    def meaning(m: Any, x: Any, old: Any) -> Any:
        place = x & (type_.bits - 1)
        bit = m.const(1, type_) << (place if type_ == I32 else m.zext(place, I64))
        return old | bit if value else old & inverse(m, bit)

    return meaning


def _any_of_four(m: Any, x: Any) -> Any:
    """Bit 4 n is set where one of bits 4 n to 4 n + 3 is."""
    found = x | m.lshr(x, 1)
    return (found | m.lshr(found, 2)) & 0x1111111111111111


def _spread_to_four(m: Any, x: Any) -> Any:
    found = _any_of_four(m, x)
    found = found | (found << 1)
    return found | (found << 2)


def _gathered(m: Any, x: Any) -> Any:
    """Bit n is set where one of bits 4 n to 4 n + 3 is."""
    found = _any_of_four(m, x)
    for count, mask in ((3, 0x0303030303030303), (6, 0x000F000F000F000F), (12, 0x000000FF000000FF), (24, 0xFFFF)):
        found = (found | m.lshr(found, count)) & mask
    return found


def _narrow(function: Any) -> Meaning:
    """Return a function of 64 bits on 32."""
    return lambda m, x: m.trunc(function(m, m.zext(x, I64)), I32)


def _doubled(m: Any, x: Any) -> Any:
    """Every bit twice."""
    x = m.zext(x, I64)
    for count, mask in (
        (16, 0x0000FFFF0000FFFF),
        (8, 0x00FF00FF00FF00FF),
        (4, 0x0F0F0F0F0F0F0F0F),
        (2, 0x3333333333333333),
        (1, 0x5555555555555555),
    ):
        x = (x | (x << count)) & mask
    return x | (x << 1)


def _distance(m: Any, a: Any, b: Any) -> Any:
    apart = a - b
    return m.where(apart < 0, m.const(0, I32) - apart, apart)


def _declare_moves() -> None:
    both: dict[str, Any] = {"reads_destination": True, "facts": BITWISE}
    for more, bits in enumerate((32, 64)):
        types = f"i{bits}: i{bits} i{bits} scc"
        scalar(f"s_cmov_b{bits}", "SOP1", 2 + more, types, lambda m, x, old, c: m.where(c, x, old), **both)
    scalar("s_cmovk_i32", "SOPK", 1, "i32: i32 i32 scc", lambda m, old, x, c: m.where(c, x, old), **both)
    for value in (0, 1):
        for more, type_ in enumerate((I32, I64)):
            types, name = f"i{type_.bits}: i32 i{type_.bits}", f"s_bitset{value}_b{type_.bits}"
            scalar(name, "SOP1", 24 + 2 * value + more, types, _set_bit(type_, value), **both)


def _declare_bits() -> None:
    scalar("s_brev_b32", "SOP1", 8, "i32: i32", reversed_bits)
    scalar("s_brev_b64", "SOP1", 9, "i64: i64", _reversed_64)
    scalar("s_bcnt0_i32_b32", "SOP1", 10, "i32: i32", lambda m, x: count_ones(m, m.zext(inverse(m, x), I64)), nonzero)
    scalar("s_bcnt0_i32_b64", "SOP1", 11, "i32: i64", lambda m, x: count_ones(m, inverse(m, x)), nonzero)
    scalar("s_ff0_i32_b32", "SOP1", 14, "i32: i32", lambda m, x: first_one(m, m.zext(inverse(m, x), I64)))
    scalar("s_ff0_i32_b64", "SOP1", 15, "i32: i64", lambda m, x: first_one(m, inverse(m, x)))
    scalar("s_flbit_i32_b32", "SOP1", 18, "i32: i32", leading_zeros)
    scalar("s_flbit_i32_b64", "SOP1", 19, "i32: i64", _leading_zeros_64)
    scalar("s_flbit_i32", "SOP1", 20, "i32: i32", leading_signs)
    scalar("s_flbit_i32_i64", "SOP1", 21, "i32: i64", _leading_signs_64)
    scalar("s_wqm_b32", "SOP1", 6, "i32: i32", _narrow(_spread_to_four), nonzero)
    scalar("s_wqm_b64", "SOP1", 7, "i64: i64", _spread_to_four, nonzero)
    scalar("s_quadmask_b32", "SOP1", 40, "i32: i32", _narrow(_gathered), nonzero)
    scalar("s_quadmask_b64", "SOP1", 41, "i64: i64", _gathered, nonzero)
    scalar("s_bitreplicate_b64_b32", "SOP1", 55, "i64: i32", _doubled)
    scalar("s_absdiff_i32", "SOP2", 42, "i32: i32 i32", _distance, nonzero)
    scalar("s_bfm_b64", "SOP2", 35, "i64: i32 i32", _mask_64)
    for value in (0, 1):
        name, types = f"s_bitcmp{value}_b64", "scc: i64 i32"
        scalar(name, "SOPC", 14 + value, types, _is_bit(value))


def _mask_64(m: Any, a: Any, b: Any) -> Any:
    width, low = (m.zext(each & 63, I64) for each in (a, b))
    return ((m.const(1, I64) << width) - 1) << low


def _is_bit(value: int) -> Meaning:
    return lambda m, x, n: (m.lshr(x, m.zext(n & 63, I64)) & 1).eq(value)


def _declare_masks() -> None:
    saved: dict[str, Any] = {"facts": {"saves_exec": True}}
    written: dict[str, Any] = {"facts": {"saves_exec": True, "gives_exec": True}}
    rows: tuple[tuple[str, int, Meaning, dict[str, Any]], ...] = (
        ("nand_saveexec", 37, lambda m, a, b: inverse(m, a & b), saved),
        ("nor_saveexec", 38, lambda m, a, b: inverse(m, a | b), saved),
        ("xnor_saveexec", 39, lambda m, a, b: inverse(m, a ^ b), saved),
        ("andn1_saveexec", 51, lambda m, a, b: inverse(m, a) & b, saved),
        ("orn1_saveexec", 52, lambda m, a, b: inverse(m, a) | b, saved),
        ("andn1_wrexec", 53, lambda m, a, b: inverse(m, a) & b, written),
        ("andn2_wrexec", 54, lambda m, a, b: a & inverse(m, b), written),
    )
    for name, opcode, meaning, more in rows:
        scalar(f"s_{name}_b64", "SOP1", opcode, "i64: i64", meaning, nonzero, **more)


_declare_moves()
_declare_bits()
_declare_masks()
