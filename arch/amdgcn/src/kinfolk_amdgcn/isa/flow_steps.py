"""Instructions that say where waves go and what they wait for, as steps.

Source: "AMD Instinct MI300 Instruction Set Architecture", SOPP instructions and section "Data Dependency Resolution".
Accesses to memory end in the order in which they began, and so do those of workgroup memory; scalar loads in no order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from kinfolk_amdgcn.isa.declare import Declared, Table
from kinfolk_amdgcn.isa.operands import scalar_mask
from kinfolk_amdgcn.isa.step import Flow, Given, Step
from kinfolk_amdgcn.isa.waves import CONDITION, EXEC, VCC, Array, Waves

FLOW: Final = Table()
VECTOR_MOST, LOCAL_MOST = 63, 15
"""What the counts of a wait say where it waits for none of a kind."""


def _declare_all() -> None:
    def add(name: str, opcode: int, **facts: Any) -> None:
        FLOW.add(Declared(name=name, format="SOPP", opcode=opcode, kind="flow", facts=facts))

    add("s_nop", 0, idles=True)
    add("s_endpgm", 1, flow="end")
    add("s_branch", 2, flow="branch")
    for number, (name, register, reads) in enumerate(
        (("scc", None, CONDITION), ("vcc", VCC, scalar_mask(VCC, 2)), ("exec", EXEC, scalar_mask(EXEC, 2)))
    ):
        zero, one = ("0", "1") if register is None else ("z", "nz")
        add(f"s_cbranch_{name}{zero}", 4 + 2 * number, flow="branch", taken=_zero(register, True), reads=reads)
        add(f"s_cbranch_{name}{one}", 5 + 2 * number, flow="branch", taken=_zero(register, False), reads=reads)
    add("s_barrier", 10, flow="barrier")
    add("s_waitcnt", 12, waits=True)
    for name, opcode in (("s_sleep", 14), ("s_setprio", 15), ("s_icache_inv", 19)):
        add(name, opcode)


def _zero(register: int | None, wanted: bool) -> Callable[[Waves], Array]:
    if register is None:
        return lambda w: w.scc != wanted
    half = register // 2
    return lambda w: (w.s64[:, half] == 0) == wanted


def flow_step(given: Given, index_of: Callable[[int], int]) -> Step:
    """Return the step of an instruction of the program's flow; `index_of` an offset in the code is an instruction's."""
    facts, immediate = given.declared.facts, given.field("simm16")
    flow: Flow = facts.get("flow", "")
    target = -1
    if flow == "branch":
        target = index_of(given.encoded.offset + 4 + 4 * ((immediate ^ 0x8000) - 0x8000))
    return given.step(
        _wait(immediate) if facts.get("waits") else _nothing,
        reads=facts.get("reads", 0),
        flow=flow,
        target=target,
        taken=facts.get("taken"),
        states=(immediate & 15) + 1 if facts.get("idles") else 1,
        waits=counts_of_wait(immediate) if facts.get("waits") else None,
    )


def _nothing(w: Waves) -> None:
    pass


def counts_of_wait(immediate: int) -> tuple[int, int]:
    """Return how many accesses to memory, and to workgroup memory with scalar loads, may stay on their way."""
    return immediate & 15 | immediate >> 14 << 4, immediate >> 8 & 15


def wait_text(waits: tuple[int, int]) -> str:
    """Return the counts of a wait as assembly writes them; nothing for one that waits for nothing."""
    vector, local = waits
    named = (("vmcnt", vector, VECTOR_MOST), ("lgkmcnt", local, LOCAL_MOST))
    return " ".join(f"{name}({count})" for name, count, most in named if count < most)


def _wait(immediate: int) -> Callable[[Waves], None]:
    vector, local = counts_of_wait(immediate)

    def run(w: Waves) -> None:
        if vector < VECTOR_MOST:
            while len(w.vector_loads) > vector:
                w.arrived(w.vector_loads, w.vector_loads[0])
        if local < LOCAL_MOST:
            ordered = [access for access in w.local_loads if not access.scalar]
            over = ordered[: max(0, len(ordered) - local)]
            for access in [*over, *(each for each in w.local_loads if each.scalar and local == 0)]:
                w.arrived(w.local_loads, access)

    return run


_declare_all()
