"""Instructions of memory as steps: scalar loads, buffers with ranges, global addresses, loads to workgroup memory.

Source: "AMD Instinct MI300 Instruction Set Architecture", chapters "Scalar Memory Operations", "Vector Memory
Operations", "Flat Memory Instructions".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import attrs
import numpy as np

from kinfolk_amdgcn.isa.atomics import CHANGES, OPERANDS, turns
from kinfolk_amdgcn.isa.buffers import Places, buffer_places, resource_of
from kinfolk_amdgcn.isa.declare import Declared, Table
from kinfolk_amdgcn.isa.fault import Stop
from kinfolk_amdgcn.isa.local_atomics import put_values, values_of
from kinfolk_amdgcn.isa.operands import EXEC_MASK, rows_mask, scalar_mask, scalar_source, scalar_target
from kinfolk_amdgcn.isa.ports import FLAT_PORT, MEMORY_PORT, PRIVATE_PORT, SPILL_PORT, Naming, Port
from kinfolk_amdgcn.isa.step import Given, Run, Step
from kinfolk_amdgcn.isa.waves import LANES, M0, Array, Outstanding, Waves

MEMORY: Final = Table()
FLAT_SEGMENT, SCRATCH_SEGMENT, GLOBAL_SEGMENT = 0, 1, 2
SEGMENTS: Final = {FLAT_SEGMENT: "flat", SCRATCH_SEGMENT: "scratch"}
NO_ADDRESS: Final = 0x7F


def _declare_all() -> None:
    def add(name: str, format_: str, opcode: int, kind: Any, **facts: Any) -> None:
        MEMORY.add(Declared(name=name, format=format_, opcode=opcode, kind=kind, facts=facts))

    for number, count in enumerate((1, 2, 4, 8, 16)):
        suffix = f"x{count}" if count > 1 else ""
        add(f"s_load_dword{suffix}", "SMEM", number, "scalar_load", count=count)
    loads = (("ubyte", 16, 1, False), ("sbyte", 17, 1, True), ("ushort", 18, 2, False), ("sshort", 19, 2, True))
    for prefix, format_, kind in (("buffer", "MUBUF", "buffer"), ("global", "FLAT", "flat")):
        for name, opcode, size, signed in loads:
            add(f"{prefix}_load_{name}", format_, opcode, kind, action="load", size=size, count=1, signed=signed)
        for count in range(1, 5):
            suffix = f"x{count}" if count > 1 else ""
            add(f"{prefix}_load_dword{suffix}", format_, 19 + count, kind, action="load", size=4, count=count)
            add(f"{prefix}_store_dword{suffix}", format_, 27 + count, kind, action="store", size=4, count=count)
        for high, suffix in ((False, ""), (True, "_d16_hi")):
            add(f"{prefix}_store_byte{suffix}", format_, 24 + high, kind, action="store", size=1, count=1, high=high)
            add(f"{prefix}_store_short{suffix}", format_, 26 + high, kind, action="store", size=2, count=1, high=high)
        for number, (name, size, signed) in enumerate((("ubyte", 1, False), ("sbyte", 1, True), ("short", 2, False))):
            for high in (False, True):
                half: dict[str, Any] = {"size": size, "signed": signed, "high": high}
                opcode = 32 + 2 * number + high
                add(f"{prefix}_load_{name}_d16{'_hi' * high}", format_, opcode, kind, action="half", count=1, **half)
        for name, opcode, size, change in _atomics():
            add(f"{prefix}_atomic_{name}", format_, opcode, kind, action="atomic", size=size, count=1, change=change)
    for number, count in enumerate((1, 2, 4, 8, 16)):
        suffix = f"x{count}" if count > 1 else ""
        add(f"s_buffer_load_dword{suffix}", "SMEM", 8 + number, "scalar_load", count=count, buffer=True)
    for name, opcode, count in (("dword", 42, 1), ("dwordx4", 125, 4), ("dwordx3", 126, 3)):
        add(f"global_load_lds_{name}", "FLAT", opcode, "flat", action="stage", size=4, count=count)


def _atomics() -> list[tuple[str, int, int, str]]:
    """Return name, opcode, bytes and change of every atomic."""
    names = ("swap", "cmpswap", "add", "sub", "smin", "umin", "smax", "umax", "and", "or", "xor", "inc", "dec")
    found = [(name, 64 + number, 4, name) for number, name in enumerate(names)]
    found += [(f"{name}_x2", 96 + number, 8, name) for number, name in enumerate(names)]
    found += [("add_f32", 77, 4, "add_f"), ("pk_add_f16", 78, 4, "pk_add_f16"), ("add_f64", 79, 8, "add_f")]
    return [*found, ("min_f64", 80, 8, "min_f"), ("max_f64", 81, 8, "max_f"), ("pk_add_bf16", 82, 4, "pk_add_bf16")]


def scalar_load_step(given: Given) -> Step:
    """Return the step of a load to scalar registers."""
    count, base, register = given.declared.facts["count"], 2 * given.field("sbase"), given.field("sdata")
    offset = (given.field("offset") ^ 0x100000) - 0x100000 if given.field("imm") else 0
    source = scalar_source(base, "i64")
    registers = scalar_mask(register, count)
    buffer = bool(given.declared.facts.get("buffer"))
    extra = scalar_source(given.field("soffset"), "i32") if given.field("soffset_en") else None
    for number in range(count):
        scalar_target(register + number, "i32")

    def run(w: Waves) -> None:
        moved = np.full(w.count, offset & 0xFFFFFFFFFFFFFFFF, np.uint64)
        if extra is not None:
            moved = moved + extra.read(w).data.astype(np.uint64)
        if buffer:
            w.s[:, register : register + count] = _scalar_buffer(w, base, moved, count)
            w.load(w.local_loads, Outstanding(registers, scalar=True))
            return
        address = source.read(w).data + moved
        odd = (address & np.uint64(3)) != 0
        if odd.any():
            raise Stop("alignment", "is at an address that is no multiple of 4", int(np.argmax(odd)))
        places = address[:, None] + np.arange(0, 4 * count, 4, dtype=np.uint64)
        with Naming(None):
            w.s[:, register : register + count] = w.batch.memory.read(places, 4)
        w.load(w.local_loads, Outstanding(registers, scalar=True))

    reads = scalar_mask(base, 4 if buffer else 2) | (extra.registers if extra else 0)
    return _step(given, run, reads, registers)


def _scalar_buffer(w: Waves, base: int, moved: Array, count: int) -> Array:
    """Return dwords of a buffer, 0 of those out of range; the size counts records where there is a stride."""
    resource = resource_of(w, base)
    size = (resource.records * np.maximum(resource.stride, 1))[:, 0]
    at = (moved & np.uint64(0xFFFFFFFC)).astype(np.int64)[:, None] + np.arange(0, 4 * count, 4)
    wanted = at + 4 <= size[:, None]
    found = np.zeros(at.shape, np.uint32)
    places = (resource.base + at).view(np.uint64)
    with Naming((np.nonzero(wanted)[0], np.zeros(int(wanted.sum()), np.int64))):
        found[wanted] = w.batch.memory.read(places[wanted], 4)
    return found


def memory_step(given: Given) -> Step:
    """Return the step of a vector access to memory."""
    if given.encoded.format == "FLAT" and given.field("segment") != GLOBAL_SEGMENT:
        verb = SEGMENTS[given.field("segment")]
        named = attrs.evolve(given.declared, name=given.declared.name.replace("global_", f"{verb}_"))
        given = attrs.evolve(given, declared=named)
    places, reads = buffer_places(given) if given.encoded.format == "MUBUF" else _address_places(given)
    places = _traced(places, given.declared.facts["size"] * given.declared.facts["count"], _is_scratch(given))
    action = given.declared.facts["action"]
    if action == "stage" or (action == "load" and given.field("lds") and not _is_scratch(given)):
        return _stage(given, places, reads)
    if given.field("lds") and not _is_scratch(given):
        raise Stop("unsupported", "stores from workgroup memory, which is not modelled")
    return {"load": _load, "half": _load_half, "store": _store, "atomic": _atomic}[action](given, places, reads)


def _traced(places: Places, size: int, private: bool) -> Places:
    """Return where an access goes, which a trace takes down where there is one."""

    def found(w: Waves) -> tuple[Array, Array]:
        address, there = places(w)
        if w.batch.trace is not None:
            note = w.batch.trace.private if private else w.batch.trace.memory
            note(w, address, there, size)
        return address, there

    return found


def _step(given: Given, run: Run, reads: int, writes: int, lanes: bool = False) -> Step:
    queue, unit = ("vector", "memory") if lanes else ("", "scalar")
    return given.step(run, reads=reads, writes=writes, lanes=lanes, queue=queue, unit=unit)


def _is_scratch(given: Given) -> bool:
    return given.encoded.format == "FLAT" and given.field("segment") == SCRATCH_SEGMENT


def _port(given: Given) -> Port:
    if given.encoded.format == "MUBUF":
        return MEMORY_PORT
    if _is_scratch(given) and not given.field("lds"):
        return SPILL_PORT
    return {FLAT_SEGMENT: FLAT_PORT, SCRATCH_SEGMENT: PRIVATE_PORT, GLOBAL_SEGMENT: MEMORY_PORT}[given.field("segment")]


def _address_places(given: Given) -> tuple[Places, int]:
    """Return where an access to an address goes; there is no range but what is allocated."""
    offset, everything = (given.field("offset") ^ 0x1000) - 0x1000, np.full((1, 1), 1 << 20, np.int64)
    base = given.field("saddr")
    if _is_scratch(given):
        return _scratch_places(given, offset, everything)
    if given.field("segment") == FLAT_SEGMENT:
        base, offset = NO_ADDRESS, given.field("offset") & 0xFFF
    if base == NO_ADDRESS:
        row = given.registers.row(given.field("vaddr"), False, 2)

        def by_lane(w: Waves) -> tuple[Array, Array]:
            whole = w.v[row].astype(np.int64) | w.v[row + 1].astype(np.int64) << 32
            return whole + offset, everything

        return by_lane, rows_mask(row, 2) | EXEC_MASK
    row, source = given.registers.row(given.field("vaddr"), False), scalar_source(base, "i64")

    def by_scalar(w: Waves) -> tuple[Array, Array]:
        return source.read(w).data.view(np.int64)[:, None] + w.v[row] + offset, everything

    return by_scalar, rows_mask(row) | source.registers | EXEC_MASK


def _scratch_places(given: Given, offset: int, everything: Array) -> tuple[Places, int]:
    """Return where an access to private memory goes: a lane's register, where the encoding has one, and a scalar."""
    row = given.registers.row(given.field("vaddr"), False) if given.field("lds") else -1
    scalar = scalar_source(given.field("saddr"), "i32") if given.field("saddr") != NO_ADDRESS else None

    def places(w: Waves) -> tuple[Array, Array]:
        at: Array = np.full(w.live.shape, offset, np.int64)
        if row >= 0:
            at = at + w.v[row]
        if scalar is not None:
            at = at + np.broadcast_to(scalar.read(w).data, (w.count,)).astype(np.int64)[:, None]
        return at & 0xFFFFFFFF, everything

    reads = EXEC_MASK | (rows_mask(row) if row >= 0 else 0) | (scalar.registers if scalar else 0)
    return places, reads


