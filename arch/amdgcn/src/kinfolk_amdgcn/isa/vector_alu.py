"""Vector instructions that compute on each lane for itself.

Source: "AMD Instinct MI300 Instruction Set Architecture" and its successor for CDNA4, VOP1, VOP2, VOPC, VOP3 and VOP3P
instructions; oracle: AMD's pseudo-code of each, in tests. Transcendentals are what the op table declares of them.
"""

from __future__ import annotations

from typing import Any, Final

from kinfolk.ir.meaning import LaneFunction
from kinfolk.ir.op import OpDef
from kinfolk.ir.ops import arithmetic
from kinfolk.ir.ops.convert import narrow_float, widen_float
from kinfolk.ir.types import BF16, F16, F32, F64, I1, I16, I32, I64
from kinfolk_amdgcn.isa.declare import Meaning, OfTwo, Table

VECTOR: Final = Table()
Rows = tuple[tuple[str, int, str, Meaning], ...]


def lane(name: str, format_: str, opcode: int, types: str, meaning: Meaning, **more: Any) -> None:
    """Declare an instruction of lanes; `types` are its results and operands, `f32: f32 f32`."""
    VECTOR.declare("lane", name, format_, opcode, types, meaning=meaning, **more)


def op_meaning(op: OpDef) -> Meaning:
    """Return what an op of the op table means."""
    assert isinstance(op.meaning, LaneFunction)
    return op.meaning.body


def _mul_u24(m: Any, a: Any, b: Any) -> Any:
    return (a & 0xFFFFFF) * (b & 0xFFFFFF)


def _wide(m: Any, a: Any, signed: bool) -> Any:
    return m.sext(a, I64) if signed else m.zext(a, I64)


def _high_product(signed: bool) -> Meaning:
    def meaning(m: Any, a: Any, b: Any) -> Any:
        return m.trunc(m.lshr(_wide(m, a, signed) * _wide(m, b, signed), 32), I32)

    return meaning


def larger_float(bits: Any, type_: Any) -> OfTwo:
    """Return the larger one; a number where the other is NaN, and +0 of zeros of both signs."""

    def larger(m: Any, a: Any, b: Any) -> Any:
        found = m.where(a > b, a, m.where(b > a, b, m.bits(m.bits(a, bits) & m.bits(b, bits), type_)))
        return m.where(a.ne(a), b, m.where(b.ne(b), a, found))

    return larger


def smaller_float(bits: Any, type_: Any) -> OfTwo:
    """Return the smaller one; a number where the other is NaN, and -0 of zeros of both signs."""

    def smaller(m: Any, a: Any, b: Any) -> Any:
        found = m.where(a < b, a, m.where(b < a, b, m.bits(m.bits(a, bits) | m.bits(b, bits), type_)))
        return m.where(a.ne(a), b, m.where(b.ne(b), a, found))

    return smaller


max_f32, min_f32 = larger_float(I32, F32), smaller_float(I32, F32)


def _median_f32(m: Any, a: Any, b: Any, c: Any) -> Any:
    """The middle one; of operands with a NaN the smallest number."""
    middle = max_f32(m, min_f32(m, a, b), min_f32(m, max_f32(m, a, b), c))
    some_nan = (a + b + c).ne(a + b + c)
    some_nan = m.where(a.ne(a), m.const(1, I1), m.where(b.ne(b), m.const(1, I1), m.where(c.ne(c), some_nan, c.ne(c))))
    return m.where(some_nan, min_f32(m, min_f32(m, a, b), c), middle)


def truncated(m: Any, x: Any) -> Any:
    """x without its fraction, with its sign; what is large has none."""
    bits = I64 if x.type == F64 else I32
    sign = m.bits(x, bits) & (1 << bits.bits - 1)
    size = m.bits(m.bits(x, bits) & ((1 << bits.bits - 1) - 1), x.type)
    whole = m.where(size < 2.0**62, m.to_float(m.to_int(size, I64), x.type), size)
    return m.where(x.eq(x), m.bits(m.bits(whole, bits) | sign, x.type), x)


def floor(m: Any, x: Any) -> Any:
    """The largest whole number that is not above x."""
    whole = truncated(m, x)
    return m.where(x < whole, whole - 1.0, whole)


def ceiling(m: Any, x: Any) -> Any:
    """The smallest whole number that is not below x."""
    whole = truncated(m, x)
    return m.where(x > whole, whole + 1.0, whole)


