"""Operands that lanes take from other lanes of their wave on the way (DPP).

Source: "AMD Instinct MI300 Instruction Set Architecture", section "Data Parallel Processing"; a row is 16 lanes.
"""

from __future__ import annotations

import numpy as np

from kinfolk.ir.numpy_lanes import NumpyLane
from kinfolk_amdgcn.isa.fault import Stop
from kinfolk_amdgcn.isa.operands import Source
from kinfolk_amdgcn.isa.step import Given, Run
from kinfolk_amdgcn.isa.waves import LANES, Array, Waves

ROW = 16


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
    """Return an operand read from the lanes that the encoding says; 0 where a lane reads none, or one not live."""
    lanes = dpp_lanes(given.field("dpp_ctrl"))
    nobody, index = lanes < 0, np.maximum(lanes, 0)
    whole = not nobody.any()
    read = source.read

    def moved(w: Waves) -> NumpyLane:
        value = read(w)
        data = np.broadcast_to(value.data, w.live.shape)[:, index]
        if not (whole and w.live_before.all()):
            data = np.where(nobody | ~w.live_before[:, index], data.dtype.type(0), data)
        return NumpyLane(value.type, data)

    return Source(moved, source.registers)


def dpp_writes(given: Given, run: Run) -> Run:
    """Return an instruction that writes the lanes that the encoding says alone: of some rows and banks.

    A lane that reads none, or one that is not live, is not written unless the encoding bounds it.
    """
    fields = given.encoded.fields
    lane, lanes = np.arange(LANES), dpp_lanes(fields["dpp_ctrl"])
    chosen = (fields["row_mask"] >> lane // ROW & 1 & (fields["bank_mask"] >> lane % ROW // 4)).astype(np.bool_)
    nobody, index, bounded = lanes < 0, np.maximum(lanes, 0), bool(fields["bound_ctrl"])
    whole = chosen.all() and (bounded or not nobody.any())
    masks = "mask" in given.declared.results

    def some(w: Waves) -> None:
        if whole and (bounded or w.all_live):
            w.live_before = w.live
            run(w)
            return
        live, all_live = w.live, w.all_live
        written = live & chosen
        if not bounded:
            written &= ~nobody & live[:, index]
        if masks and (written != live).any():
            raise Stop("unsupported", "leaves bits of a mask of lanes as they are (DPP), which is not modelled")
        w.live_before, w.live, w.all_live = live, written, bool(written.all())
        try:
            run(w)
        finally:
            w.live, w.all_live = live, all_live

    return some