def _began(given: Given, w: Waves, registers: int) -> None:
    """Note an access on its way; a flat one may be to workgroup memory, so that it is waited for in both orders."""
    w.load(w.vector_loads, Outstanding(registers))
    if given.encoded.format == "FLAT" and given.field("segment") == FLAT_SEGMENT:
        w.load(w.local_loads, Outstanding(registers))


def _loaded(w: Waves, places: Places, size: int, count: int, port: Port = MEMORY_PORT) -> Array:
    """Return what lanes read as unsigned integers [waves, lanes, count]; 0 of what is out of range or not live."""
    address, there = places(w)
    each = np.arange(count, dtype=np.int64) * size
    reached = address[..., None] + each
    within = np.broadcast_to(there, w.live.shape)[..., None] - each
    wanted = (within >= size) & w.live[..., None]
    if ((within > 0) & (within < size) & w.live[..., None]).any():
        raise Stop("unsupported", "reads a unit of which a part is out of range, which is not known")
    if port is MEMORY_PORT and wanted.all():
        with Naming(_all_lanes(w)):
            return w.batch.memory.read(reached.reshape(-1, count).view(np.uint64), size).reshape(reached.shape)
    data = np.zeros(reached.shape, f"u{size}")
    index = np.nonzero(wanted)
    data[index] = port.read(w, index, reached[index].view(np.uint64), size)
    return data


