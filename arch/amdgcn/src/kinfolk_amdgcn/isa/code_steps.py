"""Where code lies in memory: what constants of the code object are found from, as a step.

Source: "AMD Instinct MI300 Instruction Set Architecture", SOP1 instructions.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from kinfolk_amdgcn.isa.declare import Declared, Table
from kinfolk_amdgcn.isa.operands import scalar_target
from kinfolk_amdgcn.isa.step import Given, Step
from kinfolk_amdgcn.isa.waves import Waves

CODE: Final = Table()


def _place(given: Given) -> Step:
    """Return the step that gives the address of the instruction after it."""
    target, after = scalar_target(given.field("sdst"), "i64"), given.encoded.offset + 4 * given.encoded.dwords

    def run(w: Waves) -> None:
        target.write(w, np.full(w.count, w.batch.code + after, np.uint64))

    return given.step(run, writes=target.registers, unit="scalar")


CODE.add(Declared(name="s_getpc_b64", format="SOP1", opcode=28, kind="special", facts={"make": _place}))
