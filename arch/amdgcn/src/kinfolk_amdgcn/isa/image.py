"""A code object as it lies in memory: its sections at their places, with the addresses that only loading gives.

A shared object says where its segments lie. The sections of a relocatable one are laid out one after the other, which
is what a linker does with one object.
Source: LLVM, "User Guide for AMDGPU Backend", section "Relocation Records".
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from typing import Any, Final, cast

import attrs
from elftools.elf.elffile import ELFFile
from elftools.elf.relocation import RelocationSection
from elftools.elf.sections import SymbolTableSection

from kinfolk_amdgcn.codeobject import CodeObjectError

MOST_BYTES: Final = 1 << 28
ALLOCATED: Final = 2
EXECUTED: Final = 4
"""Flags of a section: it lies in memory, it holds code."""
NO_PLACE: Final = 0xFF00
"""Section numbers from here on are none: absolute symbols, and variables of workgroup memory not yet placed."""
NONE, RELATIVE64, SLOT_BYTES = 0, 13, 8
Value = Callable[[int, int, int], int]
_ABSOLUTE: Final[dict[int, tuple[int, Value]]] = {
    1: (4, lambda base, symbol, place: (base + symbol) & 0xFFFFFFFF),
    2: (4, lambda base, symbol, place: (base + symbol) >> 32),
    3: (8, lambda base, symbol, place: base + symbol),
    6: (4, lambda base, symbol, place: base + symbol),
    RELATIVE64: (8, lambda base, symbol, place: base + symbol),
}
"""By kind of relocation: bytes, and the value from the base, symbol with addend, and place."""
_RELATIVE: Final[dict[int, tuple[int, Value]]] = {
    4: (4, lambda base, symbol, place: symbol - place),
    5: (8, lambda base, symbol, place: symbol - place),
    10: (4, lambda base, symbol, place: (symbol - place) & 0xFFFFFFFF),
    11: (4, lambda base, symbol, place: (symbol - place) >> 32),
}
_BY_SLOT: Final = {7: 4, 8: 10, 9: 11}
"""Relocations to a slot that holds a symbol's address, each with the one to the slot itself that it amounts to."""


@attrs.frozen(eq=False)
class Image:
    """The bytes of a code object in memory, from 0 on, but for addresses; `places` has where symbols lie."""

    data: bytes
    places: dict[str, int]
    absolute: tuple[tuple[int, int, int], ...]

    def at(self, base: int) -> bytes:
        """Return the bytes where the image lies at an address."""
        if not self.absolute:
            return self.data
        whole = bytearray(self.data)
        for place, kind, symbol in self.absolute:
            size, value = _ABSOLUTE[kind]
            _put(whole, place, size, value(base, symbol, place))
        return bytes(whole)


def read_image(data: bytes) -> Image:
    """Return an object's image; CodeObjectError for one that is damaged or does not load by itself."""
    try:
        return _read_image(data)
    except CodeObjectError:
        raise
    except Exception as error:  # on damaged input the ELF reader raises whatever the damage leads it to
        said = str(error) or type(error).__name__
        raise CodeObjectError(f"the object's {len(data)} bytes cannot be laid out in memory: {said}") from error