def reversed_bits(m: Any, x: Any) -> Any:
    """The bits in the other order."""
    for count, mask in ((1, 0x55555555), (2, 0x33333333), (4, 0x0F0F0F0F), (8, 0x00FF00FF)):
        x = (m.lshr(x, count) & mask) | ((x & mask) << count)
    return m.lshr(x, 16) | (x << 16)


def leading_zeros(m: Any, x: Any) -> Any:
    """How many zeros stand before the highest set bit; -1 where there is none."""
    spread = x
    for count in (1, 2, 4, 8, 16):
        spread = spread | m.lshr(spread, count)
    return m.where(x.eq(0), m.const(-1, I32), m.const(32, I32) - population(m, spread))


def leading_signs(m: Any, x: Any) -> Any:
    """How many bits from the highest on are like it; -1 where all are."""
    return leading_zeros(m, m.where(x < 0, x ^ 0xFFFFFFFF, x))


def _trailing_zeros(m: Any, x: Any) -> Any:
    lowest = x & (m.const(0, I32) - x)
    return m.where(x.eq(0), m.const(-1, I32), population(m, lowest - 1))


def _pick(condition: str, unsigned: bool) -> OfTwo:
    def meaning(m: Any, a: Any, b: Any) -> Any:
        less = m.unsigned_less(a, b) if unsigned else a < b
        return m.where(less, a, b) if condition == "less" else m.where(less, b, a)

    return meaning


MIN_I32, MAX_I32, MIN_U32, MAX_U32 = (_pick(c, u) for u in (False, True) for c in ("less", "greater"))


def three(function: OfTwo) -> Meaning:
    """Return a choice among two as one among three."""
    return lambda m, a, b, c: function(m, function(m, a, b), c)


def median(low: OfTwo, high: OfTwo) -> Meaning:
    """Return the middle one of three."""
    return lambda m, a, b, c: low(m, high(m, low(m, a, b), c), high(m, a, b))


def population(m: Any, x: Any) -> Any:
    """How many bits are set."""
    x = x - (m.lshr(x, 1) & 0x55555555)
    x = (x & 0x33333333) + (m.lshr(x, 2) & 0x33333333)
    return m.lshr(((x + m.lshr(x, 4)) & 0x0F0F0F0F) * m.const(0x01010101, I32), 24)


def _lanes_below(half: int) -> Meaning:
    """Count the set bits of a half of a mask that stand for lanes below one's own, and add them to an operand."""

    def meaning(m: Any, mask: Any, addend: Any) -> Any:
        lane_id, all_ones = m.lane_id(), m.const(0xFFFFFFFF, I32)
        below = (m.const(1, I32) << (lane_id & 31)) - 1
        in_lower = m.unsigned_less(lane_id, 32)
        own = m.where(in_lower, below, all_ones) if half == 0 else m.where(in_lower, m.const(0, I32), below)
        return population(m, mask & own) + addend

    return meaning


def _same_permutation(m: Any, high: Any, low: Any, selector: int) -> Any:
    """Four bytes of two operands, the same ones in every lane."""
    result: Any = None
    for position in range(4):
        which = selector >> 8 * position & 0xFF
        byte = (m.lshr(high if which > 3 else low, 8 * (which & 3)) & 0xFF) << (8 * position)
        result = byte if result is None else result | byte
    return result


def _permute(m: Any, high: Any, low: Any, selector: Any) -> Any:
    """Four bytes, each picked by one of the selector: 0 to 7 of the operands, 8 to 11 a sign, 12 is 0, more ones."""
    chosen = int(selector.data.flat[0])
    if not chosen & 0xF8F8F8F8 and (selector.data == chosen).all():
        return _same_permutation(m, high, low, chosen)
    data = m.zext(low, I64) | (m.zext(high, I64) << 32)
    result = m.const(0, I32)
    for position in range(4):
        which = m.lshr(selector, 8 * position) & 0xFF
        byte = m.trunc(m.lshr(data, m.zext((which & 7) << 3, I64)), I32) & 0xFF
        sign = m.trunc(m.lshr(data, m.zext(((which & 3) << 4) + 15, I64)), I32) & 1
        special = m.where(which.eq(12), m.const(0, I32), m.const(0xFF, I32))
        special = m.where(m.unsigned_less(which, 12), m.const(0, I32) - sign & 0xFF, special)
        result = result | (m.where(m.unsigned_less(which, 8), byte, special) << (8 * position))
    return result


