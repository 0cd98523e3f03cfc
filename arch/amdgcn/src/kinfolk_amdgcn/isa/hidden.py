"""What a launch passes beside the declared arguments: hidden arguments in their block, and the dispatch packet.

Source: LLVM, "User Guide for AMDGPU Backend", "Code Object V5 Metadata"; HSA, "Kernel dispatch packet".
"""

from __future__ import annotations

import struct
from typing import Final

from kinfolk.machine import LaunchShape
from kinfolk_amdgcn.codeobject import CodeObjectError, KernelMetadata

PACKET_ALIGNMENT: Final = 64
_AXES: Final = "xyz"
_NOTHING: Final = (
    *("hidden_none", "hidden_printf_buffer", "hidden_hostcall_buffer", "hidden_multigrid_sync_arg", "hidden_heap_v1"),
    *("hidden_default_queue", "hidden_completion_action", "hidden_queue_ptr"),
)
"""Hidden arguments that are no address here: code that goes there stops at an access to address 0."""


def hidden_values(shape: LaunchShape) -> dict[str, int]:
    """Return hidden arguments by kind, for whole workgroups from the first item on."""
    values = dict.fromkeys(_NOTHING, 0)
    for axis, count, size in zip(_AXES, shape.grid, shape.block, strict=True):
        values[f"hidden_block_count_{axis}"] = count
        values[f"hidden_group_size_{axis}"] = size
        values[f"hidden_remainder_{axis}"] = values[f"hidden_global_offset_{axis}"] = 0
    values["hidden_grid_dims"] = max(
        (axis + 1 for axis in range(3) if shape.grid[axis] * shape.block[axis] > 1), default=1
    )
    values["hidden_dynamic_lds_size"] = shape.dynamic_bytes
    return values


def argument_block(kernel: KernelMetadata, shape: LaunchShape, with_packet: bool) -> bytes:
    """Return the argument block: hidden arguments, zeros in the place of others, and after it the dispatch packet.

    Raises CodeObjectError for a hidden argument that is not known here.
    """
    block = bytearray(kernel.kernarg_segment_size)
    values = hidden_values(shape)
    for each in kernel.hidden:
        if each.kind not in values:
            raise CodeObjectError(f"kernel {kernel.symbol} takes {each.kind}, which is not modelled")
        if each.offset + each.size > len(block):
            raise CodeObjectError(f"kernel {kernel.symbol} takes {each.kind} past its {len(block)} bytes of arguments")
        if values[each.kind] >> 8 * each.size:
            raise CodeObjectError(
                f"{each.kind} of {kernel.symbol} has {each.size} bytes, less than {values[each.kind]}"
            )
        block[each.offset : each.offset + each.size] = values[each.kind].to_bytes(each.size, "little")
    if with_packet:
        block += bytes(packet_place(len(block)) - len(block)) + _packet(shape)
    return bytes(block)


def packet_place(size: int) -> int:
    """Return where the dispatch packet lies after an argument block of so many bytes."""
    return -(-size // PACKET_ALIGNMENT) * PACKET_ALIGNMENT


def _packet(shape: LaunchShape) -> bytes:
    """Return the part of a dispatch packet that code reads: sizes of workgroups and of the grid in items."""
    items = [count * size for count, size in zip(shape.grid, shape.block, strict=True)]
    head = struct.pack("<HHHHHHIII", 2, 3, *shape.block, 0, *items)
    return head.ljust(PACKET_ALIGNMENT, b"\0")
