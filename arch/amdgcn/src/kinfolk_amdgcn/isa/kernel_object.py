"""A kernel as its code object has it: code, descriptor, and the registers that a launch sets.

Source: LLVM, "User Guide for AMDGPU Backend", sections "Kernel Descriptor" and "Initial Kernel Execution State".
"""

from __future__ import annotations

import struct
from typing import Final

import attrs

from kinfolk_amdgcn.codeobject import CodeObjectError, KernelMetadata, read_code_object
from kinfolk_amdgcn.isa.image import Image, bytes_at, read_image
from kinfolk_amdgcn.isa.waves import LANES

DESCRIPTOR: Final = ".kd"
DESCRIPTOR_BYTES: Final = 64
PRELOAD_PROLOGUE: Final = 256
"""Bytes at the start of a kernel with preloaded arguments that a processor which preloads them leaves out."""
DYNAMIC_STACK: Final = 11
"""The bit that says that how much private memory calls take is not known."""
STACK_BYTES: Final = 4096
"""What a lane then gets beside what is known; drivers give 1024 where nobody asks for more."""
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
    """One kernel: its code, `place` bytes from the start of `image`, and what a launch gives it.

    `user` are the names of what scalar registers hold from 0 on, with their number; `preload` (offset, count) dwords of
    the arguments follow. `axes` are those of which the workgroup's number follows, `item_axes` how many numbers of an
    item are in vector register 0. `vectors` registers come before the accumulation ones. `functions` are those of the
    object that are no kernels: their place in the image, and code.
    """

    symbol: str
    code: bytes
    image: Image
    place: int
    metadata: KernelMetadata
    local_bytes: int
    private_bytes: int
    vectors: int
    accumulators: int
    user: tuple[tuple[str, int], ...]
    preload: tuple[int, int]
    axes: tuple[int, ...]
    item_axes: int
    functions: tuple[tuple[int, bytes], ...]
    denormals_f32: int
    rounding_f32: int
    denormals_f16_f64: int
    rounding_f16_f64: int


def read_kernel(data: bytes, symbol: str | None) -> KernelObject:
    """Return a kernel of a code object, its only one for None.

    Raises CodeObjectError where it is not in it, or needs what only a linker gives.
    """
    loaded = read_code_object(data)
    if symbol is None:
        if len(loaded.kernels) != 1:
            raise CodeObjectError(f"the code object holds kernels {', '.join(loaded.kernels) or 'none'}: name one")
        [symbol] = loaded.kernels
    if symbol not in loaded.kernels:
        raise CodeObjectError(
            f"the code object holds no kernel {symbol}; it holds {', '.join(loaded.kernels) or 'none'}"
        )
    if loaded.kernels[symbol].wavefront_size != LANES:
        raise CodeObjectError(
            f"kernel {symbol} has waves of {loaded.kernels[symbol].wavefront_size} lanes, those run here have {LANES}"
        )
    if symbol not in loaded.functions:
        raise CodeObjectError(f"the code object has metadata of kernel {symbol} but no code under that symbol")
    image = read_image(data)
    code = bytes_at(image, symbol, len(loaded.functions[symbol]))
    if not code:
        raise CodeObjectError(f"kernel {symbol} has 0 bytes of code")
    functions = tuple(
        (image.places[name], bytes_at(image, name, len(held)))
        for name, held in loaded.functions.items()
        if name not in loaded.kernels and name in image.places
    )
    descriptor = bytes_at(image, symbol + DESCRIPTOR, DESCRIPTOR_BYTES)
    return _described(image, code, loaded.kernels[symbol], descriptor, functions)


def _described(
    image: Image,
    code: bytes,
    metadata: KernelMetadata,
    descriptor: bytes,
    functions: tuple[tuple[int, bytes], ...],
) -> KernelObject:
    local_bytes, private_bytes = struct.unpack_from("<II", descriptor)
    third, first, second, properties, preload = struct.unpack_from("<IIIHH", descriptor, 44)
    total, begin = 8 * ((first & 0x3F) + 1), 4 * ((third & 0x3F) + 1)
    user = tuple(each for bit, each in enumerate(_USER) if properties >> bit & 1)
    count, offset = preload & 0x7F, preload >> 7
    return KernelObject(
        symbol=metadata.symbol,
        code=code[PRELOAD_PROLOGUE:] if count else code,
        image=image,
        place=image.places[metadata.symbol] + (PRELOAD_PROLOGUE if count else 0),
        metadata=metadata,
        local_bytes=local_bytes,
        private_bytes=private_bytes + (STACK_BYTES if properties >> DYNAMIC_STACK & 1 else 0),
        vectors=min(total, begin),
        accumulators=max(0, total - begin),
        user=user,
        preload=(offset, count),
        axes=tuple(axis for axis in range(3) if second >> 7 + axis & 1),
        functions=functions,
        item_axes=(second >> 11 & 3) + 1,
        denormals_f32=first >> 16 & 3,
        rounding_f32=first >> 12 & 3,
        denormals_f16_f64=first >> 18 & 3,
        rounding_f16_f64=first >> 14 & 3,
    )
