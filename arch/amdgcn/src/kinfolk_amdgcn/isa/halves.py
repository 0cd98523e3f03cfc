"""Vector instructions on 16 bits: integers, alone and two to a register, with what widens and packs them.

Source: "AMD Instinct MI300 Instruction Set Architecture", VOP2, VOPC, VOP3 and VOP3P instructions; oracle: AMD's
pseudo-code of each, in tests. A result of 16 bits leaves 0 in the upper half of its register.
"""

from __future__ import annotations

from typing import Any, Final

from kinfolk.ir.ops.convert import narrow_float
from kinfolk.ir.types import F16, I1
from kinfolk_amdgcn.isa.declare import OfTwo
from kinfolk_amdgcn.isa.vector_alu import MAX_I32, MAX_U32, MIN_I32, MIN_U32, lane, pair_of

MAXIMA: Final[tuple[tuple[str, OfTwo], ...]] = (
    ("max_u16", MAX_U32),
    ("max_i16", MAX_I32),
    ("min_u16", MIN_U32),
    ("min_i16", MIN_I32),
)
"""The same functions as of 32 bits: the algebra reads a sign by the type."""


def _narrow_two(m: Any, a: Any, b: Any) -> Any:
    return pair_of(m, narrow_float(m, a, F16), narrow_float(m, b, F16))


def _negated(meaning: OfTwo) -> OfTwo:
    return lambda m, a, b: meaning(m, a, b).eq(m.const(0, I1))


def _declare_all() -> None:
    lane("v_ashrrev_i16", "VOP2", 44, "i16: i16 i16", lambda m, n, x: m.ashr(x, n & 15))
    lane("v_subrev_u16", "VOP2", 40, "i16: i16 i16", lambda m, a, b: b - a)
    for number, (name, meaning) in enumerate(MAXIMA):
        lane(f"v_{name}", "VOP2", 47 + number, "i16: i16 i16", meaning)
    lane("v_pack_b32_f16", "VOP3", 672, "i32: f16 f16", pair_of)
    lane("v_cvt_pk_f16_f32", "VOP3", 615, "i32: f32 f32", _narrow_two)
    packed: tuple[tuple[str, int, OfTwo], ...] = (
        ("mul_lo_u16", 1, lambda m, a, b: a * b),
        ("add_i16", 2, lambda m, a, b: a + b),
        ("sub_i16", 3, lambda m, a, b: a - b),
        ("lshlrev_b16", 4, lambda m, n, x: x << (n & 15)),
        ("lshrrev_b16", 5, lambda m, n, x: m.lshr(x, n & 15)),
        ("ashrrev_i16", 6, lambda m, n, x: m.ashr(x, n & 15)),
        ("max_i16", 7, MAX_I32),
        ("min_i16", 8, MIN_I32),
        ("add_u16", 10, lambda m, a, b: a + b),
        ("sub_u16", 11, lambda m, a, b: a - b),
        ("max_u16", 12, MAX_U32),
        ("min_u16", 13, MIN_U32),
    )
    for name, opcode, meaning in packed:
        lane(f"v_pk_{name}", "VOP3P", opcode, "i16: i16 i16", meaning, packed=True)
    less: dict[str, OfTwo] = {"i": lambda m, a, b: a < b, "u": lambda m, a, b: m.unsigned_less(a, b)}
    for base, letter in ((0xA0, "i"), (0xA8, "u")):
        lower = less[letter]

        def greater(m: Any, a: Any, b: Any, lower: OfTwo = lower) -> Any:
            return lower(m, b, a)

        meanings: dict[str, OfTwo] = {
            "lt": lower,
            "eq": lambda m, a, b: a.eq(b),
            "le": _negated(greater),
            "gt": greater,
            "ne": lambda m, a, b: a.ne(b),
            "ge": _negated(lower),
        }
        for number, (name, meaning) in enumerate(meanings.items()):
            lane(f"v_cmp_{name}_{letter}16", "VOPC", base + 1 + number, "mask: i16 i16", meaning)


_declare_all()
