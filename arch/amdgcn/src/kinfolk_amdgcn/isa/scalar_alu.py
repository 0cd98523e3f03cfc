"""Scalar instructions that compute: on registers that all lanes of a wave share, and the condition bit.

Source: "AMD Instinct MI300 Instruction Set Architecture", SOP1, SOP2, SOPC and SOPK instructions; oracle: AMD's
pseudo-code of each, in tests.
"""

from __future__ import annotations

from typing import Any, Final

from kinfolk.ir.types import I1, I32, I64
from kinfolk_amdgcn.isa.declare import Meaning, Table
from kinfolk_amdgcn.isa.vector_alu import MAX_I32, MAX_U32, MIN_I32, MIN_U32

SCALAR: Final = Table()
BITWISE: Final[dict[str, Any]] = {"bitwise": True}
"""Fact of an instruction each bit of whose result depends on the same bit of its operands, and on SCC, alone."""
MOVED: Final[dict[str, Any]] = {"bitwise": True, "moves_bits": True}
"""Fact of an instruction each bit of whose result is one bit of its first operand or 0; the others say which."""


def scalar(name: str, format_: str, opcode: int, types: str, meaning: Meaning, scc: Any = None, **more: Any) -> None:
    """Declare an instruction of scalar registers; `types` are its results and operands, `i32: i32 i32 scc`."""
    SCALAR.declare("scalar", name, format_, opcode, types, meaning=meaning, scc=scc, **more)


def nonzero(m: Any, result: Any, *operands: Any) -> Any:
    """Whether a result is not 0."""
    return result.ne(0)


def _carry(m: Any, result: Any, a: Any, b: Any) -> Any:
    return m.unsigned_less(result, a)


def _borrow(m: Any, result: Any, a: Any, b: Any) -> Any:
    return m.unsigned_less(a, b)


def _carry_with(m: Any, result: Any, a: Any, b: Any, carry: Any) -> Any:
    return m.trunc(m.lshr(m.zext(a, I64) + m.zext(b, I64) + m.zext(carry, I64), 32), I1)


def _borrow_with(m: Any, result: Any, a: Any, b: Any, borrow: Any) -> Any:
    return m.trunc(m.lshr(m.zext(a, I64) - m.zext(b, I64) - m.zext(borrow, I64), 32), I1)


def _add_overflows(m: Any, result: Any, a: Any, b: Any) -> Any:
    return ((a ^ result) & (b ^ result)) < 0


def _subtract_overflows(m: Any, result: Any, a: Any, b: Any) -> Any:
    return ((a ^ b) & (a ^ result)) < 0


def _is_first(m: Any, result: Any, a: Any, b: Any) -> Any:
    """Whether a minimum or maximum is the first operand; of equal ones AMD's text says so for maxima alone."""
    return result.eq(a)


def _less_signed(m: Any, result: Any, a: Any, b: Any) -> Any:
    return a < b


def _less_unsigned(m: Any, result: Any, a: Any, b: Any) -> Any:
    return m.unsigned_less(a, b)


def _shift_add(count: int) -> tuple[Meaning, Meaning]:
    def wide(m: Any, a: Any, b: Any) -> Any:
        return (m.zext(a, I64) << count) + m.zext(b, I64)

    return (
        lambda m, a, b: m.trunc(wide(m, a, b), I32),
        lambda m, result, a, b: m.lshr(wide(m, a, b), 32).ne(0),
    )


def _high(signed: bool) -> Meaning:
    def meaning(m: Any, a: Any, b: Any) -> Any:
        extend = m.sext if signed else m.zext
        return m.trunc(m.lshr(extend(a, I64) * extend(b, I64), 32), I32)

    return meaning


def inverse(m: Any, x: Any) -> Any:
    """All bits turned over."""
    return x ^ -1


def _bit_field(bits: int, signed: bool) -> Meaning:
    """A field of `b[22:16]` bits from bit b[4:0] on ([5:0] of 64 bits), which a sign may fill."""
    type_, mask = (I32, 31) if bits == 32 else (I64, 63)

    def meaning(m: Any, x: Any, b: Any) -> Any:
        offset, width = b & mask, m.lshr(b, 16) & 0x7F
        if bits == 64:
            offset, width = m.zext(offset, I64), m.zext(width, I64)
        moved = m.ashr(x, offset) if signed else m.lshr(x, offset)
        rest = m.where(m.unsigned_less(width, bits), m.const(bits, type_) - width, m.const(0, type_))
        aligned = moved << (rest & mask)
        field = m.ashr(aligned, rest & mask) if signed else m.lshr(aligned, rest & mask)
        return m.where(width.eq(0), m.const(0, type_), field)

    return meaning


