"""Atomic instructions of workgroup memory, with and without the value before, as steps.

Source: "AMD Instinct MI300 Instruction Set Architecture", DS instructions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from kinfolk_amdgcn.isa.atomics import CHANGES, OPERANDS, turns
from kinfolk_amdgcn.isa.declare import Declared
from kinfolk_amdgcn.isa.local_steps import LOCAL, aligned, local_offsets, local_row, unit_step
from kinfolk_amdgcn.isa.operands import rows_mask
from kinfolk_amdgcn.isa.step import Given, Step
from kinfolk_amdgcn.isa.waves import Array, Outstanding, Waves

_INTEGERS: Final = (
    *(("add_u", "add"), ("sub_u", "sub"), ("rsub_u", "rsub"), ("inc_u", "inc"), ("dec_u", "dec"), ("min_i", "smin")),
    *(("max_i", "smax"), ("min_u", "umin"), ("max_u", "umax"), ("and_b", "and"), ("or_b", "or"), ("xor_b", "xor")),
    ("mskor_b", "mskor"),
)
"""Names without their bits and changes, in the order of opcodes from 0, returning from 32, of 64 bits from 64 on."""
_OTHERS: Final = (
    *((16, "cmpst_b", "cmpswap"), (17, "cmpst_f", "cmpswap_f"), (18, "min_f", "min_f"), (19, "max_f", "max_f")),
)


def _declare_all() -> None:
    def add(name: str, opcode: int, change: str, size: int, returns: bool = False, **facts: Any) -> None:
        facts |= {"action": _atomic, "change": change, "size": size, "returns": returns}
        LOCAL.add(Declared(name=f"ds_{name}", format="DS", opcode=opcode, kind="local", facts=facts))

    for bits, base in ((32, 0), (64, 64)):
        rows = [(number, name, change) for number, (name, change) in enumerate(_INTEGERS)] + list(_OTHERS)
        for number, name, change in rows:
            add(f"{name}{bits}", base + number, change, bits // 8)
            verb, letter = name.rsplit("_", 1)
            add(f"{verb}_rtn_{letter}{bits}", base + 32 + number, change, bits // 8, returns=True)
        add(f"wrxchg_rtn_b{bits}", base + 45, "swap", bits // 8, returns=True)
        add(f"wrxchg2_rtn_b{bits}", base + 46, "swap", bits // 8, returns=True, scale=bits // 8)
        add(f"wrxchg2st64_rtn_b{bits}", base + 47, "swap", bits // 8, returns=True, scale=8 * bits)
    add("add_f32", 21, "add_f", 4)
    add("pk_add_f16", 23, "pk_add_f16", 4)
    add("pk_add_bf16", 24, "pk_add_bf16", 4)
    add("wrap_rtn_b32", 52, "wrap", 4, returns=True)
    add("add_rtn_f32", 53, "add_f", 4, returns=True)
    add("add_f64", 92, "add_f", 8)
    add("add_rtn_f64", 124, "add_f", 8, returns=True)
    add("pk_add_rtn_f16", 183, "pk_add_f16", 4, returns=True)
    add("pk_add_rtn_bf16", 184, "pk_add_bf16", 4, returns=True)


def _atomic(given: Given) -> Step:
    facts = given.declared.facts
    size, returns, offsets = facts["size"], bool(facts["returns"]), local_offsets(given)
    width = size // 4
    change: Callable[..., Array] = CHANGES[facts["change"]]
    count = OPERANDS.get(facts["change"], 1)
    address = given.registers.row(given.field("vaddr"), False)
    rows = [local_row(given, f"data{number}", width) for number in range(max(count, len(offsets)))]
    result = local_row(given, "vdst", width * len(offsets)) if returns else 0
    registers = rows_mask(result, width * len(offsets)) if returns else 0
    reads = rows_mask(address)
    for row in rows:
        reads |= rows_mask(row, width)

    def run(w: Waves) -> None:
        local, seen = w.batch.local, list[Array]()
        memory = local.bytes.view(f"u{size}")
        held = [values_of(w, row, width) for row in rows]
        for number, offset in enumerate(offsets):
            places, units = local.reached(w, address, offset, size, aligned(size))
            local.check_atomic(w, units)
            local.mark_atomic(w, units)
            seen.append(units)
            live = places >= 0
            at = places[live] // size
            operands = [each[live] for each in (held if len(offsets) == 1 else held[number : number + 1])]
            before = np.empty(len(at), memory.dtype)
            for turn in turns(at):
                before[turn] = memory[at[turn]]
                memory[at[turn]] = change(before[turn], *[each[turn] for each in operands])
            if returns:
                put_values(w, result + number * width, width, live, before)
        w.load(w.local_loads, Outstanding(registers, writes=np.concatenate(seen, axis=-1), atomic=True))

    return unit_step(given, run, reads, registers)


def values_of(w: Waves, row: int, width: int) -> Array:
    """Return what one register or a pair of lanes holds as unsigned integers."""
    low = w.v[row]
    return low if width == 1 else low.astype(np.uint64) | w.v[row + 1].astype(np.uint64) << np.uint64(32)


def put_values(w: Waves, row: int, width: int, live: Array, values: Array) -> None:
    """Write unsigned integers to one register or a pair, of some lanes in their order."""
    w.v[row][live] = values.astype(np.uint32)
    if width > 1:
        w.v[row + 1][live] = (values >> np.uint64(32)).astype(np.uint32)


_declare_all()