def _all_lanes(w: Waves) -> tuple[Array, Array]:
    return np.repeat(np.arange(w.count), LANES), np.tile(np.arange(LANES), w.count)


def _data_row(given: Given, width: int, destination: bool) -> int:
    name = "vdata" if given.encoded.format == "MUBUF" else "vdst" if destination else "data"
    return given.registers.row(given.field(name), bool(given.field("acc")), width)


def _load(given: Given, places: Places, reads: int) -> Step:
    facts = given.declared.facts
    size, count, signed = facts["size"], facts["count"], facts.get("signed", False)
    row = _data_row(given, count, destination=True)
    registers, port = rows_mask(row, count), _port(given)

    def run(w: Waves) -> None:
        data = _loaded(w, places, size, count, port)
        if signed:
            data = data.view(f"i{size}").astype(np.int32).view(np.uint32)
        for part in range(count):
            w.put(row + part, data[:, :, part])
        _began(given, w, registers)

    step = _step(given, run, reads, registers, lanes=True)
    return step if port is not SPILL_PORT else attrs.evolve(step, leaves=_never_stored(places, size, row, count))


def _never_stored(places: Places, size: int, row: int, count: int) -> Callable[[Waves], list[int]]:
    """Return what says which registers got, in every lane that lives, what no instruction had stored."""

    def leaves(w: Waves) -> list[int]:
        masks = [0] * w.count
        for part in range(count):
            known = SPILL_PORT.known(w, places(w)[0] + part * size, size)
            for wave in np.flatnonzero(w.live.any(axis=1) & ~(known & w.live).any(axis=1)):
                masks[wave] |= rows_mask(row + part)
        return masks

    return leaves


