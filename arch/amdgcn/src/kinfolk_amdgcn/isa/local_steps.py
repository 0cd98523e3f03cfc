"""Instructions of workgroup memory, and those of its unit that only move values between lanes, as steps.

Source: "AMD Instinct MI300 Instruction Set Architecture", DS instructions; for the transposing reads its successor for
CDNA4, lane map as Triton's chooseDotDsReadB64TrLayout.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from kinfolk_amdgcn.isa.declare import Declared, Table
from kinfolk_amdgcn.isa.fault import Stop
from kinfolk_amdgcn.isa.operands import EXEC_MASK, rows_mask
from kinfolk_amdgcn.isa.step import Given, Run, Step
from kinfolk_amdgcn.isa.waves import LANES, Array, Outstanding, Waves

LOCAL: Final = Table()
ROW: Final = 16


def _declare_all() -> None:
    def add(name: str, opcode: int, **facts: Any) -> None:
        LOCAL.add(Declared(name=name, format="DS", opcode=opcode, kind="local", facts=facts))

    sizes = {"b32": 4, "b64": 8, "b96": 12, "b128": 16}
    for bits, opcode in (("b32", 13), ("b64", 77), ("b96", 222), ("b128", 223)):
        add(f"ds_write_{bits}", opcode, action=_write, size=sizes[bits])
    for bits, opcode in (("b32", 54), ("b64", 118), ("b96", 254), ("b128", 255)):
        add(f"ds_read_{bits}", opcode, action=_read, size=sizes[bits])
    for action, verb, base in ((_write, "write", (14, 78)), (_read, "read", (55, 119))):
        for bits, opcode in zip(("b32", "b64"), base, strict=True):
            size = sizes[bits]
            add(f"ds_{verb}2_{bits}", opcode, action=action, size=size, scale=size)
            add(f"ds_{verb}2st64_{bits}", opcode + 1, action=action, size=size, scale=64 * size)
    for name, opcode, size, signed in (("i8", 57, 1, True), ("u8", 58, 1, False), ("i16", 59, 2, True)):
        add(f"ds_read_{name}", opcode, action=_read_part, size=size, signed=signed)
    add("ds_read_u16", 60, action=_read_part, size=2, signed=False)
    for high, suffix, opcode in ((False, "", 30), (True, "_d16_hi", 84)):
        add(f"ds_write_b8{suffix}", opcode, action=_write_part, size=1, high=high)
        add(f"ds_write_b16{suffix}", opcode + 1, action=_write_part, size=2, high=high)
    for number, (name, size, signed) in enumerate((("u8", 1, False), ("i8", 1, True), ("u16", 2, False))):
        for high in (False, True):
            suffix = "_hi" * high
            opcode = 86 + 2 * number + high
            add(
                f"ds_read_{name}_d16{suffix}", opcode, action=_read_part, size=size, signed=signed, half=True, high=high
            )
    add("ds_read_b64_tr_b4", 224, action=_read_transposed_bits, size=8, bits=4)
    add("ds_read_b96_tr_b6", 225, action=_read_transposed_bits, size=12, bits=6)
    add("ds_read_b64_tr_b8", 226, action=_read_transposed, size=8, bits=8)
    add("ds_read_b64_tr_b16", 227, action=_read_transposed, size=8, bits=16)
    add("ds_permute_b32", 62, action=_push, size=4)
    add("ds_bpermute_b32", 63, action=_permute, size=4)
    add("ds_swizzle_b32", 61, action=_swizzle, size=4)


def local_step(given: Given) -> Step:
    """Return the step of an instruction of workgroup memory."""
    if given.field("gds"):
        raise Stop("unsupported", "is of global data share, which is not modelled")
    action: Callable[[Given], Step] = given.declared.facts["action"]
    return action(given)


def part_bytes(given: Given) -> int:
    """Return the bytes of a single access, of instructions that touch memory; 4 for others."""
    return min(4, int(given.declared.facts["size"]))


def unit_step(given: Given, run: Run, reads: int, writes: int) -> Step:
    """Return the step of an access to workgroup memory; EXEC is read by all."""
    return given.step(run, reads=reads | EXEC_MASK, writes=writes, lanes=True, queue="local", unit="local")


def local_row(given: Given, name: str, width: int) -> int:
    """Return the row of a data register, which may be an accumulation register."""
    return given.registers.row(given.field(name), bool(given.field("acc")), width)


def _address(given: Given) -> int:
    return given.registers.row(given.field("vaddr"), False)


def local_offsets(given: Given) -> tuple[int, ...]:
    """Return offsets in bytes: one, or two of instructions that access two places."""
    scale = given.declared.facts.get("scale")
    if scale is None:
        return (given.field("offset0") | given.field("offset1") << 8,)
    return given.field("offset0") * scale, given.field("offset1") * scale


def aligned(size: int) -> int:
    """Return what an address of an access of so many bytes is a multiple of."""
    return 16 if size == 12 else size


def _read(given: Given) -> Step:
    size, offsets, address = given.declared.facts["size"], local_offsets(given), _address(given)
    width = size // 4
    row = local_row(given, "vdst", width * len(offsets))
    registers = rows_mask(row, width * len(offsets))

    def run(w: Waves) -> None:
        local = w.batch.local
        seen: list[Array] = []
        words = local.bytes.view(np.uint32)
        found: list[Array] = []
        for offset in offsets:
            places, units = local.reached(w, address, offset, size, aligned(size))
            local.check_read(w, units)
            local.mark_read(w, units)
            seen.append(units)
            index = np.maximum(places, 0) // 4
            found.extend(words[index + part] for part in range(width))
        for part, data in enumerate(found):
            w.put(row + part, data)
        reads = seen[0] if len(seen) == 1 else np.concatenate(seen, axis=-1)
        w.load(w.local_loads, Outstanding(registers, reads=reads))

    return unit_step(given, run, rows_mask(address), registers)


def _write(given: Given) -> Step:
    size, offsets, address = given.declared.facts["size"], local_offsets(given), _address(given)
    width = size // 4
    rows = [local_row(given, f"data{number}", width) for number in range(len(offsets))]
    reads = rows_mask(address)
    for row in rows:
        reads |= rows_mask(row, width)

    def run(w: Waves) -> None:
        local = w.batch.local
        seen: list[Array] = []
        words = local.bytes.view(np.uint32)
        for offset, row in zip(offsets, rows, strict=True):
            places, units = local.reached(w, address, offset, size, aligned(size))
            data = w.v[row : row + width]
            local.check_write(w, units, _alike(words, places // 4, data, units))
            _store(words, places // 4, data)
            local.mark_write(w, units, alike=True)
            seen.append(units)
        writes = seen[0] if len(seen) == 1 else np.concatenate(seen, axis=-1)
        w.load(w.local_loads, Outstanding(0, writes=writes))

    return unit_step(given, run, reads, 0)


def _alike(words: Array, index: Array, data: Array, units: Array) -> Callable[[], Array]:
    """Return what tells which units of accesses hold already what lanes write there."""

    def found() -> Array:
        same = np.stack([words[np.maximum(index, 0) + part] == values for part, values in enumerate(data)], axis=-1)
        return np.repeat(same, units.shape[-1] // len(data), axis=-1)

    return found


def _store(words: Array, index: Array, data: Array) -> None:
    """Write registers of lanes to words; stop where lanes of one instruction write different values to one place."""
    live = index >= 0
    whole = bool(live.all())
    for part, values in enumerate(data):
        at, given = (index + part, values) if whole else (index[live] + part, values[live])
        words[at] = given
        if (words[at] != given).any():
            raise Stop("race", "writes different values of several lanes to one place in workgroup memory")


def _read_part(given: Given) -> Step:
    size, [offset], address = given.declared.facts["size"], local_offsets(given), _address(given)
    signed, row = bool(given.declared.facts["signed"]), local_row(given, "vdst", 1)
    kind = np.dtype(f"{'i' if signed else 'u'}{size}")
    half, shift = bool(given.declared.facts.get("half")), np.uint32(16 * given.declared.facts.get("high", False))

    def run(w: Waves) -> None:
        local = w.batch.local
        places, units = local.reached(w, address, offset, size, size)
        local.check_read(w, units)
        local.mark_read(w, units)
        data = local.bytes.view(kind)[np.maximum(places, 0) // size].astype(np.int32).view(np.uint32)
        if half:
            data = (data & np.uint32(0xFFFF)) << shift | w.v[row] & np.uint32(0xFFFF0000 >> int(shift))
        w.put(row, data)
        w.load(w.local_loads, Outstanding(rows_mask(row), reads=units))

    return unit_step(given, run, rows_mask(address), rows_mask(row))


def _write_part(given: Given) -> Step:
    size, [offset], address = given.declared.facts["size"], local_offsets(given), _address(given)
    row, shift = local_row(given, "data0", 1), np.uint32(16 * given.declared.facts["high"])
    kind = np.dtype(f"u{size}")

    def run(w: Waves) -> None:
        local = w.batch.local
        places, units = local.reached(w, address, offset, size, size)
        held, data = local.bytes.view(kind), (w.v[row : row + 1] >> shift).astype(kind)
        local.check_write(w, units, _alike(held, places // size, data, units))
        _store(held, places // size, data)
        local.mark_write(w, units, alike=True)
        w.load(w.local_loads, Outstanding(0, writes=units))

    return unit_step(given, run, rows_mask(address) | rows_mask(row), 0)


def _read_transposed(given: Given) -> Step:
    """Each row of 16 lanes reads 8 bytes a lane, and a lane gets one element of each of 4 lanes (8 of bytes)."""
    bits: int = given.declared.facts["bits"]
    [offset], address = local_offsets(given), _address(given)
    row = local_row(given, "vdst", 2)
    per_lane, sources = 64 // bits, ROW * bits // 64
    lane: Array = np.arange(LANES)[:, None]
    component: Array = np.arange(per_lane)
    from_lane: Array = ROW * (lane // ROW) + sources * component + lane % ROW // per_lane
    from_component = np.broadcast_to(lane % per_lane, from_lane.shape)

    def run(w: Waves) -> None:
        if not w.all_live:
            raise Stop("unsupported", "transposes between lanes that are not all live, which is not modelled")
        local = w.batch.local
        places, units = local.reached(w, address, offset, 8, 8)
        local.check_read(w, units)
        local.mark_read(w, units)
        elements = local.bytes.view(np.uint64)[places // 8].view(f"u{bits // 8}").reshape(w.count, LANES, per_lane)
        moved = np.ascontiguousarray(elements[:, from_lane, from_component]).view(np.uint32)
        w.v[row], w.v[row + 1] = moved[:, :, 0], moved[:, :, 1]
        w.load(w.local_loads, Outstanding(rows_mask(row, 2), reads=units))

    return unit_step(given, run, rows_mask(address), rows_mask(row, 2))


def _read_transposed_bits(given: Given) -> Step:
    """Each row of 16 lanes reads 16 elements of 4 or 6 bits a lane, and lane l gets element l of each lane."""
    bits, size = given.declared.facts["bits"], given.declared.facts["size"]
    [offset], address = local_offsets(given), _address(given)
    width = size // 4
    row = local_row(given, "vdst", width)
    registers = rows_mask(row, width)

    def run(w: Waves) -> None:
        if not w.all_live:
            raise Stop("unsupported", "transposes between lanes that are not all live, which is not modelled")
        local = w.batch.local
        places, units = local.reached(w, address, offset, size, 4)
        local.check_read(w, units)
        local.mark_read(w, units)
        held = local.bytes[places[..., None] + np.arange(size)]
        spread = np.unpackbits(held, axis=-1, bitorder="little").reshape(w.count, LANES // ROW, ROW, ROW, bits)
        moved = np.ascontiguousarray(spread.transpose(0, 1, 3, 2, 4)).reshape(w.count, LANES, -1)
        data = np.packbits(moved, axis=-1, bitorder="little").view(np.uint32)
        for number in range(width):
            w.v[row + number] = data[..., number]
        w.load(w.local_loads, Outstanding(registers, reads=units))

    return unit_step(given, run, rows_mask(address), registers)


def _permute(given: Given) -> Step:
    """Each lane takes a value from the lane that its address, in bytes of 4, names; 0 from one that is not live."""
    [offset], address = local_offsets(given), _address(given)
    source, row = local_row(given, "data0", 1), local_row(given, "vdst", 1)

    def run(w: Waves) -> None:
        lane = ((w.v[address].astype(np.int64) + offset) // 4 % LANES).astype(np.int64)
        data = np.take_along_axis(w.v[source], lane, axis=1)
        if not w.all_live:
            data = np.where(np.take_along_axis(w.live, lane, axis=1), data, np.uint32(0))
        w.put(row, data)
        w.load(w.local_loads, Outstanding(rows_mask(row)))

    return unit_step(given, run, rows_mask(address) | rows_mask(source), rows_mask(row))


def _push(given: Given) -> Step:
    """Each lane sends a value to the lane that its address, in bytes of 4, names; the last one wins, none leaves 0."""
    [offset], address = local_offsets(given), _address(given)
    source, row = local_row(given, "data0", 1), local_row(given, "vdst", 1)

    def run(w: Waves) -> None:
        to = ((w.v[address].astype(np.int64) + offset) // 4 % LANES).astype(np.int64)
        data, waves = np.zeros(w.live.shape, np.uint32), np.arange(w.count)
        for lane in range(LANES):
            sends = w.live[:, lane]
            data[waves[sends], to[sends, lane]] = w.v[source][sends, lane]
        w.put(row, data)
        w.load(w.local_loads, Outstanding(rows_mask(row)))

    return unit_step(given, run, rows_mask(address) | rows_mask(source), rows_mask(row))


def swizzle_lanes(pattern: int) -> Array:
    """Return which lane each lane reads: within four lanes, or within 32 by three masks on its number."""
    lane = np.arange(LANES)
    if pattern & 0x8000:
        if pattern >> 13 == 0b110:
            count, fixed = pattern >> 5 & 31, pattern & 31
            turned = lane % 32 + (-count if pattern >> 10 & 1 else count)
            return lane // 32 * 32 + (lane % 32 & fixed | turned % 32 & ~fixed)
        if pattern >> 8 != 0x80:
            raise Stop("unsupported", f"has the swizzle pattern {pattern:#x}, which is not modelled")
        return lane // 4 * 4 + (pattern >> 2 * (lane % 4) & 3)
    kept, set_, flipped = pattern & 31, pattern >> 5 & 31, pattern >> 10 & 31
    return lane // 32 * 32 + ((lane % 32 & kept | set_) ^ flipped)


def _swizzle(given: Given) -> Step:
    [pattern] = local_offsets(given)
    lanes = swizzle_lanes(pattern)
    source, row = local_row(given, "vaddr", 1), local_row(given, "vdst", 1)

    def run(w: Waves) -> None:
        data = w.v[source][:, lanes]
        if not w.all_live:
            data = np.where(w.live[:, lanes], data, np.uint32(0))
        w.put(row, data)
        w.load(w.local_loads, Outstanding(rows_mask(row)))

    return unit_step(given, run, rows_mask(source), rows_mask(row))


_declare_all()
