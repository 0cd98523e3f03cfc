"""Instructions of memory as steps: scalar loads, buffers with ranges, global addresses, loads to workgroup memory.

Source: "AMD Instinct MI300 Instruction Set Architecture", chapters "Scalar Memory Operations", "Vector Memory
Operations", "Flat Memory Instructions".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from kinfolk.machine import AccessError
from kinfolk_amdgcn.isa.declare import Declared, Table
from kinfolk_amdgcn.isa.fault import Stop
from kinfolk_amdgcn.isa.operands import EXEC_MASK, rows_mask, scalar_mask, scalar_source, scalar_target
from kinfolk_amdgcn.isa.step import Given, Run, Step
from kinfolk_amdgcn.isa.waves import LANES, M0, Array, Outstanding, Waves

MEMORY: Final = Table()
FLAT_SEGMENT, GLOBAL_SEGMENT = 0, 2
NO_ADDRESS: Final = 0x7F
Places = Callable[[Waves], tuple[Array, Array]]
"""Byte addresses [waves, lanes], and which bytes from there on are in range: how many [waves, lanes]."""


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
        add(f"{prefix}_atomic_add", format_, 66, kind, action="atomic", size=4, count=1, type="u4")
        add(f"{prefix}_atomic_add_f32", format_, 77, kind, action="atomic", size=4, count=1, type="f4")
    for name, opcode, count in (("dword", 42, 1), ("dwordx4", 125, 4), ("dwordx3", 126, 3)):
        add(f"global_load_lds_{name}", "FLAT", opcode, "flat", action="stage", size=4, count=count)


def scalar_load_step(given: Given) -> Step:
    """Return the step of a load to scalar registers."""
    count, base, register = given.declared.facts["count"], 2 * given.field("sbase"), given.field("sdata")
    offset = (given.field("offset") ^ 0x100000) - 0x100000 if given.field("imm") else 0
    source = scalar_source(base, "i64")
    registers = scalar_mask(register, count)
    extra = scalar_source(given.field("soffset"), "i32") if given.field("soffset_en") else None
    for number in range(count):
        scalar_target(register + number, "i32")

    def run(w: Waves) -> None:
        address = source.read(w).data + np.uint64(offset & 0xFFFFFFFFFFFFFFFF)
        if extra is not None:
            address = address + extra.read(w).data.astype(np.uint64)
        odd = (address & np.uint64(3)) != 0
        if odd.any():
            raise Stop("alignment", "is at an address that is no multiple of 4", int(np.argmax(odd)))
        places = address[:, None] + np.arange(0, 4 * count, 4, dtype=np.uint64)
        with _naming(None):
            w.s[:, register : register + count] = w.batch.memory.read(places, 4)
        w.load(w.local_loads, Outstanding(registers, scalar=True))

    reads = source.registers | (extra.registers if extra else 0)
    return _step(given, run, reads, registers)


def memory_step(given: Given) -> Step:
    """Return the step of a vector access to memory."""
    places, reads = _buffer_places(given) if given.encoded.format == "MUBUF" else _global_places(given)
    places = _traced(places, given.declared.facts["size"] * given.declared.facts["count"])
    action = given.declared.facts["action"]
    if action == "stage" or (action == "load" and given.field("lds")):
        return _stage(given, places, reads)
    if given.field("lds"):
        raise Stop("unsupported", "stores from workgroup memory, which is not modelled")
    return {"load": _load, "half": _load_half, "store": _store, "atomic": _atomic}[action](given, places, reads)


def _traced(places: Places, size: int) -> Places:
    """Return where an access goes, which a trace takes down where there is one."""

    def found(w: Waves) -> tuple[Array, Array]:
        address, there = places(w)
        if w.batch.trace is not None:
            w.batch.trace.memory(w, address, there, size)
        return address, there

    return found


def _step(given: Given, run: Run, reads: int, writes: int, lanes: bool = False) -> Step:
    queue, unit = ("vector", "memory") if lanes else ("", "scalar")
    return given.step(run, reads=reads, writes=writes, lanes=lanes, queue=queue, unit=unit)


def _buffer_places(given: Given) -> tuple[Places, int]:
    """Return where a buffer access goes: offsets from the base of its resource, checked against its size.

    AMD's and LLVM's texts differ in whether the scalar offset counts in that check; code for which that would matter
    stops.
    """
    base, offset = 4 * given.field("srsrc"), given.field("offset")
    if given.field("idxen"):
        raise Stop("unsupported", "indexes records of a buffer, which is not modelled")
    row = given.registers.row(given.field("vaddr"), False) if given.field("offen") else -1
    scalar = scalar_source(given.field("soffset"), "i32")
    size = given.declared.facts["size"] * given.declared.facts["count"]

    def places(w: Waves) -> tuple[Array, Array]:
        resource = w.s[:, base : base + 4].astype(np.int64)
        if (resource[:, 1] >> 16).any():
            raise Stop("unsupported", "is of a buffer with a stride or a swizzle, which is not modelled")
        address, records = resource[:, 0] | (resource[:, 1] & 0xFFFF) << 32, resource[:, 2]
        within = np.full(w.live.shape, offset, np.int64) if row < 0 else w.v[row].astype(np.int64) + offset
        moved = np.broadcast_to(scalar.read(w).data, (w.count,)).astype(np.int64)
        there = records[:, None] - within
        if moved.any():
            fits, with_scalar = there >= size, there - moved[:, None] >= size
            none, none_with = there <= 0, there - moved[:, None] <= 0
            if (((fits != with_scalar) | (none != none_with)) & w.live).any():
                raise Stop("unsupported", "is in range or not by whether its scalar offset counts, which is not known")
        return (address + moved)[:, None] + within, there

    reads = scalar_mask(base, 4) | scalar.registers | EXEC_MASK | (rows_mask(row) if row >= 0 else 0)
    return places, reads


def _global_places(given: Given) -> tuple[Places, int]:
    """Return where an access to a global address goes; there is no range but what is allocated."""
    if given.field("segment") != GLOBAL_SEGMENT:
        raise Stop("unsupported", "is a flat or scratch access, which is not modelled")
    offset = (given.field("offset") ^ 0x1000) - 0x1000
    base, everything = given.field("saddr"), np.full((1, 1), 1 << 20, np.int64)
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


class _naming:  # noqa: N801 - used as a statement
    """Turn what memory says of an access into a stop that names wave and lanes; `index` are those that took part."""

    def __init__(self, index: tuple[Array, Array] | None) -> None:
        self._index = index

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, AccessError):
            first = int(np.flatnonzero(error.wrong.any(axis=tuple(range(1, error.wrong.ndim))))[0])
            if self._index is None:
                raise Stop(error.kind, error.why, first) from None
            raise Stop(error.kind, error.why, int(self._index[0][first]), [int(self._index[1][first])]) from None


def _loaded(w: Waves, places: Places, size: int, count: int) -> Array:
    """Return what lanes read as unsigned integers [waves, lanes, count]; 0 of what is out of range or not live."""
    address, there = places(w)
    each = np.arange(count, dtype=np.int64) * size
    reached = address[..., None] + each
    within = np.broadcast_to(there, w.live.shape)[..., None] - each
    wanted = (within >= size) & w.live[..., None]
    if ((within > 0) & (within < size) & w.live[..., None]).any():
        raise Stop("unsupported", "reads a unit of which a part is out of range, which is not known")
    if wanted.all():
        with _naming(_all_lanes(w)):
            return w.batch.memory.read(reached.reshape(-1, count).view(np.uint64), size).reshape(reached.shape)
    data = np.zeros(reached.shape, f"u{size}")
    index = np.nonzero(wanted)
    with _naming((index[0], index[1])):
        data[index] = w.batch.memory.read(reached[index].view(np.uint64), size)
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
    registers = rows_mask(row, count)

    def run(w: Waves) -> None:
        data = _loaded(w, places, size, count)
        if signed:
            data = data.view(f"i{size}").astype(np.int32).view(np.uint32)
        for part in range(count):
            w.put(row + part, data[:, :, part])
        w.load(w.vector_loads, Outstanding(registers))

    return _step(given, run, reads, registers, lanes=True)


def _load_half(given: Given, places: Places, reads: int) -> Step:
    """Return the step of a load to one half of a register; the other stays."""
    facts, row = given.declared.facts, _data_row(given, 1, destination=True)
    size, signed, shift = facts["size"], facts["signed"], np.uint32(16 * facts["high"])
    kept, registers = np.uint32(0xFFFF0000 >> int(shift)), rows_mask(row)

    def run(w: Waves) -> None:
        data = _loaded(w, places, size, 1)[:, :, 0]
        wide = data.view(np.int8).astype(np.int16).view(np.uint16) if signed else data
        w.put(row, wide.astype(np.uint32) << shift | w.v[row] & kept)
        w.load(w.vector_loads, Outstanding(registers))

    return _step(given, run, reads | registers, registers, lanes=True)


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
    facts = given.declared.facts
    size, count = facts["size"], facts["count"]
    row, shift = _data_row(given, count, destination=False), np.uint32(16 * facts.get("high", False))

    def run(w: Waves) -> None:
        reached, index = _written_at(w, places, size, count)
        values = w.v[row : row + count][index[2], index[0], index[1]] >> shift
        with _naming((index[0], index[1])):
            w.batch.memory.write(reached, values.astype(f"u{size}"))
        w.load(w.vector_loads, Outstanding(0))

    return _step(given, run, reads | rows_mask(row, count), 0, lanes=True)


def _atomic(given: Given, places: Places, reads: int) -> Step:
    """Return the step of an addition to memory, one lane after the other; with the value before where that is asked."""
    kind = np.dtype(given.declared.facts["type"])
    row, returns = _data_row(given, 1, destination=False), bool(given.field("sc0"))
    result = _data_row(given, 1, destination=True) if returns else -1

    def run(w: Waves) -> None:
        reached, index = _written_at(w, places, 4, 1)
        odd = (reached & np.uint64(3)) != 0
        if odd.any():
            first = int(np.argmax(odd))
            where = int(index[0][first]), [int(index[1][first])]
            raise Stop("alignment", "is at an address that is no multiple of 4", *where)
        values = w.v[row][index[0], index[1]].view(kind)
        before = np.empty(len(values), np.uint32)
        with _naming((index[0], index[1])):
            for number, value in enumerate(values):
                at = reached[number : number + 1]
                held = w.batch.memory.read(at, 4)
                before[number] = held[0]
                w.batch.memory.write(at, (held.view(kind) + value).view(np.uint32))
        if returns:
            w.v[result][index[0], index[1]] = before
        w.load(w.vector_loads, Outstanding(rows_mask(result) if returns else 0))

    return _step(given, run, reads | rows_mask(row), rows_mask(result) if returns else 0, lanes=True)


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