def _bit_field(signed: bool) -> Meaning:
    def meaning(m: Any, x: Any, offset: Any, width: Any) -> Any:
        offset, width = offset & 31, width & 31
        ones = (m.const(1, I32) << width) - 1
        field = (m.ashr(x, offset) if signed else m.lshr(x, offset)) & ones
        if not signed:
            return field
        sign = (m.const(1, I32) << width) & 0xFFFFFFFF
        half = m.lshr(sign, 1)
        return m.where(width.eq(0), m.const(0, I32), (field ^ half) - half)

    return meaning


def _add_carry(m: Any, a: Any, b: Any, carry: Any = None) -> Any:
    total = m.zext(a, I64) + m.zext(b, I64)
    total = total if carry is None else total + m.zext(carry, I64)
    return m.trunc(total, I32), m.trunc(m.lshr(total, 32), I1)


def _subtract_borrow(m: Any, a: Any, b: Any, borrow: Any = None) -> Any:
    total = m.zext(a, I64) - m.zext(b, I64)
    total = total if borrow is None else total - m.zext(borrow, I64)
    return m.trunc(total, I32), m.trunc(m.lshr(total, 32), I1)


def _mad_u64(m: Any, a: Any, b: Any, c: Any) -> Any:
    product = m.zext(a, I64) * m.zext(b, I64)
    total = product + c
    return total, m.unsigned_less(total, product)


def pair_of(m: Any, low: Any, high: Any) -> Any:
    """Two values of 16 bits in one register."""
    return m.zext(m.bits(low, I16), I32) | (m.zext(m.bits(high, I16), I32) << 16)


def _narrow_pair(to: Any) -> Meaning:
    return lambda m, a, b: pair_of(m, narrow_float(m, a, to), narrow_float(m, b, to))


def _byte_to_float(number: int) -> Meaning:
    return lambda m, x: m.to_float(m.lshr(x, 8 * number) & 0xFF, F32)


def _unsigned_to_float(m: Any, x: Any) -> Any:
    return m.convert(m.to_float(m.zext(x, I64), F64), F32)


def to_unsigned(m: Any, x: Any) -> Any:
    """A float rounded toward zero as an unsigned integer of 32 bits; it saturates, and NaN gives 0."""
    wide = m.to_int(x, I64)
    capped = m.where(wide >= 0xFFFFFFFF, m.const(0xFFFFFFFF, I64), wide)
    return m.trunc(m.where(wide < 0, m.const(0, I64), capped), I32)


def scaled_f32(m: Any, x: Any, exponent: Any) -> Any:
    """x times two to an exponent, rounded once: exact in f64, whose exponent is built from bits."""
    limited = MIN_I32(m, MAX_I32(m, exponent, m.const(-400, I32)), m.const(400, I32))
    power = m.bits((m.sext(limited, I64) + 1023) << 52, F64)
    return m.convert(m.convert(x, F64) * power, F32)


