"""A small kernel on two made-up archs, which the tests of lowering look at."""

from __future__ import annotations

from functools import partial

from kinfolk.arch import Arch
from kinfolk.ir import build_kernel
from kinfolk.ir.ops import lanes, memory
from kinfolk.ir.types import F32, I32, PointerType
from kinfolk.matrix import MatrixCatalog
from kinfolk.parameters import Parameter
from kinfolk_amdgcn import ops
from kinfolk_amdgcn.lowering import lower_kernel

FACTS = {
    "lds_bytes": 65536,
    "simds_per_cu": 4,
    "max_waves_per_simd": 8,
    "max_workgroup_size": 1024,
    "buffer_word3": 0x00027000,
}


def an_arch(cpu, wave_size, **facts):
    return Arch(
        name=f"test-{cpu}",
        target_ids=(cpu,),
        wave_size=wave_size,
        facts=FACTS | facts,
        matrix=MatrixCatalog(()),
        ops=ops.OPS,
        lower_kernel=partial(lower_kernel, legality=None),
        read_usage=lambda code, symbol, arch: None,
    )


WAVE64 = an_arch("gfx942", 64)
WAVE32 = an_arch("gfx1100", 32, buffer_word3=0x31014000, simds_per_cu=2, max_waves_per_simd=16)


def pointer(name, element, access="readwrite", alignment=16):
    return Parameter(name=name, type=PointerType(element), access=access, alignment=alignment)


PARAMETERS = (
    pointer("x", F32, "read"),
    pointer("y", F32),
    pointer("counter", I32, alignment=4),
    Parameter(name="n", type=I32),
)


def kernel(body, *, arch=WAVE64, block=256, parameters=PARAMETERS, **attributes):
    return build_kernel("k", parameters, arch=arch, block=block, attributes=attributes, body=body)


def at(base, index):
    return memory.offset(base, index)


def of_each_lane(compute, count=1):
    """A kernel that loads `count` f32, computes, and stores whatever f32 or 32-bit integers come out."""

    def body(x, y, counter, n):
        thread = lanes.thread_id()
        loaded = memory.load(at(x, thread * count), count=count)
        result = compute(loaded, n)
        target = y if result.scalar == F32 else counter
        memory.store(at(target, thread * 4), result)

    return body


def instructions(assembly):
    """Return the code lines of an assembly text, mnemonics first."""
    code = assembly.partition("s_endpgm")[0]
    lines = [line.partition("//")[0].strip() for line in code.splitlines()]
    return [line for line in lines if line and line[0] not in ".;/@" and not line.endswith(":")]