def _read_image(data: bytes) -> Image:
    elf = ELFFile(io.BytesIO(data))
    shared = elf["e_type"] == "ET_DYN"
    whole, starts = _segments(elf) if shared else _sections(elf)
    places = {name: place for name, place, _ in _symbols(elf, starts, shared)}
    absolute: list[tuple[int, int, int]] = []
    slots: dict[int, int] = {}
    for place, kind, symbol, executed in _relocations(elf, starts, shared):
        if kind in _BY_SLOT:
            slots.setdefault(symbol[0], -(-len(whole) // SLOT_BYTES) * SLOT_BYTES)
            if slots[symbol[0]] >= len(whole):
                whole += bytes(slots[symbol[0]] + SLOT_BYTES - len(whole))
                absolute.append((slots[symbol[0]], 3, symbol[0]))
            size, value = _RELATIVE[_BY_SLOT[kind]]
            _put(whole, place, size, value(0, slots[symbol[0]] + symbol[1], place))
        elif kind in _RELATIVE:
            size, value = _RELATIVE[kind]
            _put(whole, place, size, value(0, sum(symbol), place))
        elif kind in _ABSOLUTE and not executed:
            absolute.append((place, kind, sum(symbol)))
        elif kind != NONE:
            raise CodeObjectError(f"the code object has a relocation of kind {kind}, which is not known here: link it")
    return Image(bytes(whole), places, tuple(absolute))


def _put(whole: bytearray, place: int, size: int, value: int) -> None:
    if not 0 <= place <= len(whole) - size:
        raise CodeObjectError(f"a relocation of the code object is at {place:#x}, past its {len(whole)} bytes")
    whole[place : place + size] = (value & (1 << 8 * size) - 1).to_bytes(size, "little")


def _segments(elf: ELFFile) -> tuple[bytearray, dict[int, int]]:
    """Return the memory of a shared object; symbols and relocations of it have addresses already."""
    whole = bytearray()
    for segment in elf.iter_segments(type="PT_LOAD"):
        end = segment["p_vaddr"] + segment["p_memsz"]
        _check_size(end)
        whole += bytes(max(0, end - len(whole)))
        held: bytes = segment.data()
        whole[segment["p_vaddr"] : segment["p_vaddr"] + len(held)] = held
    return whole, {}


def _sections(elf: ELFFile) -> tuple[bytearray, dict[int, int]]:
    """Return the memory of a relocatable object, and where each of its sections begins."""
    whole, starts = bytearray(), dict[int, int]()
    for number, section in enumerate(elf.iter_sections()):
        if not section["sh_flags"] & ALLOCATED or section["sh_type"] == "SHT_NOTE":
            continue
        step = max(1, section["sh_addralign"])
        starts[number] = -(-len(whole) // step) * step
        _check_size(starts[number] + section["sh_size"])
        whole += bytes(starts[number] + section["sh_size"] - len(whole))
        if section["sh_type"] != "SHT_NOBITS":
            whole[starts[number] :] = section.data()
    return whole, starts


def _check_size(size: int) -> None:
    if size > MOST_BYTES:
        raise CodeObjectError(f"the code object takes {size} bytes of memory, at most {MOST_BYTES} are loaded")


def _symbols(elf: ELFFile, starts: dict[int, int], shared: bool) -> Iterator[tuple[str, int, Any]]:
    """Yield the named symbols of an object that lie in its memory: name, place, entry."""
    for table in (*elf.iter_sections(type="SHT_SYMTAB"), *elf.iter_sections(type="SHT_DYNSYM")):
        for symbol in cast("SymbolTableSection", table).iter_symbols():
            number: Any = symbol["st_shndx"]
            if symbol.name and isinstance(number, int) and number < NO_PLACE and (shared or number in starts):
                yield symbol.name, symbol["st_value"] + (0 if shared else starts[number]), symbol


def _relocations(
    elf: ELFFile, starts: dict[int, int], shared: bool
) -> Iterator[tuple[int, int, tuple[int, int], bool]]:
    """Yield relocations of memory: place, kind, symbol's place and addend, whether code is at the place."""
    for table in elf.iter_sections():
        if not isinstance(table, RelocationSection):
            continue
        number = table["sh_info"]
        if not shared and number not in starts:
            continue  # of what does not lie in memory: debug information
        symbols = cast("SymbolTableSection", elf.get_section(table["sh_link"]))
        code = not shared and bool(elf.get_section(number)["sh_flags"] & EXECUTED)
        for each in table.iter_relocations():
            place = each["r_offset"] + (0 if shared else starts[number])
            kind = each["r_info_type"]
            addend = each["r_addend"] if table.is_RELA() else 0
            symbol = 0 if kind in (NONE, RELATIVE64) else _value_of(symbols, each["r_info_sym"], starts, shared)
            yield place, kind, (symbol, addend), code


def _value_of(symbols: SymbolTableSection, number: int, starts: dict[int, int], shared: bool) -> int:
    symbol = symbols.get_symbol(number)
    section: Any = symbol["st_shndx"]
    if not isinstance(section, int) or section >= NO_PLACE or not (shared or section in starts):
        raise CodeObjectError(
            f"the code object uses {symbol.name or 'a symbol without name'}, which only a linker gives a place: link it"
        )
    return symbol["st_value"] + (0 if shared else starts[section])


def bytes_at(image: Image, symbol: str, size: int) -> bytes:
    """Return so many bytes of an image where a symbol lies; CodeObjectError where they are not in it."""
    place = image.places.get(symbol)
    if place is None or place + size > len(image.data):
        raise CodeObjectError(f"the code object has no {size} bytes under the symbol {symbol}")
    return image.data[place : place + size]