def count_ones(m: Any, x: Any) -> Any:
    """How many of 64 bits are set."""
    x = x - (m.lshr(x, 1) & 0x5555555555555555)
    x = (x & 0x3333333333333333) + (m.lshr(x, 2) & 0x3333333333333333)
    x = (x + m.lshr(x, 4)) & 0x0F0F0F0F0F0F0F0F
    return m.trunc(m.lshr(x * m.const(0x0101010101010101, I64), 56), I32)


def first_one(m: Any, x: Any) -> Any:
    """The index of the lowest set bit; -1 where there is none."""
    lowest = x & (m.const(0, I64) - x)
    return m.where(x.eq(0), m.const(-1, I32), count_ones(m, lowest - 1))


def _compare(condition: str, unsigned: bool) -> Meaning:
    def less(m: Any, a: Any, b: Any) -> Any:
        return m.unsigned_less(a, b) if unsigned else a < b

    meanings: dict[str, Meaning] = {
        "eq": lambda m, a, b: a.eq(b),
        "lg": lambda m, a, b: a.ne(b),
        "gt": lambda m, a, b: less(m, b, a),
        "ge": lambda m, a, b: less(m, a, b).eq(m.const(0, I1)),
        "lt": less,
        "le": lambda m, a, b: less(m, b, a).eq(m.const(0, I1)),
    }
    return meanings[condition]


def _declare_arithmetic() -> None:
    rows: tuple[tuple[str, int, Meaning, Any], ...] = (
        ("s_add_u32", 0, lambda m, a, b: a + b, _carry),
        ("s_sub_u32", 1, lambda m, a, b: a - b, _borrow),
        ("s_add_i32", 2, lambda m, a, b: a + b, _add_overflows),
        ("s_sub_i32", 3, lambda m, a, b: a - b, _subtract_overflows),
        ("s_min_i32", 6, MIN_I32, _less_signed),
        ("s_min_u32", 7, MIN_U32, _less_unsigned),
        ("s_max_i32", 8, MAX_I32, _is_first),
        ("s_max_u32", 9, MAX_U32, _is_first),
        ("s_lshl_b32", 28, lambda m, a, n: a << (n & 31), nonzero),
        ("s_lshr_b32", 30, lambda m, a, n: m.lshr(a, n & 31), nonzero),
        ("s_ashr_i32", 32, lambda m, a, n: m.ashr(a, n & 31), nonzero),
        ("s_bfm_b32", 34, lambda m, a, b: ((m.const(1, I32) << (a & 31)) - 1) << (b & 31), None),
        ("s_mul_i32", 36, lambda m, a, b: a * b, None),
        ("s_bfe_u32", 37, _bit_field(32, signed=False), nonzero),
        ("s_bfe_i32", 38, _bit_field(32, signed=True), nonzero),
        ("s_mul_hi_u32", 44, _high(signed=False), None),
        ("s_mul_hi_i32", 45, _high(signed=True), None),
        ("s_pack_ll_b32_b16", 50, lambda m, a, b: (a & 0xFFFF) | (b << 16), None),
        ("s_pack_lh_b32_b16", 51, lambda m, a, b: (a & 0xFFFF) | (b & 0xFFFF0000), None),
        ("s_pack_hh_b32_b16", 52, lambda m, a, b: m.lshr(a, 16) | (b & 0xFFFF0000), None),
    )
    for name, opcode, meaning, scc in rows:
        scalar(name, "SOP2", opcode, "i32: i32 i32", meaning, scc)
    for count in range(1, 5):
        scalar(f"s_lshl{count}_add_u32", "SOP2", 45 + count, "i32: i32 i32", *_shift_add(count))
    scalar("s_addc_u32", "SOP2", 4, "i32: i32 i32 scc", lambda m, a, b, c: a + b + m.zext(c, I32), _carry_with)
    scalar("s_subb_u32", "SOP2", 5, "i32: i32 i32 scc", lambda m, a, b, c: a - b - m.zext(c, I32), _borrow_with)