_VOP2: Final[Rows] = (
    ("v_add_f32", 1, "f32: f32 f32", lambda m, a, b: a + b),
    ("v_sub_f32", 2, "f32: f32 f32", lambda m, a, b: a - b),
    ("v_subrev_f32", 3, "f32: f32 f32", lambda m, a, b: b - a),
    ("v_mul_f32", 5, "f32: f32 f32", lambda m, a, b: a * b),
    ("v_mul_i32_i24", 6, "i32: i32 i32", lambda m, a, b: m.ashr(a << 8, 8) * m.ashr(b << 8, 8)),
    ("v_mul_u32_u24", 8, "i32: i32 i32", _mul_u24),
    ("v_min_f32", 10, "f32: f32 f32", min_f32),
    ("v_max_f32", 11, "f32: f32 f32", max_f32),
    ("v_min_i32", 12, "i32: i32 i32", MIN_I32),
    ("v_max_i32", 13, "i32: i32 i32", MAX_I32),
    ("v_min_u32", 14, "i32: i32 i32", MIN_U32),
    ("v_max_u32", 15, "i32: i32 i32", MAX_U32),
    ("v_lshrrev_b32", 16, "i32: i32 i32", lambda m, n, x: m.lshr(x, n & 31)),
    ("v_ashrrev_i32", 17, "i32: i32 i32", lambda m, n, x: m.ashr(x, n & 31)),
    ("v_lshlrev_b32", 18, "i32: i32 i32", lambda m, n, x: x << (n & 31)),
    ("v_and_b32", 19, "i32: i32 i32", lambda m, a, b: a & b),
    ("v_or_b32", 20, "i32: i32 i32", lambda m, a, b: a | b),
    ("v_xor_b32", 21, "i32: i32 i32", lambda m, a, b: a ^ b),
    ("v_add_co_u32", 25, "i32 mask: i32 i32", _add_carry),
    ("v_sub_co_u32", 26, "i32 mask: i32 i32", _subtract_borrow),
    ("v_subrev_co_u32", 27, "i32 mask: i32 i32", lambda m, a, b: _subtract_borrow(m, b, a)),
    ("v_addc_co_u32", 28, "i32 mask: i32 i32 mask", _add_carry),
    ("v_subb_co_u32", 29, "i32 mask: i32 i32 mask", _subtract_borrow),
    ("v_subbrev_co_u32", 30, "i32 mask: i32 i32 mask", lambda m, a, b, c: _subtract_borrow(m, b, a, c)),
    ("v_lshrrev_b16", 43, "i16: i16 i16", lambda m, n, x: m.lshr(x, n & 15)),
    ("v_lshlrev_b16", 42, "i16: i16 i16", lambda m, n, x: x << (n & 15)),
    ("v_add_u16", 38, "i16: i16 i16", lambda m, a, b: a + b),
    ("v_sub_u16", 39, "i16: i16 i16", lambda m, a, b: a - b),
    ("v_mul_lo_u16", 41, "i16: i16 i16", lambda m, a, b: a * b),
    ("v_add_u32", 52, "i32: i32 i32", lambda m, a, b: a + b),
    ("v_sub_u32", 53, "i32: i32 i32", lambda m, a, b: a - b),
    ("v_subrev_u32", 54, "i32: i32 i32", lambda m, a, b: b - a),
    ("v_xnor_b32", 61, "i32: i32 i32", lambda m, a, b: a ^ b ^ 0xFFFFFFFF),
)
_VOP1: Final[Rows] = (
    ("v_mov_b32", 1, "i32: i32", lambda m, x: x),
    ("v_cvt_f32_i32", 5, "f32: i32", lambda m, x: m.to_float(x, F32)),
    ("v_cvt_f32_u32", 6, "f32: i32", _unsigned_to_float),
    ("v_cvt_u32_f32", 7, "i32: f32", to_unsigned),
    ("v_cvt_i32_f32", 8, "i32: f32", lambda m, x: m.to_int(x, I32)),
    ("v_cvt_f16_f32", 10, "f16: f32", lambda m, x: narrow_float(m, x, F16)),
    ("v_cvt_f32_f16", 11, "f32: f16", widen_float),
    *((f"v_cvt_f32_ubyte{number}", 17 + number, "f32: i32", _byte_to_float(number)) for number in range(4)),
    ("v_trunc_f32", 28, "f32: f32", truncated),
    ("v_ceil_f32", 29, "f32: f32", ceiling),
    ("v_floor_f32", 31, "f32: f32", floor),
    ("v_bfrev_b32", 44, "i32: i32", reversed_bits),
    ("v_ffbh_u32", 45, "i32: i32", leading_zeros),
    ("v_ffbl_b32", 46, "i32: i32", _trailing_zeros),
    ("v_ffbh_i32", 47, "i32: i32", leading_signs),
    ("v_rndne_f32", 30, "f32: f32", lambda m, x: m.rint(x)),
    ("v_exp_f32", 32, "f32: f32", op_meaning(arithmetic.exp2)),
    ("v_log_f32", 33, "f32: f32", op_meaning(arithmetic.log2)),
    ("v_rcp_f32", 34, "f32: f32", op_meaning(arithmetic.rcp)),
    ("v_rcp_iflag_f32", 35, "f32: f32", op_meaning(arithmetic.rcp)),
    ("v_sqrt_f32", 39, "f32: f32", lambda m, x: m.sqrt(x)),
    ("v_not_b32", 43, "i32: i32", lambda m, x: x ^ 0xFFFFFFFF),
    ("v_mov_b64", 56, "i64: i64", lambda m, x: x),
)
_TRANSCENDENTAL: Final = ("v_exp_", "v_log_", "v_rcp_", "v_sqrt_")
_VOP3: Final[Rows] = (
    ("v_mad_i32_i24", 450, "i32: i32 i32 i32", lambda m, a, b, c: m.ashr(a << 8, 8) * m.ashr(b << 8, 8) + c),
    ("v_mad_u32_u24", 451, "i32: i32 i32 i32", lambda m, a, b, c: _mul_u24(m, a, b) + c),
    ("v_bfe_u32", 456, "i32: i32 i32 i32", _bit_field(signed=False)),
    ("v_bfe_i32", 457, "i32: i32 i32 i32", _bit_field(signed=True)),
    ("v_bfi_b32", 458, "i32: i32 i32 i32", lambda m, mask, a, b: (mask & a) | ((mask ^ 0xFFFFFFFF) & b)),
    ("v_fma_f32", 459, "f32: f32 f32 f32", lambda m, a, b, c: m.fma(a, b, c)),
    (
        "v_alignbit_b32",
        462,
        "i32: i32 i32 i32",
        lambda m, a, b, n: m.trunc(m.lshr((m.zext(a, I64) << 32) | m.zext(b, I64), m.zext(n & 31, I64)), I32),
    ),
    ("v_min3_f32", 464, "f32: f32 f32 f32", three(min_f32)),
    ("v_min3_i32", 465, "i32: i32 i32 i32", three(MIN_I32)),
    ("v_min3_u32", 466, "i32: i32 i32 i32", three(MIN_U32)),
    ("v_max3_f32", 467, "f32: f32 f32 f32", three(max_f32)),
    ("v_max3_i32", 468, "i32: i32 i32 i32", three(MAX_I32)),
    ("v_max3_u32", 469, "i32: i32 i32 i32", three(MAX_U32)),
    ("v_med3_f32", 470, "f32: f32 f32 f32", _median_f32),
    ("v_med3_i32", 471, "i32: i32 i32 i32", median(MAX_I32, MIN_I32)),
    ("v_med3_u32", 472, "i32: i32 i32 i32", median(MAX_U32, MIN_U32)),
    ("v_mad_u64_u32", 488, "i64 mask: i32 i32 i64", _mad_u64),
    ("v_perm_b32", 493, "i32: i32 i32 i32", _permute),
    ("v_add_lshl_u32", 510, "i32: i32 i32 i32", lambda m, a, b, n: (a + b) << (n & 31)),
    ("v_lshl_add_u32", 509, "i32: i32 i32 i32", lambda m, a, n, b: (a << (n & 31)) + b),
    ("v_add3_u32", 511, "i32: i32 i32 i32", lambda m, a, b, c: a + b + c),
    ("v_lshl_or_b32", 512, "i32: i32 i32 i32", lambda m, a, n, b: (a << (n & 31)) | b),
    ("v_and_or_b32", 513, "i32: i32 i32 i32", lambda m, a, b, c: (a & b) | c),
    ("v_or3_b32", 514, "i32: i32 i32 i32", lambda m, a, b, c: a | b | c),
    ("v_lshl_add_u64", 520, "i64: i64 i32 i64", lambda m, a, n, b: (a << m.zext(n & 7, I64)) + b),
    ("v_cvt_pk_bf16_f32", 616, "i32: f32 f32", _narrow_pair(BF16)),
    ("v_mul_lo_u32", 645, "i32: i32 i32", lambda m, a, b: a * b),
    ("v_mul_hi_u32", 646, "i32: i32 i32", _high_product(signed=False)),
    ("v_mul_hi_i32", 647, "i32: i32 i32", _high_product(signed=True)),
    ("v_ldexp_f32", 648, "f32: f32 i32", scaled_f32),
    ("v_mbcnt_lo_u32_b32", 652, "i32: i32 i32", _lanes_below(0)),
    ("v_mbcnt_hi_u32_b32", 653, "i32: i32 i32", _lanes_below(1)),
    ("v_lshlrev_b64", 655, "i64: i32 i64", lambda m, n, x: x << m.zext(n & 63, I64)),
    ("v_lshrrev_b64", 656, "i64: i32 i64", lambda m, n, x: m.lshr(x, m.zext(n & 63, I64))),
    ("v_ashrrev_i64", 657, "i64: i32 i64", lambda m, n, x: m.ashr(x, m.zext(n & 63, I64))),
    ("v_bfm_b32", 659, "i32: i32 i32", lambda m, a, b: ((m.const(1, I32) << (a & 31)) - 1) << (b & 31)),
)


