"""What registers hold when waves begin, and what registers are called."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from kinfolk_amdgcn.isa.hidden import packet_place
from kinfolk_amdgcn.isa.operands import RegisterFile
from kinfolk_amdgcn.isa.waves import CONDITION, EXEC, LANES, M0, SCALAR_BIT, SCALARS, VCC, Array, Waves

if TYPE_CHECKING:
    from kinfolk_amdgcn.isa.engine import Launch


def initial_registers(launch: Launch, w: Waves, places: Array) -> None:
    """Set what a launch sets: the argument block's address, preloaded arguments, workgroup and item numbers, EXEC."""
    kernel, at = launch.kernel, 0
    defined = 0
    packet = launch.arguments + packet_place(kernel.metadata.kernarg_segment_size)
    pointers = {"kernarg_ptr": launch.arguments, "dispatch_ptr": packet, "queue_ptr": 0, "dispatch_id": 0}
    for name, count in kernel.user:
        if name in pointers:
            w.s[:, at : at + 2] = np.array([pointers[name]], np.uint64).view(np.uint32)
            defined |= 0b11 << SCALAR_BIT + at
        at += count
    offset, count = kernel.preload
    if count:
        addresses = launch.arguments + 4 * offset + 4 * np.arange(count)
        w.s[:, at : at + count] = launch.memory.read(addresses.astype(np.uint64), 4)
        defined |= (1 << count) - 1 << SCALAR_BIT + at
        at += count
    for axis in kernel.axes:
        w.s[:, at] = places[w.group, axis]
        defined |= 1 << SCALAR_BIT + at
        at += 1
    item = w.number[:, None] * LANES + np.arange(LANES)
    width, height, _ = launch.shape.block
    numbers = (item % width, item // width % height, item // (width * height))
    w.v[0] = sum(number << 10 * axis for axis, number in enumerate(numbers[: kernel.item_axes]))
    live = item < launch.items
    w.s[:, EXEC : EXEC + 2] = np.packbits(live, axis=1, bitorder="little").view(np.uint32)
    w.exec_written()
    defined |= 0b11 << SCALAR_BIT + EXEC
    everything = (1 << launch.program.registers.rows) - 1 | (1 << SCALARS) - 1 << SCALAR_BIT | CONDITION
    w.leave_undefined([everything & ~(defined | 1)] * w.count)


def register_names(mask: int, registers: RegisterFile) -> str:
    """Return the first few registers of a mask by name."""
    found: list[str] = []
    while mask and len(found) < 4:
        bit = (mask & -mask).bit_length() - 1
        mask &= mask - 1
        kind, number = _register(bit, registers)
        found.append(_NAMED.get(number, f"s{number}") if kind == "s" else f"{kind}{number}")
    return ", ".join(found) + (", ..." if mask else "")


def register_ranges(mask: int, registers: RegisterFile) -> str:
    """Return the registers of a mask as assembly writes them, `v[0:3]`, but for EXEC and the condition bit."""
    found: list[str] = []
    while mask:
        bit = (mask & -mask).bit_length() - 1
        kind, first = _register(bit, registers)
        many = 1
        while mask >> bit + many & 1 and _register(bit + many, registers) == (kind, first + many):
            many += 1
        mask &= ~((1 << many) - 1 << bit)
        if kind == "s" and first >= VCC:
            found += [name for each in range(first, first + many) if (name := _WHOLE.get(each, f"s{each}"))]
        else:
            found.append(f"{kind}{first}" if many == 1 else f"{kind}[{first}:{first + many - 1}]")
    return ", ".join(found)


def _register(bit: int, registers: RegisterFile) -> tuple[str, int]:
    if bit >= SCALAR_BIT:
        return "s", bit - SCALAR_BIT
    return ("a", bit - registers.vectors) if bit >= registers.vectors else ("v", bit)


_NAMED: Final = {VCC: "vcc_lo", VCC + 1: "vcc_hi", M0: "m0", EXEC: "exec_lo", EXEC + 1: "exec_hi", SCALARS: "scc"}
_WHOLE: Final = {M0: "m0", VCC: "vcc", VCC + 1: "", EXEC: "", EXEC + 1: "", SCALARS: ""}