def _load_half(given: Given, places: Places, reads: int) -> Step:
    """Return the step of a load to one half of a register; the other stays."""
    facts, row = given.declared.facts, _data_row(given, 1, destination=True)
    size, signed, shift = facts["size"], facts["signed"], np.uint32(16 * facts["high"])
    kept, registers, port = np.uint32(0xFFFF0000 >> int(shift)), rows_mask(row), _port(given)

    def run(w: Waves) -> None:
        data = _loaded(w, places, size, 1, port)[:, :, 0]
        wide = data.view(np.int8).astype(np.int16).view(np.uint16) if signed else data
        w.put(row, wide.astype(np.uint32) << shift | w.v[row] & kept)
        _began(given, w, registers)

    return _step(given, run, reads, registers, lanes=True)


def _written_at(w: Waves, places: Places, size: int, count: int) -> tuple[Array, tuple[Array, ...]]:
    """Return addresses of what lanes write, in order of lanes, and the (wave, lane, unit) of each."""
    address, there = places(w)
    each = np.arange(count, dtype=np.int64) * size
    within = np.broadcast_to(there, w.live.shape)[..., None] - each
    if ((within > 0) & (within < size) & w.live[..., None]).any():
        raise Stop("unsupported", "writes a unit of which a part is out of range, which is not known")
    index = np.nonzero((within >= size) & w.live[..., None])
    return (address[..., None] + each)[index].view(np.uint64), index