def _declare_all() -> None:
    for name, opcode, types, meaning in _VOP2:
        lane(name, "VOP2", opcode, types, meaning)
    for name, opcode, types, meaning in _VOP1:
        facts = {"transcendental": name.startswith(_TRANSCENDENTAL), "moves": name.startswith("v_mov_")}
        lane(name, "VOP1", opcode, types, meaning, facts=facts)
    for name, opcode, types, meaning in _VOP3:
        lane(name, "VOP3", opcode, types, meaning, facts={"upper_half_is_carried": name == "v_mad_u64_u32"})
    lane(
        "v_cndmask_b32",
        "VOP2",
        0,
        "i32: i32 i32 mask",
        lambda m, a, b, chosen: m.where(chosen, b, a),
        facts={"selects": True},
    )
    lane("v_fmac_f32", "VOP2", 59, "f32: f32 f32 f32", lambda m, a, b, d: m.fma(a, b, d), reads_destination=True)
    for name, opcode, place in (("v_fmamk_f32", 23, 1), ("v_fmaak_f32", 24, 2)):
        found = {"literal_at": place}
        lane(name, "VOP2", opcode, "f32: f32 f32 f32", lambda m, a, b, c: m.fma(a, b, c), facts=found)
    lane("v_pk_fma_f32", "VOP3P", 48, "f32: f32 f32 f32", lambda m, a, b, c: m.fma(a, b, c), packed=True)
    lane("v_pk_mul_f32", "VOP3P", 49, "f32: f32 f32", lambda m, a, b: a * b, packed=True)
    lane("v_pk_add_f32", "VOP3P", 50, "f32: f32 f32", lambda m, a, b: a + b, packed=True)
    _declare_compares()


