"""Parts of registers as operands and results (SDWA): bytes and halves, with or without their sign.

Source: "AMD Instinct MI300 Instruction Set Architecture", section "Sub-Dword Addressing".
"""

from __future__ import annotations

from typing import Final

import numpy as np

from kinfolk.ir.numpy_lanes import NumpyLane
from kinfolk_amdgcn.isa.declare import TYPES
from kinfolk_amdgcn.isa.fault import Stop
from kinfolk_amdgcn.isa.operands import FIRST_VECTOR, Source, Target, rows_mask, vector_source
from kinfolk_amdgcn.isa.step import Given
from kinfolk_amdgcn.isa.waves import Array, Waves

WHOLE: Final = 6
PARTS: Final = {0: (0, 8), 1: (8, 8), 2: (16, 8), 3: (24, 8), 4: (0, 16), 5: (16, 16), WHOLE: (0, 32)}
"""The lowest bit and the width of each selection."""
FILL_ZERO, FILL_SIGN, PRESERVE = 0, 1, 2


def selected_source(given: Given, number: int, name: str) -> Source:
    """Return operand 0 or 1 as the part of a register that the encoding selects."""
    fields = given.encoded.fields
    code = fields["src0"] if number == 0 else fields["vsrc1"]
    if number == 1 and not fields["src1_scalar"]:
        code += FIRST_VECTOR
    source = vector_source(code, "i32", given.registers)
    type_, selection, extend = TYPES[name], fields[f"src{number}_sel"], bool(fields[f"src{number}_sext"])
    if selection not in PARTS or type_.bits > 32:
        raise Stop("unsupported", "selects a part of a register in a way that is not modelled")
    low, width = PARTS[selection]
    read = source.read

    def part(w: Waves) -> NumpyLane:
        data = read(w).data
        if extend:
            moved = (data << np.uint32(32 - width - low)).view(np.int32) >> np.int32(32 - width)
            data = moved.view(np.uint32)
        elif width < 32:
            data = data >> np.uint32(low) & np.uint32((1 << width) - 1)
        if type_.bits == 16:
            return NumpyLane(type_, data.astype(np.uint16))
        return NumpyLane(type_, data.view(np.float32) if type_.name == "f32" else data)

    return Source(part, source.registers)


def selected_target(given: Given, row: int) -> tuple[Target, int]:
    """Return how a result is written to a part of a register, and a mask of the registers that are read for it."""
    fields = given.encoded.fields
    selection, unused = fields["dst_sel"], fields["dst_unused"]
    if selection not in PARTS or unused > PRESERVE:
        raise Stop("unsupported", "writes a part of a register in a way that is not modelled")
    low, width = PARTS[selection]
    mask = np.uint32((1 << width) - 1 << low)

    def write(w: Waves, data: Array) -> None:
        bits = data.view(np.uint32) if data.dtype.itemsize == 4 else data.astype(np.uint32)
        placed = bits << np.uint32(low) & mask
        if unused == PRESERVE:
            placed = placed | w.v[row] & ~mask
        elif unused == FILL_SIGN and width < 32:
            signed = (placed << np.uint32(32 - width - low)).view(np.int32) >> np.int32(32 - width)
            placed = signed.view(np.uint32) << np.uint32(low)
        w.put(row, placed)

    return Target(write, rows_mask(row)), rows_mask(row) if unused == PRESERVE and width < 32 else 0
