"""Instructions about a wave's mode and clock, as steps; the mode is the one in which every kernel here runs.

Source: "AMD Instinct MI300 Instruction Set Architecture", SOPK, SMEM and VOP1 instructions, section "MODE".
"""

from __future__ import annotations

from typing import Final

import numpy as np

from kinfolk_amdgcn.isa.declare import Declared, Table
from kinfolk_amdgcn.isa.fault import Stop
from kinfolk_amdgcn.isa.operands import scalar_mask, scalar_source, scalar_target
from kinfolk_amdgcn.isa.step import Given, Step
from kinfolk_amdgcn.isa.waves import Outstanding, Waves

MODES: Final = Table()
MODE: Final = 1
NAME: Final = "s_setreg_imm32_b32"
ROUNDING_AND_DENORMALS: Final = 0xF0
"""Bits 0 to 7 of the mode: rounding to nearest even, denormals of all types kept."""
KNOWN: Final = 8


def _part(given: Given) -> tuple[int, int]:
    """Return where the bits that are named lie, and how many; stop for others than the known ones of the mode."""
    immediate = given.field("simm16")
    register, low, count = immediate & 63, immediate >> 6 & 31, (immediate >> 11) + 1
    if register != MODE or low + count > KNOWN:
        raise Stop("unsupported", f"names bits {low} to {low + count - 1} of register {register} of the hardware")
    return low, count


def _get(given: Given) -> Step:
    low, count = _part(given)
    target = scalar_target(given.field("sdst"), "i32")
    value = ROUNDING_AND_DENORMALS >> low & (1 << count) - 1

    def run(w: Waves) -> None:
        target.write(w, np.full(w.count, value, np.uint32))

    return given.step(run, writes=target.registers, unit="scalar")


def _set(given: Given) -> Step:
    """Return the step of a change of the mode, which has to change nothing."""
    low, count = _part(given)
    wanted = ROUNDING_AND_DENORMALS >> low & (1 << count) - 1
    literal = given.encoded.literal if given.declared.name == NAME else None
    source = scalar_source(given.field("sdst"), "i32") if literal is None else None

    def run(w: Waves) -> None:
        given_ = np.uint32(literal or 0) if source is None else source.read(w).data
        if ((given_ & np.uint32((1 << count) - 1)) != wanted).any():
            raise Stop("unsupported", "changes how floats are rounded, or what becomes of denormals")

    return given.step(run, reads=source.registers if source else 0, unit="scalar")


def _clock(given: Given) -> Step:
    """Return the step that reads a clock, which counts wait states here."""
    register = given.field("sdata")
    target = scalar_target(register, "i64")

    def run(w: Waves) -> None:
        target.write(w, np.full(w.count, w.states, np.uint64))
        w.load(w.local_loads, Outstanding(scalar_mask(register, 2), scalar=True))

    return given.step(run, writes=target.registers, unit="scalar")


def _nothing(given: Given) -> Step:
    return given.step(lambda w: None, unit="scalar" if given.encoded.format == "SMEM" else "vector")


for _name, _format, _opcode, _make in (
    ("s_getreg_b32", "SOPK", 17, _get),
    ("s_setreg_b32", "SOPK", 18, _set),
    (NAME, "SOPK", 20, _set),
    ("s_memtime", "SMEM", 36, _clock),
    ("s_memrealtime", "SMEM", 37, _clock),
    ("s_dcache_inv", "SMEM", 32, _nothing),
    ("s_dcache_wb", "SMEM", 33, _nothing),
    ("v_nop", "VOP1", 0, _nothing),
):
    MODES.add(Declared(name=_name, format=_format, opcode=_opcode, kind="special", facts={"make": _make}))
