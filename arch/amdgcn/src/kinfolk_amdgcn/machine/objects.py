"""ELF code objects, of anybody: what `llvm-objdump -d` says of their code, and the figures of their kernels.

Unlike `kinfolk_amdgcn.codeobject`, which gates our own kernels, this takes what is there: hand-written objects leave
out much of the metadata, but the loader needs a kernel's descriptor.
"""

from __future__ import annotations

import io
import re
import struct
from collections.abc import Collection, Mapping
from typing import Any, Final, cast

import msgpack
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from kinfolk_amdgcn.codeobject import CodeObjectError
from kinfolk_amdgcn.machine.listing import JUMP, Label, Line, Listing
from kinfolk_amdgcn.target import PROCESSORS

DESCRIPTOR: Final = ".kd"
DESCRIPTOR_BYTES: Final = 64
METADATA_NOTE: Final = 32

_SYMBOL: Final = re.compile(r"[0-9a-f]+ <(.+)>:")
_CODE: Final = re.compile(r"\s+(\S+)\s*(.*?)\s*//\s*([0-9A-F]+):((?:\s[0-9A-F]{8})+)")


def processor(data: bytes) -> str | None:
    """Return the processor that an AMDGPU object is for; None for another file, or a processor not known here."""
    if len(data) < 64 or int.from_bytes(data[18:20], "little") != 224:  # EM_AMDGPU
        return None
    return PROCESSORS.get(data[48])  # the lowest byte of the flags


def function_names(data: bytes) -> frozenset[str]:
    """Return the symbols at which functions begin; other symbols in code are labels."""
    with _reading(data) as elf:
        symbols = _symbols(elf)
    kernels = {name.removesuffix(DESCRIPTOR) for name in symbols if name.endswith(DESCRIPTOR)}
    return frozenset(kernels | {name for name, symbol in symbols.items() if symbol["st_info"]["type"] == "STT_FUNC"})


def listings(disassembly: str, functions: Collection[str]) -> tuple[Listing, ...]:
    """Return the functions in what `llvm-objdump -d` prints. Jumps are read from their encoding: 4-byte steps."""
    found: dict[str, list[tuple[int, Line]]] = {}
    current: list[tuple[int, Line]] | None = None
    for line in disassembly.splitlines():
        if match := _SYMBOL.match(line):
            if match[1] in functions:
                current = found.setdefault(match[1], [])
        elif current is not None and (match := _CODE.match(line)):
            address, first = int(match[3], 16), int(match[4].split()[0], 16)
            step = (first & 0xFFFF ^ 0x8000) - 0x8000
            jumps_to = _place(address + 4 + 4 * step) if JUMP.match(match[1]) else ""
            current.append((address, Line(match[1], match[2], jumps_to)))
    return tuple(Listing(name, _labelled(lines)) for name, lines in found.items() if lines)


def _place(address: int) -> str:
    return f"0x{address:x}"


def _labelled(lines: list[tuple[int, Line]]) -> tuple[Label | Line, ...]:
    targets = {line.jumps_to for _, line in lines}
    items: list[Label | Line] = []
    for address, line in lines:
        items += [Label(_place(address))] if _place(address) in targets else []
        items.append(line)
    return tuple(items)


def figures(data: bytes) -> dict[str, dict[str, int]]:
    """Return the figures of each kernel, as `Usage` names them: registers and memory as its descriptor has them."""
    found: dict[str, dict[str, int]] = {}
    with _reading(data) as elf:
        noted = _noted(elf)
        for name, symbol in _symbols(elf).items():
            if not name.endswith(DESCRIPTOR):
                continue
            kernel = name.removesuffix(DESCRIPTOR)
            section = elf.get_section(symbol["st_shndx"])
            start = symbol["st_value"] - (section["sh_addr"] if elf["e_type"] == "ET_DYN" else 0)
            found[kernel] = {**_described(section.data()[start : start + DESCRIPTOR_BYTES]), **noted.get(name, {})}
    return found


def _described(descriptor: bytes) -> dict[str, int]:
    """Return what a kernel descriptor says; LLVM, "Kernel Descriptor", of the processors with unified registers."""
    if len(descriptor) != DESCRIPTOR_BYTES:
        raise CodeObjectError(f"a kernel descriptor has {len(descriptor)} bytes, not {DESCRIPTOR_BYTES}")
    lds_bytes, scratch_bytes = struct.unpack_from("<II", descriptor)
    third, first = struct.unpack_from("<II", descriptor, 44)  # compute_pgm_rsrc3, compute_pgm_rsrc1
    total, begin = 8 * ((first & 0x3F) + 1), 4 * ((third & 0x3F) + 1)
    return {
        "lds_bytes": lds_bytes,
        "scratch_bytes": scratch_bytes,
        "vgpr": min(total, begin),
        "agpr": max(0, total - begin),
    }


def _noted(elf: ELFFile) -> dict[str, dict[str, int]]:
    """Return what the metadata note adds, by the symbol of the descriptor; nothing where there is none."""
    found: dict[str, dict[str, int]] = {}
    for section in elf.iter_sections(type="SHT_NOTE"):
        for note in cast("Any", section).iter_notes():
            if note["n_type"] in (METADATA_NOTE, "NT_AMDGPU_METADATA") or note["n_name"] == "AMDGPU":
                top = cast("Any", msgpack).unpackb(note["n_descdata"])
                for entry in top.get("amdhsa.kernels", ()):
                    found[str(entry.get(".symbol", ""))] = _numbers(entry)
    return found


def _numbers(entry: Mapping[str, Any]) -> dict[str, int]:
    keys = {".max_flat_workgroup_size": "max_flat_workgroup_size", ".sgpr_count": "sgpr"}
    numbers = {name: int(entry[key]) for key, name in keys.items() if type(entry.get(key)) is int}
    total, agpr = entry.get(".vgpr_count"), entry.get(".agpr_count")
    if type(total) is int and type(agpr) is int and total >= agpr:
        numbers |= {"vgpr": total - agpr, "agpr": agpr}  # a descriptor counts in eights
    spills = [entry.get(f".{kind}_spill_count") for kind in ("vgpr", "sgpr")]
    if all(type(count) is int for count in spills):
        numbers["parked"] = sum(cast("list[int]", spills))
    return numbers


def _symbols(elf: ELFFile) -> dict[str, Any]:
    tables = [*elf.iter_sections(type="SHT_SYMTAB"), *elf.iter_sections(type="SHT_DYNSYM")]
    return {
        symbol.name: symbol
        for table in tables
        for symbol in cast("SymbolTableSection", table).iter_symbols()
        if symbol["st_shndx"] != "SHN_UNDEF"
    }


class _reading:  # noqa: N801 - used as a statement
    """Open an ELF object; whatever the reader raises on damaged input meanwhile is a CodeObjectError."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def __enter__(self) -> ELFFile:
        try:
            return ELFFile(io.BytesIO(self._data))
        except Exception as error:
            raise CodeObjectError(f"not a readable ELF object of {len(self._data)} bytes: {error}") from error

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Exception) and not isinstance(error, CodeObjectError):
            said = str(error) or type(error).__name__
            raise CodeObjectError(f"not a readable ELF object of {len(self._data)} bytes: {said}") from error
