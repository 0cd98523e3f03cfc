"""Kernels that the tests of the IR share. Run as a program it prints the text of one of them, named by its argument."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping

from kinfolk.arch import Arch
from kinfolk.ir import Kernel, build_kernel, current_builder
from kinfolk.ir.op import OpDef
from kinfolk.ir.ops import arithmetic as a
from kinfolk.ir.ops import control, convert, float8, lanes, memory, vector
from kinfolk.ir.ops.control import SCHEDULE_FENCE
from kinfolk.ir.text import print_kernel
from kinfolk.ir.types import (
    BF16,
    F8E4M3FN,
    F8E4M3FNUZ,
    F8E5M2,
    F8E5M2FNUZ,
    F16,
    F32,
    F64,
    I1,
    I8,
    I16,
    I32,
    I64,
    PointerType,
    VectorType,
)
from kinfolk.ir.value import Value
from kinfolk.matrix import MatrixCatalog
from kinfolk.parameters import Parameter


def _no_code(*_: object) -> object:
    raise AssertionError("these tests compile nothing for this arch")


def portable_arch(
    wave_size: int = 64, ops: tuple[OpDef, ...] = (), lacking: Mapping[str, str] | None = None, name: str = "portable"
) -> Arch:
    """An arch with the portable ops, and those given."""
    return Arch(
        name=name,
        target_ids=(name,),
        wave_size=wave_size,
        facts={},
        matrix=MatrixCatalog(()),
        ops=ops,
        lacking=lacking or {},
        lower_kernel=_no_code,
        read_usage=_no_code,
    )


def pointer(name: str, element, access: str = "read", alignment: int = 16) -> Parameter:
    return Parameter(name=name, type=PointerType(element), access=access, alignment=alignment)


def number(name: str, type_=I32) -> Parameter:
    return Parameter(name=name, type=type_)


def kernel(body: Callable[..., None], *parameters: Parameter, arch: Arch | None = None, **options: object) -> Kernel:
    """Build `body` for one wave of the arch."""
    arch = arch or portable_arch()
    return build_kernel("sample", parameters, arch=arch, block=arch.wave_size, body=body, **options)


INTEGER = (a.add, a.sub, a.mul, a.udiv, a.urem, a.sdiv, a.srem, a.and_, a.or_, a.xor, a.shl, a.lshr, a.ashr)
INTEGER += (a.smin, a.smax, a.umin, a.umax)
FLOAT = (a.fadd, a.fsub, a.fmul, a.fdiv, a.fmax, a.fmin)
FLOAT_UNARY = (a.fneg, a.fabs, a.rint, a.sqrt, a.exp2, a.log2, a.rcp)


def every_op(wave_size: int = 64) -> Kernel:
    """A kernel in which every portable op occurs; it computes nothing of use."""

    def body(x: Value, y: Value, n: Value, wide: Value, scale: Value) -> None:
        thread = lanes.thread_id() + lanes.lane_id() + lanes.wave_id() + lanes.block_id(axis=1)
        for op in INTEGER:
            thread = op(thread, n)
        half = memory.load(memory.offset(x, wide), count=4, alignment=8, invariant=True)
        single = convert.fpext(half, to=F32)
        for op in FLOAT:
            single = op(single, single)
        for op in FLOAT_UNARY:
            single = op(single)
        single = a.fma(single, single, vector.splat(scale, count=4))
        chosen = a.select(
            a.fcmp(single, single, predicate="olt"), single, vector.shuffle(single, single, indices=(7, 0, 1, 2))
        )
        tile = memory.allocate(BF16, 256)
        short = float8.widen_float8(float8.narrow_float8(chosen, to=F8E5M2, overflow="saturate"), to=F16)
        chosen = convert.fpext(short, to=F32)
        memory.workgroup_store(tile, lanes.uniform(thread), convert.fptrunc(chosen, to=BF16), offset=4, scope="tile")
        control.barrier()
        control.meet("half")
        SCHEDULE_FENCE.add()
        row = memory.workgroup_load(tile, lanes.first_lane(thread), count=2, alignment=4)
        packed = lanes.byte_permute(convert.bitcast(row, to=I32), thread, selector=(0, 5, 1, 7))
        crossed = lanes.shuffle_xor(packed, mask=wave_size // 2)
        long = convert.sext(convert.trunc(convert.zext(convert.trunc(crossed, to=I8), to=I64), to=I16), to=I64)
        view = memory.bound(memory.offset(y, long), control.opaque(n, uniform=True))

        def step(index: Value, carried: tuple[Value, ...]) -> list[Value]:
            (total,) = carried
            rare = lanes.any_lane(a.icmp(index, n, predicate="ugt"))
            (total,) = control.if_else(rare, lambda: [total * 2.0], lambda: [total], cold=True)
            return [total + convert.sitofp(index, to=F32)]

        (total,) = control.for_range(0, n, 2, [vector.extract(chosen, index=3)], step)
        memory.view_store(view, thread, memory.view_load(view, thread, count=2))
        memory.store(y, vector.pack(total, total), alignment=8)
        memory.atomic_add(y, convert.sitofp(convert.fptosi(total, to=I32), to=F32))

    parameters = (
        pointer("x", BF16),
        pointer("y", F32, "readwrite", 8),
        number("n"),
        number("wide", I64),
        number("scale", F32),
    )
    attributes = {
        "workgroups_per_cu": 2,
        "accumulators": "vgpr",
        "tuned": True,
        "order": (1, -2),
        "of": VectorType(BF16, 2),
    }
    return kernel(body, *parameters, arch=portable_arch(wave_size), attributes=attributes)


CONSTANTS = {
    I1: (0, 1),
    I8: (0, 0x7F, 0x80, 0xFF),
    I16: (0x8000, 0xFFFF),
    I32: (0x7FFFFFFF, 0x80000000, 0xFFFFFFFF),
    I64: (1 << 63, (1 << 64) - 1, (1 << 63) - 1),
    F16: (0x7C00, 0x7C01, 0xFC00, 0x8000),
    BF16: (0x7F80, 0x7F81, 0xFFFF, 0x0001),
    F32: (0x7FC00001, 0x7F800001, 0xFF800000, 0x80000000, 0x00000001, 0x3DCCCCCD),
    F64: (0x7FF0000000000001, 0xFFF8000000000000, 0x8000000000000000, 1),
    F8E4M3FN: (0x7F, 0x80, 0xFE),
    F8E5M2: (0x7D, 0xFC),
    F8E4M3FNUZ: (0x80,),
    F8E5M2FNUZ: (0x80, 0xFF),
}


def constants() -> Kernel:
    """Constants of every type: NaN payloads, signed zeros, denormals, and integers of either sign bit."""

    def body() -> None:
        for type_, patterns in CONSTANTS.items():
            for bits in patterns:
                current_builder().constant_bits(bits, type_)

    return kernel(body)


def nested() -> Kernel:
    """Loops and branches in each other, with several carried values, swapped and unused ones, and names used twice."""

    def body(y: Value, n: Value) -> None:
        one = current_builder().constant(1, I32)

        def outer(i: Value, carried: tuple[Value, ...]) -> tuple[Value, ...]:
            p, q = carried
            p, q = control.for_range(i, n, 3, (q, p), lambda j, inner: (inner[1], inner[0] + j))
            return control.if_else(
                p < q, lambda: (q, control.if_else(q.eq(7), lambda: [p], lambda: [i])[0]), lambda: (p, p)
            )

        p, q = control.for_range(0, n, 1, (one, n), outer)
        control.if_else(p.ne(q), lambda: memory.store(y, p + q) or ())

    return kernel(body, pointer("y", I32, "write"), number("n"))


KERNELS: dict[str, Callable[[], Kernel]] = {
    "every_op": every_op,
    "every_op_of_32_lanes": lambda: every_op(32),
    "constants": constants,
    "nested": nested,
}

if __name__ == "__main__":
    sys.stdout.write(print_kernel(KERNELS[sys.argv[1]]()))
