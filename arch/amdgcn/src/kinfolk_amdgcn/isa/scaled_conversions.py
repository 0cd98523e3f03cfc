"""Vector instructions of CDNA4 that widen floats of 4 and 8 bits and scale them by a power of two, as steps.

The scale is the exponent of an f32, whatever its fraction. Source: "AMD Instinct CDNA4 Instruction Set Architecture",
VOP3 instructions. Those that narrow are not here: the text does not say how they treat what is too large.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import ml_dtypes
import numpy as np

from kinfolk_amdgcn.isa.declare import Declared, Table
from kinfolk_amdgcn.isa.elements import elements
from kinfolk_amdgcn.isa.fault import Stop
from kinfolk_amdgcn.isa.operands import EXEC_MASK, rows_mask, vector_source
from kinfolk_amdgcn.isa.step import Given, Step
from kinfolk_amdgcn.isa.waves import Array, Waves

SCALED: Final = Table()
BIAS: Final = 127
_RESULT: Final[dict[str, Any]] = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}


def _widening(element: str, to: str, count: int) -> Callable[[Given], Step]:
    """Return what widens one element or two neighbours, of the part of a register that the encoding selects."""
    part_bits = count * (4 if element == "fp4" else 8)

    def make(given: Given) -> Step:
        if given.field("neg") or given.field("abs") or given.field("clamp") or given.field("omod"):
            raise Stop("unsupported", "is modified in a way that is not modelled")
        halves = given.field("opsel")
        low = part_bits * (halves & (1 if part_bits == 16 else 3))
        upper = halves >> 3 if to == "f16" and count == 1 else 0
        source, scale = (vector_source(given.field(f"src{n}"), "i32", given.registers) for n in (0, 1))
        width = 2 if count == 2 and to == "f32" else 1
        row = given.registers.row(given.field("vdst"), False, width)

        def run(w: Waves) -> None:
            shape = w.live.shape
            bits = np.broadcast_to(source.read(w).data, shape) >> np.uint32(low)
            exponent = np.broadcast_to(scale.read(w).data, shape) >> np.uint32(23) & np.uint32(0xFF)
            held = np.ascontiguousarray(bits)[..., None].view(np.uint8)
            numbers = elements(np.ascontiguousarray(held), element, given.float8)[..., :count]
            wide: Any = np.ldexp(numbers, exponent.astype(np.int32)[..., None] - BIAS).astype(_RESULT[to])
            _put(w, row, wide, width, upper)

        reads = source.registers | scale.registers | EXEC_MASK
        return given.step(run, reads=reads, writes=rows_mask(row, width), lanes=True, unit="vector")

    return make


def _put(w: Waves, row: int, wide: Array, width: int, upper: int) -> None:
    """Write one element or two [waves, lanes, elements]; one of 16 bits to a half, of which the other stays."""
    if wide.dtype.itemsize == 4:
        for number in range(width):
            w.put(row + number, np.ascontiguousarray(wide[..., number]).view(np.uint32))
    elif wide.shape[-1] == 2:
        w.put(row, np.ascontiguousarray(wide).view(np.uint32)[..., 0])
    else:
        bits = np.ascontiguousarray(wide[..., 0]).view(np.uint16).astype(np.uint32)
        w.put(row, bits << np.uint32(16 * upper) | w.v[row] & np.uint32(0xFFFF0000 >> 16 * upper))


for _opcode, _to, _element, _count in (
    *((569, "f32", "fp8", 2), (570, "f32", "bf8", 2), (571, "f32", "fp8", 1), (572, "f32", "bf8", 1)),
    *((575, "f32", "fp4", 2), (584, "f16", "fp8", 2), (585, "f16", "bf8", 2), (586, "f16", "fp8", 1)),
    *((587, "f16", "bf8", 1), (592, "f16", "fp4", 2), (593, "bf16", "fp4", 2), (617, "bf16", "fp8", 2)),
    (618, "bf16", "bf8", 2),
):
    _name = f"v_cvt_scalef32_{'pk_' if _count > 1 else ''}{_to}_{_element}"
    _facts = {"make": _widening(_element, _to, _count)}
    SCALED.add(Declared(name=_name, format="VOP3", opcode=_opcode, kind="special", facts=_facts))
