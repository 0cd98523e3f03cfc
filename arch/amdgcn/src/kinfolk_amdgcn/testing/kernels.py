"""Kernels that every arch must compile: one that uses most portable ops, one that fills workgroup memory, one store."""

from __future__ import annotations

from typing import Final

from kinfolk.arch import Arch
from kinfolk.ir import build_kernel
from kinfolk.ir.ops import arithmetic, control, convert, lanes, memory, vector
from kinfolk.ir.types import BF16, F32, I32, PointerType
from kinfolk.ir.value import Kernel, Value
from kinfolk.parameters import Parameter

BLOCK: Final = 256
MASKS: Final = (1, 2, 4, 8, 16, 32)
ROW_PARAMETERS: Final = (
    Parameter(name="x", type=PointerType(BF16), alignment=16),
    Parameter(name="sums", type=PointerType(F32), access="write", alignment=4),
    Parameter(name="row_length", type=I32),
)


def _softmax_sums(x: Value, sums: Value, row_length: Value) -> None:
    lane, row = lanes.lane_id(), lanes.block_id(axis=0) * 4 + lanes.wave_id()
    view = memory.bound(memory.offset(x, row * row_length), row_length)
    values = convert.fpext(memory.view_load(view, lane * 8, count=8), to=F32)
    largest = vector.extract(values, index=0)
    for index in range(1, 8):
        largest = arithmetic.fmax(largest, vector.extract(values, index=index))
    for mask in MASKS:
        largest = arithmetic.fmax(largest, lanes.shuffle_xor(largest, mask=mask))
    powers = arithmetic.exp2(values - vector.splat(largest, count=8))
    total = vector.extract(powers, index=0)
    for index in range(1, 8):
        total = total + vector.extract(powers, index=index)
    for mask in MASKS:
        total = total + lanes.shuffle_xor(total, mask=mask)
    shared = memory.allocate(F32, 4)
    control.if_else(lane.eq(0), lambda: memory.workgroup_store(shared, lanes.wave_id(), total) or ())
    control.barrier()
    own = memory.workgroup_load(shared, lane & 3)
    control.if_else(lane < 4, lambda: memory.store(memory.offset(sums, row * 4 + lane), own) or ())


def row_kernel(arch: Arch) -> Kernel:
    """Return `row_sums`: per row of bf16, a wave each, the sum of 2^(x - max) over up to 512 elements, as f32."""
    attributes = {"workgroups_per_cu": 8}
    return build_kernel("row_sums", ROW_PARAMETERS, arch=arch, block=BLOCK, attributes=attributes, body=_softmax_sums)


def filling_kernel(arch: Arch, elements: int) -> Kernel:
    """Return `fill`: it writes and reads the last 256 of so many f32 of workgroup memory."""

    def body(x: Value, sums: Value, row_length: Value) -> None:
        tile, thread = memory.allocate(F32, elements), lanes.thread_id()
        memory.workgroup_store(tile, thread, convert.sitofp(thread, to=F32), offset=elements - BLOCK)
        control.barrier()
        own = memory.workgroup_load(tile, thread ^ 1, offset=elements - BLOCK)
        memory.store(memory.offset(sums, thread), own)

    attributes = {"workgroups_per_cu": 1}
    return build_kernel("fill", ROW_PARAMETERS, arch=arch, block=BLOCK, attributes=attributes, body=body)


def storing_kernel(arch: Arch) -> Kernel:
    """Return `one_store`: each lane stores its number to one place."""
    parameter = Parameter(name="to", type=PointerType(I32), access="write", alignment=4)

    def body(to: Value) -> None:
        memory.store(to, lanes.lane_id())

    return build_kernel("one_store", [parameter], arch=arch, block=arch.wave_size, body=body)
