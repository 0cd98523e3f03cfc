"""Where code lies in memory: what constants of the code object are found from, calls and returns, as steps.

Source: "AMD Instinct MI300 Instruction Set Architecture", SOP1 instructions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from kinfolk_amdgcn.isa.declare import Declared, Table
from kinfolk_amdgcn.isa.fault import Stop
from kinfolk_amdgcn.isa.operands import scalar_source, scalar_target
from kinfolk_amdgcn.isa.step import Given, Step
from kinfolk_amdgcn.isa.waves import Waves

CODE: Final = Table()


def _place(given: Given) -> Step:
    """Return the step that gives the address of the instruction after it."""
    target, after = scalar_target(given.field("sdst"), "i64"), given.encoded.offset + 4 * given.encoded.dwords

    def run(w: Waves) -> None:
        target.write(w, np.full(w.count, w.batch.code + after, np.uint64))

    return given.step(run, writes=target.registers, unit="scalar")


def jump_step(given: Given, index: Mapping[int, int]) -> Step:
    """Return the step that goes on at an address and may keep that of the instruction after it.

    `index` are indices of instructions by their place from the kernel's code on.
    """
    after = given.encoded.offset + 4 * given.encoded.dwords
    kept = scalar_target(given.field("sdst"), "i64") if given.declared.facts["keeps"] else None
    near = given.encoded.format == "SOPK"
    distance = 4 * ((given.field("simm16") ^ 0x8000) - 0x8000) if near else 0
    source = None if near else scalar_source(given.field("ssrc0"), "i64")

    def run(w: Waves) -> None:
        places = [after + distance] * w.count
        if source is not None:
            places = [int(each) - w.batch.code for each in np.broadcast_to(source.read(w).data, (w.count,))]
        for wave, place in enumerate(places):
            if place not in index:
                raise Stop("memory", f"goes to {place:#x} bytes from the kernel, where no instruction begins", wave)
        w.jumps = [index[place] for place in places]
        if kept is not None:
            kept.write(w, np.full(w.count, w.batch.code + after, np.uint64))

    return given.step(
        run,
        reads=source.registers if source else 0,
        writes=kept.registers if kept else 0,
        unit="scalar",
        flow="jump",
    )


for _name, _format, _opcode, _keeps in (
    ("s_setpc_b64", "SOP1", 29, False),
    ("s_swappc_b64", "SOP1", 30, True),
    ("s_call_b64", "SOPK", 21, True),
):
    facts = {"calls": True, "keeps": _keeps}
    CODE.add(Declared(name=_name, format=_format, opcode=_opcode, kind="special", facts=facts))
CODE.add(Declared(name="s_getpc_b64", format="SOP1", opcode=28, kind="special", facts={"make": _place}))
