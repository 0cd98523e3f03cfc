"""Operands that lanes take from other lanes of their wave on the way (DPP).

Source: "AMD Instinct MI300 Instruction Set Architecture", section "Data Parallel Processing"; a row is 16 lanes.
"""

from __future__ import annotations

import numpy as np

from kinfolk.ir.numpy_lanes import NumpyLane
from kinfolk_amdgcn.isa.fault import Stop
from kinfolk_amdgcn.isa.operands import Source
from kinfolk_amdgcn.isa.step import Given
from kinfolk_amdgcn.isa.waves import LANES, Array, Waves

ROW = 16
ALL_ROWS = ALL_BANKS = 0b1111


def dpp_lanes(control: int) -> Array:
    """Return which lane each lane reads, -1 where there is none; stop for a control that is not declared."""
    lane = np.arange(LANES)
    row, place = lane // ROW * ROW, lane % ROW
    if control <= 0xFF:
        return lane // 4 * 4 + (control >> 2 * (lane % 4) & 3)
    if 0x101 <= control <= 0x10F:
        return np.where(place + control - 0x100 < ROW, lane + control - 0x100, -1)
    if 0x111 <= control <= 0x11F:
        return np.where(place - (control - 0x110) >= 0, lane - (control - 0x110), -1)
    if 0x121 <= control <= 0x12F:
        return row + (place - (control - 0x120)) % ROW
    if 0x150 <= control <= 0x15F:
        return row + control - 0x150
    simple = {
        0x130: np.where(lane + 1 < LANES, lane + 1, -1),
        0x134: (lane + 1) % LANES,
        0x138: lane - 1,
        0x13C: (lane - 1) % LANES,
        0x140: row + ROW - 1 - place,
        0x141: lane // 8 * 8 + 7 - lane % 8,
        0x142: np.where(row > 0, row - 1, -1),
        0x143: np.where(lane >= LANES // 2, LANES // 2 - 1, -1),
    }
    if control not in simple:
        raise Stop("unsupported", f"has the DPP control {control:#x}, which is not modelled")
    return simple[control]


def dpp_source(source: Source, given: Given) -> Source:
    """Return an operand read from the lanes that the encoding says.

    A lane that reads none, or one that is not live, gets 0 where the encoding bounds it; else its result would not be
    written, which is modelled as the instruction's stop.
    """
    fields = given.encoded.fields
    lanes = dpp_lanes(fields["dpp_ctrl"])
    if fields["row_mask"] != ALL_ROWS or fields["bank_mask"] != ALL_BANKS:
        raise Stop("unsupported", "writes only some rows or banks of lanes (DPP), which is not modelled")
    nobody, index, bounded = lanes < 0, np.maximum(lanes, 0), bool(fields["bound_ctrl"])
    read = source.read

    def moved(w: Waves) -> NumpyLane:
        value = read(w)
        data = np.broadcast_to(value.data, w.live.shape)[:, index]
        missing = nobody | ~w.live[:, index]
        if missing.any():
            if not bounded and (missing & w.live).any():
                raise Stop("unsupported", "reads lanes that are not live without a bound (DPP), which is not modelled")
            data = np.where(missing, data.dtype.type(0), data)
        return NumpyLane(value.type, data)

    return Source(moved, source.registers)
