"""A kernel as its code object has it: code, descriptor, and the registers that a launch sets.

Source: LLVM, "User Guide for AMDGPU Backend", sections "Kernel Descriptor" and "Initial Kernel Execution State".
"""

from __future__ import annotations

import io
import struct
from typing import Any, Final, cast

import attrs
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from kinfolk_amdgcn.codeobject import CodeObjectError, KernelMetadata, read_code_object

DESCRIPTOR: Final = ".kd"
DESCRIPTOR_BYTES: Final = 64
PRELOAD_PROLOGUE: Final = 256
"""Bytes at the start of a kernel with preloaded arguments that a processor which preloads them leaves out."""
_USER: Final = (
    ("private_segment_buffer", 4),
    ("dispatch_ptr", 2),
    ("queue_ptr", 2),
    ("kernarg_ptr", 2),
    ("dispatch_id", 2),
    ("flat_scratch_init", 2),
    ("private_segment_size", 1),
)
"""What scalar registers hold at the start, in order, each if its bit is set, and how many it takes."""


@attrs.frozen(kw_only=True)
class KernelObject:
    """One kernel: its code, and what a launch gives it.

    `user` are the names of what scalar registers hold from 0 on, with their number; `preload` (offset, count) dwords of
    the arguments follow. `axes` are those of which the workgroup's number follows, `item_axes` how many numbers of an
    item are in vector register 0. `vectors` registers come before the accumulation ones.
    """

    symbol: str
    code: bytes
    metadata: KernelMetadata
    local_bytes: int
    private_bytes: int
    vectors: int
    accumulators: int
    user: tuple[tuple[str, int], ...]
    preload: tuple[int, int]
    axes: tuple[int, ...]
    item_axes: int
    denormals_f32: int
    rounding_f32: int


def read_kernel(data: bytes, symbol: str) -> KernelObject:
    """Return a kernel of a code object; CodeObjectError where it is not in it, or its code has to be linked first."""
    loaded = read_code_object(data)
    if symbol not in loaded.kernels:
        raise CodeObjectError(
            f"the code object holds no kernel {symbol}; it holds {', '.join(loaded.kernels) or 'none'}"
        )
    elf = ELFFile(io.BytesIO(data))
    if any(elf.get_section_by_name(f"{kind}.text") is not None for kind in (".rela", ".rel")):
        raise CodeObjectError(f"the code of {symbol} has addresses that are not known before it is linked: link it")
    return _described(loaded.functions[symbol], loaded.kernels[symbol], _descriptor(elf, symbol))


def _descriptor(elf: ELFFile, symbol: str) -> bytes:
    for table in (*elf.iter_sections(type="SHT_SYMTAB"), *elf.iter_sections(type="SHT_DYNSYM")):
        for each in cast("SymbolTableSection", table).iter_symbols():
            if each.name == symbol + DESCRIPTOR and each["st_shndx"] != "SHN_UNDEF":
                section: Any = elf.get_section(each["st_shndx"])
                start = each["st_value"] - (section["sh_addr"] if elf["e_type"] == "ET_DYN" else 0)
                found: bytes = section.data()[start : start + DESCRIPTOR_BYTES]
                if len(found) == DESCRIPTOR_BYTES:
                    return found
    raise CodeObjectError(f"the code object has no whole descriptor of kernel {symbol}")


def _described(code: bytes, metadata: KernelMetadata, descriptor: bytes) -> KernelObject:
    local_bytes, private_bytes = struct.unpack_from("<II", descriptor)
    third, first, second, properties, preload = struct.unpack_from("<IIIHH", descriptor, 44)
    total, begin = 8 * ((first & 0x3F) + 1), 4 * ((third & 0x3F) + 1)
    user = tuple(each for bit, each in enumerate(_USER) if properties >> bit & 1)
    count, offset = preload & 0x7F, preload >> 7
    return KernelObject(
        symbol=metadata.symbol,
        code=code[PRELOAD_PROLOGUE:] if count else code,
        metadata=metadata,
        local_bytes=local_bytes,
        private_bytes=private_bytes,
        vectors=min(total, begin),
        accumulators=max(0, total - begin),
        user=user,
        preload=(offset, count),
        axes=tuple(axis for axis in range(3) if second >> 7 + axis & 1),
        item_axes=(second >> 11 & 3) + 1,
        denormals_f32=first >> 16 & 3,
        rounding_f32=first >> 12 & 3,
    )
