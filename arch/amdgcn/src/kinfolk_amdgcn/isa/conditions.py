"""Comparisons that are always or never true, and those that also decide which lanes live.

Source: "AMD Instinct MI300 Instruction Set Architecture", VOPC instructions. The module takes what other modules
declare: it comes after them.
"""

from __future__ import annotations

from typing import Any

import attrs

from kinfolk.ir.types import I1
from kinfolk_amdgcn.isa import floats, half_floats, halves
from kinfolk_amdgcn.isa.declare import Meaning
from kinfolk_amdgcn.isa.vector_alu import VECTOR, lane

AFTER = (floats, half_floats, halves)
"""What has to be declared before."""


def _constant(value: int) -> Meaning:
    def meaning(m: Any, a: Any, b: Any) -> Any:
        return m.where(a.eq(a), m.const(value, I1), m.const(value, I1))

    return meaning


def _declare_all() -> None:
    for base, type_ in ((0x20, "f16"), (0x40, "f32"), (0x60, "f64")):
        for number, name in ((0, "f"), (15, "tru")):
            lane(f"v_cmp_{name}_{type_}", "VOPC", base + number, f"mask: {type_} {type_}", _constant(number // 15))
    for base, bits in ((0xA0, 16), (0xC0, 32), (0xE0, 64)):
        for more, letter in enumerate("iu"):
            for number, name in ((0, "f"), (7, "t")):
                types = f"mask: i{bits} i{bits}"
                lane(f"v_cmp_{name}_{letter}{bits}", "VOPC", base + 8 * more + number, types, _constant(number // 7))
    for row in [row for row in VECTOR if row.format == "VOPC"]:
        opcode = row.opcode + (1 if "class" in row.name else 16)
        name = row.name.replace("v_cmp_", "v_cmpx_")
        VECTOR.add(attrs.evolve(row, name=name, opcode=opcode, facts={**row.facts, "writes_exec": True}))


_declare_all()