def _store(given: Given, places: Places, reads: int) -> Step:
    facts, port = given.declared.facts, _port(given)
    size, count = facts["size"], facts["count"]
    row, shift = _data_row(given, count, destination=False), np.uint32(16 * facts.get("high", False))

    def run(w: Waves) -> None:
        reached, index = _written_at(w, places, size, count)
        values = w.v[row : row + count][index[2], index[0], index[1]] >> shift
        port.write(w, index, reached, values.astype(f"u{size}"))
        if port is SPILL_PORT and w.undefined & rows:
            lacks = np.array(
                [[mask >> row + part & 1 for part in range(count)] for mask in w.undefined_now()], np.bool_
            )
            lacking = lacks[index[0], index[2]]
            SPILL_PORT.forget(w, tuple(each[lacking] for each in index), reached[lacking], size)
        _began(given, w, 0)

    rows = rows_mask(row, count)
    step = _step(given, run, reads | rows, 0, lanes=True)
    return step if port is not SPILL_PORT else attrs.evolve(step, carried=((rows, 0),))


def _atomic(given: Given, places: Places, reads: int) -> Step:
    """Return the step of a change in memory, one lane after the other; with the value before where that is asked.

    Of two operands in memory's instructions the new value comes first.
    """
    size, port = given.declared.facts["size"], _port(given)
    change: Callable[..., Array] = CHANGES[given.declared.facts["change"]]
    width, count = size // 4, OPERANDS.get(given.declared.facts["change"], 1)
    row, returns = _data_row(given, width * count, destination=False), bool(given.field("sc0"))
    result = _data_row(given, width, destination=True) if returns else -1
    registers = rows_mask(result, width) if returns else 0

    def run(w: Waves) -> None:
        reached, index = _written_at(w, places, size, 1)
        odd = (reached & np.uint64(size - 1)) != 0
        if odd.any():
            first = int(np.argmax(odd))
            where = int(index[0][first]), [int(index[1][first])]
            raise Stop("alignment", f"is at an address that is no multiple of {size}", *where)
        lanes = index[:2]
        operands = [values_of(w, row + number * width, width)[lanes] for number in reversed(range(count))]
        before = np.empty(len(reached), f"u{size}")
        for turn in turns(reached):
            part = tuple(each[turn] for each in index)
            before[turn] = port.read(w, part, reached[turn], size)
            port.write(w, part, reached[turn], change(before[turn], *[each[turn] for each in operands]), atomic=True)
        if returns:
            live = np.zeros(w.live.shape, np.bool_)
            live[lanes] = True
            put_values(w, result, width, live, before)
        _began(given, w, registers)

    return _step(given, run, reads | rows_mask(row, width * count), registers, lanes=True)


def _stage(given: Given, places: Places, reads: int) -> Step:
    """Return the step of a load to workgroup memory: lane l's bytes go `l * bytes` past M0 and the offset."""
    count = given.declared.facts["count"]
    size, offset = 4 * count, given.field("offset")
    if given.encoded.format == "FLAT":
        offset = (offset ^ 0x1000) - 0x1000
    target = scalar_source(M0, "i32")

    def run(w: Waves) -> None:
        data = _loaded(w, places, 4, count)
        local = w.batch.local
        base = np.broadcast_to(target.read(w).data, (w.count,)).astype(np.int64)
        spots = local.places(w, base[:, None] + offset + np.arange(LANES) * size, size, 4)
        units = local.units_of(spots, size)
        local.check_write(w, units)
        local.mark_write(w, units)
        live, words = spots >= 0, local.bytes.view(np.uint32)
        for part in range(count):
            words[spots[live] // 4 + part] = data[:, :, part][live]
        local.stage(units)
        w.load(w.vector_loads, Outstanding(0, staged=units))

    return _step(given, run, reads | target.registers, 0, lanes=True)


_declare_all()
