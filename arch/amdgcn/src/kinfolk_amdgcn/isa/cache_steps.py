"""Instructions about caches, as steps: there are none here, so that they only end in the order of memory accesses.

Source: LLVM, "Memory Model gfx942"; "AMD Instinct MI300 Instruction Set Architecture", MUBUF instructions.
"""

from __future__ import annotations

from typing import Final

from kinfolk_amdgcn.isa.declare import Declared, Table
from kinfolk_amdgcn.isa.step import Given, Step
from kinfolk_amdgcn.isa.waves import Outstanding, Waves

CACHE: Final = Table()


def _ordered(given: Given) -> Step:
    """Return the step of a write-back or an invalidation, which a wait for memory waits for."""

    def run(w: Waves) -> None:
        w.load(w.vector_loads, Outstanding(0))

    return given.step(run, queue="vector", unit="memory")


for _name, _opcode in (("buffer_wbl2", 40), ("buffer_inv", 41)):
    CACHE.add(Declared(name=_name, format="MUBUF", opcode=_opcode, kind="special", facts={"make": _ordered}))
