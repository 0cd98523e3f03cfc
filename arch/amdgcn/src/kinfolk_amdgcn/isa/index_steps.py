"""Vector registers found by a number in M0: how compilers reach an element of an array that they keep in registers.

Source: "AMD Instinct MI300 Instruction Set Architecture", section "VGPR Indexing". The mode is followed down the code
as it stands: it is on from an `s_set_gpr_idx_on` to the next `s_set_gpr_idx_off`; between, only moves are modelled.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from kinfolk_amdgcn.isa.declare import Declared, Table
from kinfolk_amdgcn.isa.fault import Stop
from kinfolk_amdgcn.isa.operands import EXEC_MASK, FIRST_VECTOR, rows_mask, scalar_mask, scalar_source, vector_source
from kinfolk_amdgcn.isa.step import Given, Step
from kinfolk_amdgcn.isa.waves import M0, Array, Waves

INDEX: Final = Table()
SOURCE, DESTINATION = 1, 8
"""Bits of the mode: the first operand, and the result, are that of M0's number further on."""
_NUMBER, _MODE_AT, _OTHERS = np.uint32(0xFF), 12, np.uint32(0xFFFF0FFF)
MOVE: Final = "v_mov_b32"


def mode_after(given: Given, mode: int) -> int:
    """Return what is found by number after an instruction, in whose place `mode` is."""
    facts = given.declared.facts
    if "mode" not in facts:
        return mode
    return facts["mode"](given) if facts["mode"] else 0


def _put(w: Waves, number: Any, kept: np.uint32, mode: int | None) -> None:
    bits = w.s[:, M0] & kept | np.asarray(number, np.uint32) & _NUMBER
    w.s[:, M0] = bits if mode is None else bits & _OTHERS | np.uint32(mode << _MODE_AT)


def _on(given: Given) -> Step:
    source, mode = scalar_source(given.field("ssrc0"), "i32", given.encoded.literal), given.field("ssrc1") & 15

    def run(w: Waves) -> None:
        _put(w, source.read(w).data, ~_NUMBER, mode)

    return given.step(run, reads=source.registers, writes=scalar_mask(M0), unit="scalar")


def _number(given: Given) -> Step:
    source = scalar_source(given.field("ssrc0"), "i32", given.encoded.literal)

    def run(w: Waves) -> None:
        _put(w, source.read(w).data, ~_NUMBER, None)

    return given.step(run, reads=source.registers, writes=scalar_mask(M0), unit="scalar")


def _mode(given: Given) -> Step:
    mode = given.field("simm16") & 15

    def run(w: Waves) -> None:
        _put(w, w.s[:, M0], ~_NUMBER, mode)

    return given.step(run, writes=scalar_mask(M0), unit="scalar")


def _off(given: Given) -> Step:
    return given.step(lambda w: None, unit="scalar")


def indexed_step(given: Given, mode: int) -> Step:
    """Return the step of a move whose source, or destination, is M0's number of registers further on."""
    if given.declared.name != MOVE or given.encoded.modifier or mode & ~(SOURCE | DESTINATION):
        raise Stop(
            "unsupported", "stands where vector registers are found by number, which is modelled for moves alone"
        )
    code = given.field("src0")
    by_source, by_target = mode & SOURCE and code >= FIRST_VECTOR, mode & DESTINATION
    source = vector_source(code, "i32", given.registers, given.encoded.literal)
    first = given.registers.row(code - FIRST_VECTOR, False) if by_source else -1
    row, most = given.registers.row(given.field("vdst"), False), given.registers.vectors

    def rows(w: Waves, start: int, touched: str) -> Array:
        found = start + (w.s[:, M0] & _NUMBER).astype(np.int64)
        if (found >= most).any():
            wave = int(np.argmax(found >= most))
            raise Stop("memory", f"{touched} v{int(found[wave])}, the kernel has {most} such registers", wave)
        for each in np.unique(found):
            if w.pending >> int(each) & 1:
                raise Stop("outstanding", f"{touched} v{int(each)}, which a load is still writing")
        return found

    def run(w: Waves) -> None:
        waves = np.arange(w.count)
        if by_source:
            data = w.v[rows(w, first, "reads"), waves]
        else:
            data = np.broadcast_to(source.read(w).data, w.live.shape)
        if not by_target:
            w.put(row, data)
            return
        found = rows(w, row, "writes")
        w.v[found, waves] = np.where(w.live, data, w.v[found, waves])
        w.leave_undefined([m & ~(1 << int(at)) for m, at in zip(w.undefined_now(), found, strict=True)])

    def leaves(w: Waves) -> list[int]:
        """Say what a move carries that nothing has written."""
        found = first + (w.s[:, M0] & _NUMBER).astype(np.int64)
        masks = zip(w.undefined_now(), found, strict=True)
        return [rows_mask(row) if mask >> int(at) & 1 else 0 for mask, at in masks]

    carried = by_source and not by_target
    reads = EXEC_MASK | scalar_mask(M0) | (0 if by_source else source.registers)
    writes = 0 if by_target else rows_mask(row)
    return given.step(run, reads=reads, writes=writes, lanes=True, unit="vector", leaves=leaves if carried else None)


def _mode_of(given: Given) -> int:
    return given.field("ssrc1" if given.encoded.format == "SOPC" else "simm16") & 15


for _name, _format, _opcode, _make, _after in (
    ("s_set_gpr_idx_on", "SOPC", 17, _on, _mode_of),
    ("s_set_gpr_idx_off", "SOPP", 28, _off, None),
    ("s_set_gpr_idx_mode", "SOPP", 29, _mode, _mode_of),
):
    facts = {"make": _make, "mode": _after}
    INDEX.add(Declared(name=_name, format=_format, opcode=_opcode, kind="special", facts=facts))
INDEX.add(Declared(name="s_set_gpr_idx_idx", format="SOP1", opcode=50, kind="special", facts={"make": _number}))
