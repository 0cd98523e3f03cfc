"""Integer instructions that stop at the ends of their type's range where the encoding says so (CLAMP).

Source: "AMD Instinct MI300 Instruction Set Architecture", section "Output Modifiers".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from kinfolk.ir.types import I32, I64
from kinfolk_amdgcn.isa.declare import Meaning


def capped(m: Any, x: Any, low: int, high: int, signed: bool) -> Any:
    """An integer of 32 or 64 bits kept between two ends."""

    def less(a: Any, b: Any) -> Any:
        return a < b if signed else m.unsigned_less(a, b)

    above, below = m.const(high, x.type), m.const(low, x.type)
    return m.where(less(above, x), above, m.where(less(x, below), below, x))


def saturated(bits: int, signed: bool, function: Callable[..., Any]) -> Meaning:
    """Return a function of integers, computed in twice their bits and kept in the range of theirs."""
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    wide = I64 if bits == 32 else I32

    def meaning(m: Any, *operands: Any) -> Any:
        widened = [m.sext(each, wide) if signed else m.zext(each, wide) for each in operands]
        return m.trunc(capped(m, function(*widened), low, high, True), operands[0].type)

    return meaning


def _all() -> dict[str, Meaning]:
    found: dict[str, Meaning] = {}
    functions: dict[str, Callable[[Any, Any], Any]] = {
        "add": lambda a, b: a + b,
        "sub": lambda a, b: a - b,
        "subrev": lambda a, b: b - a,
    }
    for name, function in functions.items():
        for bits in (16, 32):
            for letter, signed in (("u", False), ("i", True)):
                meaning = saturated(bits, signed, function)
                found[f"v_{name}_{letter}{bits}"] = found[f"v_pk_{name}_{letter}{bits}"] = meaning
    return found


SATURATING: Final = _all()
"""What instructions mean with that bit, by name."""