def _declare_logic() -> None:
    rows: tuple[tuple[str, int, Meaning], ...] = (
        ("and", 12, lambda m, a, b: a & b),
        ("or", 14, lambda m, a, b: a | b),
        ("xor", 16, lambda m, a, b: a ^ b),
        ("andn2", 18, lambda m, a, b: a & inverse(m, b)),
        ("orn2", 20, lambda m, a, b: a | inverse(m, b)),
        ("nand", 22, lambda m, a, b: inverse(m, a & b)),
        ("nor", 24, lambda m, a, b: inverse(m, a | b)),
        ("xnor", 26, lambda m, a, b: inverse(m, a ^ b)),
    )
    for name, opcode, meaning in rows:
        for more, bits in enumerate((32, 64)):
            types = f"i{bits}: i{bits} i{bits}"
            scalar(f"s_{name}_b{bits}", "SOP2", opcode + more, types, meaning, nonzero, facts=BITWISE)
    for more, bits in enumerate((32, 64)):
        types = f"i{bits}: i{bits}"
        chosen: Meaning = lambda m, a, b, c: m.where(c, a, b)  # noqa: E731
        scalar(f"s_cselect_b{bits}", "SOP2", 10 + more, f"{types} i{bits} scc", chosen, facts=BITWISE)
        scalar(f"s_mov_b{bits}", "SOP1", more, types, lambda m, x: x, facts=BITWISE)
        scalar(f"s_not_b{bits}", "SOP1", 4 + more, types, inverse, nonzero, facts=BITWISE)
    scalar("s_lshl_b64", "SOP2", 29, "i64: i64 i32", lambda m, a, n: a << m.zext(n & 63, I64), nonzero, facts=MOVED)
    scalar(
        "s_lshr_b64", "SOP2", 31, "i64: i64 i32", lambda m, a, n: m.lshr(a, m.zext(n & 63, I64)), nonzero, facts=MOVED
    )
    scalar(
        "s_ashr_i64", "SOP2", 33, "i64: i64 i32", lambda m, a, n: m.ashr(a, m.zext(n & 63, I64)), nonzero, facts=MOVED
    )
    scalar("s_bfe_u64", "SOP2", 39, "i64: i64 i32", _bit_field(64, signed=False), nonzero, facts=MOVED)
    scalar("s_bfe_i64", "SOP2", 40, "i64: i64 i32", _bit_field(64, signed=True), nonzero, facts=MOVED)
    scalar("s_bcnt1_i32_b32", "SOP1", 12, "i32: i32", lambda m, x: count_ones(m, m.zext(x, I64)), nonzero)
    scalar("s_bcnt1_i32_b64", "SOP1", 13, "i32: i64", count_ones, nonzero)
    scalar("s_ff1_i32_b32", "SOP1", 16, "i32: i32", lambda m, x: first_one(m, m.zext(x, I64)))
    scalar("s_ff1_i32_b64", "SOP1", 17, "i32: i64", first_one)
    scalar("s_sext_i32_i8", "SOP1", 22, "i32: i32", lambda m, x: m.ashr(x << 24, 24))
    scalar("s_sext_i32_i16", "SOP1", 23, "i32: i32", lambda m, x: m.ashr(x << 16, 16))
    scalar("s_abs_i32", "SOP1", 48, "i32: i32", lambda m, x: m.where(x < 0, m.const(0, I32) - x, x), nonzero)
    for number, (name, meaning) in enumerate(
        (("and", rows[0][2]), ("or", rows[1][2]), ("xor", rows[2][2]), ("andn2", rows[3][2]), ("orn2", rows[4][2]))
    ):
        saved: dict[str, Any] = {"facts": {"saves_exec": True}}
        scalar(f"s_{name}_saveexec_b64", "SOP1", 32 + number, "i64: i64", meaning, nonzero, **saved)


def _declare_compares() -> None:
    conditions = ("eq", "lg", "gt", "ge", "lt", "le")
    for unsigned, base in ((False, 0), (True, 6)):
        for number, condition in enumerate(conditions):
            letter, meaning = "u" if unsigned else "i", _compare(condition, unsigned)
            scalar(f"s_cmp_{condition}_{letter}32", "SOPC", base + number, "scc: i32 i32", meaning)
            scalar(
                f"s_cmpk_{condition}_{letter}32",
                "SOPK",
                base + number + 2,
                "scc: i32 i32",
                meaning,
                reads_destination=True,
                facts={"unsigned": unsigned},
            )
    scalar("s_cmp_eq_u64", "SOPC", 18, "scc: i64 i64", _compare("eq", unsigned=True))
    scalar("s_cmp_lg_u64", "SOPC", 19, "scc: i64 i64", _compare("lg", unsigned=True))
    scalar("s_bitcmp0_b32", "SOPC", 12, "scc: i32 i32", lambda m, a, n: (m.lshr(a, n & 31) & 1).eq(0))
    scalar("s_bitcmp1_b32", "SOPC", 13, "scc: i32 i32", lambda m, a, n: (m.lshr(a, n & 31) & 1).ne(0))
    scalar("s_movk_i32", "SOPK", 0, "i32: i32", lambda m, x: x)
    both: dict[str, Any] = {"reads_destination": True}
    scalar("s_addk_i32", "SOPK", 14, "i32: i32 i32", lambda m, a, b: a + b, _add_overflows, **both)
    scalar("s_mulk_i32", "SOPK", 15, "i32: i32 i32", lambda m, a, b: a * b, **both)


_declare_arithmetic()
_declare_logic()
_declare_compares()