ORDERS: Final[dict[str, OfTwo]] = {
    "lt": lambda m, a, b: a < b,
    "eq": lambda m, a, b: a.eq(b),
    "le": lambda m, a, b: a <= b,
    "gt": lambda m, a, b: a > b,
    "ge": lambda m, a, b: a >= b,
}


def _negated(meaning: OfTwo) -> OfTwo:
    return lambda m, a, b: meaning(m, a, b).eq(m.const(0, I1))


def _differ(m: Any, a: Any, b: Any) -> Any:
    return a.ne(b)


def _either_nan(m: Any, a: Any, b: Any) -> Any:
    return m.where(a.ne(a), m.const(1, I1), b.ne(b))


def _less_or_greater(m: Any, a: Any, b: Any) -> Any:
    return m.where(a < b, m.const(1, I1), a > b)


def float_compares(type_: str, base: int, widen: Any = None) -> None:
    """Declare the comparisons of a float type, from an opcode of VOPC on; `widen` makes what the algebra compares."""
    numbers = {"lt": 1, "eq": 2, "le": 3, "gt": 4, "lg": 5, "ge": 6, "o": 7, "u": 8}
    numbers |= {"nge": 9, "nlg": 10, "ngt": 11, "nle": 12, "neq": 13, "nlt": 14}
    named = {**ORDERS, "lg": _less_or_greater, "u": _either_nan, "o": _negated(_either_nan), "neq": _differ}
    named |= {f"n{name}": _negated(named[name]) for name in ("ge", "lg", "gt", "le", "lt")}
    for name, number in numbers.items():
        meaning = named[name] if widen is None else _widened(named[name], widen)
        lane(f"v_cmp_{name}_{type_}", "VOPC", base + number, f"mask: {type_} {type_}", meaning)


def _widened(meaning: OfTwo, widen: Any) -> OfTwo:
    return lambda m, a, b: meaning(m, widen(m, a), widen(m, b))


def _declare_compares() -> None:
    float_compares("f32", 0x40)
    unsigned: dict[str, OfTwo] = {
        "lt": lambda m, a, b: m.unsigned_less(a, b),
        "gt": lambda m, a, b: m.unsigned_less(b, a),
    }
    unsigned |= {"eq": ORDERS["eq"], "le": _negated(unsigned["gt"]), "ge": _negated(unsigned["lt"]), "ne": _differ}
    signed = {**ORDERS, "ne": _differ}
    numbers = {"lt": 1, "eq": 2, "le": 3, "gt": 4, "ne": 5, "ge": 6}
    for base, letter, bits, meanings in (
        (0xC0, "i", 32, signed),
        (0xC8, "u", 32, unsigned),
        (0xE0, "i", 64, signed),
        (0xE8, "u", 64, unsigned),
    ):
        for name, number in numbers.items():
            types = f"mask: i{bits} i{bits}"
            lane(f"v_cmp_{name}_{letter}{bits}", "VOPC", base + number, types, meanings[name])


_declare_all()
