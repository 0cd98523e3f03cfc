"""What LLVM makes of IR that families here do not write: atomics, flat addresses, private memory, records of buffers.

The oracle of each is a loop in Python over the lanes in their order, or a formula of numpy.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

from kinfolk.ir.types import I32, PointerType
from kinfolk.parameters import Parameter
from kinfolk.plugins.loading import load
from kinfolk_amdgcn.isa.fault import MachineFault
from kinfolk_runtime.isa import MachineExecutor
from kinfolk_runtime.toolchains.base import CompileJob
from kinfolk_runtime.toolchains.host import toolchain_for

pytestmark = [pytest.mark.compile, pytest.mark.simulate, pytest.mark.needs("gfx942", "gfx950")]

Array = npt.NDArray[Any]
TARGETS = [(cpu, flavor) for cpu in ("gfx942", "gfx950") for flavor in ("llvm20", "llvm22")]
PARAMETERS = tuple(Parameter(name=name, type=PointerType(I32), access="readwrite", alignment=16) for name in "xyz")
HEAD = """
target triple = "amdgcn-amd-amdhsa"
@shared = internal addrspace(3) global [1024 x i64] poison, align 16
define amdgpu_kernel void @k(ptr addrspace(1) %x, ptr addrspace(1) %y, ptr addrspace(1) %z) #0 {
  %t = call i32 @llvm.amdgcn.workitem.id.x()
"""
TAIL = """
  ret void
}
declare i32 @llvm.amdgcn.workitem.id.x()
declare void @llvm.amdgcn.s.barrier()
declare ptr addrspace(8) @llvm.amdgcn.make.buffer.rsrc.p8.p1(ptr addrspace(1), i16, SIZE, i32)
declare i32 @llvm.amdgcn.struct.ptr.buffer.load.i32(ptr addrspace(8), i32, i32, i32, i32)
declare void @llvm.amdgcn.struct.ptr.buffer.store.i32(i32, ptr addrspace(8), i32, i32, i32, i32)
declare i32 @llvm.amdgcn.struct.ptr.buffer.atomic.add.i32(i32, ptr addrspace(8), i32, i32, i32, i32)
attributes #0 = { "amdgpu-flat-work-group-size"="64,64" "amdgpu-no-implicitarg-ptr" "amdgpu-no-dispatch-ptr"
  "amdgpu-no-queue-ptr" "amdgpu-no-dispatch-id" }
!0 = !{}
"""


def compiled(cpu: str, flavor: str, body: str, tail: str = TAIL) -> bytes:
    text = (HEAD + body + tail).replace("SIZE", "i32" if flavor == "llvm20" else "i64")
    job = CompileJob(kernel="k", llvm_ir=text, triple="amdgcn-amd-amdhsa", cpu=cpu)
    return toolchain_for(flavor).compile(job).object


def launched(cpu: str, code: bytes, *arrays: Array) -> dict[str, int]:
    """Run one workgroup of 64 items on arrays, which it changes; return how often it ran each instruction."""
    arch = load("arch", cpu).plugin.kinfolk_arch()
    given = [np.ascontiguousarray(each).view(np.int32).reshape(-1) for each in arrays]
    given += [np.zeros(16, np.int32)] * (len(PARAMETERS) - len(given))
    return dict(MachineExecutor().launch(code, "k", arch, (1, 1, 1), 64, PARAMETERS, given).by_name)


def signed(bits: int) -> Callable[[int], int]:
    return lambda value: value - (value >> bits - 1 << bits)


def summed(kind: Any) -> Callable[[int, int], int]:
    size = np.dtype(kind).itemsize

    def change(old: int, new: int) -> int:
        a, b = (np.array(each, f"u{size}").view(kind) for each in (old, new))
        return int((a + b).astype(kind).view(f"u{size}"))

    return change


def in_pairs(kind: Any) -> Callable[[int, int], int]:
    one = summed(kind)
    return lambda old, new: one(old & 0xFFFF, new & 0xFFFF) | one(old >> 16, new >> 16) << 16


def chosen(pick: Any, bits: int) -> Callable[[int, int], int]:
    return lambda old, new: pick(old, new, key=signed(bits))


def of_floats(pick: Any) -> Callable[[int, int], int]:
    return lambda old, new: pick(old, new, key=lambda each: float(np.array(each, np.uint64).view(np.float64)))


INTEGERS: dict[str, Callable[[int], Callable[[int, int], int]]] = {
    "xchg": lambda bits: lambda old, new: new,
    "add": lambda bits: lambda old, new: old + new,
    "sub": lambda bits: lambda old, new: old - new,
    "and": lambda bits: lambda old, new: old & new,
    "or": lambda bits: lambda old, new: old | new,
    "xor": lambda bits: lambda old, new: old ^ new,
    "max": lambda bits: chosen(max, bits),
    "min": lambda bits: chosen(min, bits),
    "umax": lambda bits: max,
    "umin": lambda bits: min,
    "uinc_wrap": lambda bits: lambda old, new: 0 if old >= new else old + 1,
    "udec_wrap": lambda bits: lambda old, new: new if old == 0 or old > new else old - 1,
}
FLOATS: list[tuple[str, str, int, Callable[[int, int], int]]] = [
    ("fadd", "float", 4, summed(np.float32)),
    ("fadd", "double", 8, summed(np.float64)),
    ("fmax", "double", 8, of_floats(max)),
    ("fmin", "double", 8, of_floats(min)),
    ("fadd", "<2 x half>", 4, in_pairs(np.float16)),
    ("fadd", "<2 x bfloat>", 4, in_pairs(ml_dtypes.bfloat16)),
]
CHANGES: list[tuple[str, str, int, Callable[[int, int], int]]] = [
    *((name, f"i{bits}", bits // 8, of(bits)) for name, of in INTEGERS.items() for bits in (32, 64)),
    *FLOATS,
]
PLACES = 8
"""How many places the 64 lanes meet at."""


def atomics(space: str) -> str:
    """Return IR that does every change at places of x, with operands of y, and stores what was there to z."""
    lines = ["  %place = and i32 %t, 7"]
    for number, (name, type_, size, _) in enumerate(CHANGES):
        base = number * 64
        lines += [
            f"  %i{number} = add i32 %t, {base}",
            f"  %y{number} = getelementptr i64, ptr addrspace(1) %y, i32 %i{number}",
            f"  %z{number} = getelementptr i64, ptr addrspace(1) %z, i32 %i{number}",
            f"  %v{number} = load {type_}, ptr addrspace(1) %y{number}",
            f"  %s{number} = add i32 %place, {number * PLACES}",
        ]
        pointer = "ptr addrspace(1) %x" if space != "3" else "ptr addrspace(3) @shared"
        kind = pointer.split(" %")[0].split(" @")[0]
        lines += [f"  %p{number} = getelementptr i64, {pointer}, i32 %s{number}"]
        if space == "0":
            lines += [f"  %c{number} = addrspacecast {kind} %p{number} to ptr"]
            lines += [f'  %q{number} = call ptr asm "", "=v,0"(ptr %c{number})']  # hides where it points to
            kind, pointer = "ptr", f"%q{number}"
        else:
            pointer = f"%p{number}"
        if space == "3":
            lines += [
                f"  %g{number} = getelementptr i64, ptr addrspace(1) %x, i32 %s{number}",
                f"  %h{number} = load i64, ptr addrspace(1) %g{number}",
                f"  store i64 %h{number}, ptr addrspace(3) %p{number}",
            ]
        notes = ", !amdgpu.no.fine.grained.memory !0, !amdgpu.no.remote.memory !0, !amdgpu.ignore.denormal.mode !0"
        ordering = 'syncscope("agent") monotonic'
        lines += [
            f"  %r{number} = atomicrmw {name} {kind} {pointer}, {type_} %v{number} {ordering}, align {size}{notes}",
            f"  store {type_} %r{number}, ptr addrspace(1) %z{number}",
        ]
        if space == "3":
            lines += [
                f"  %a{number} = load i64, ptr addrspace(3) %p{number}",
                f"  store i64 %a{number}, ptr addrspace(1) %g{number}",
            ]
    return "\n".join(lines)


def operands(generator: np.random.Generator) -> tuple[Array, Array]:
    """Return what is in memory, and operands, of every change; floats are small numbers and halves of them."""
    held = np.zeros((len(CHANGES), PLACES), np.uint64)
    given = np.zeros((len(CHANGES), 64), np.uint64)
    kinds: dict[str, Any] = {"float": np.float32, "double": np.float64, "<2 x half>": np.float16}
    for number, (_, type_, size, _) in enumerate(CHANGES):
        for array in (held, given):
            row = array[number]
            if type_.startswith("i"):
                small = generator.integers(0, 12, row.shape).astype(np.uint64)
                any_ = generator.integers(0, 1 << 62, row.shape).astype(np.uint64) * np.uint64(3)
                row[:] = np.where(generator.random(row.shape) < 0.5, small, any_) & np.uint64((1 << 8 * size) - 1)
            else:
                kind = kinds.get(type_, ml_dtypes.bfloat16)
                count = size // np.dtype(kind).itemsize
                values = (generator.integers(-40, 40, (*row.shape, count)) / 2).astype(kind)
                row[:] = np.ascontiguousarray(values).view(f"u{size}")[..., 0]
    return held, given


def expected(held: Array, given: Array) -> tuple[Array, Array]:
    held, before = held.copy(), np.zeros_like(given)
    for number, (_, _, size, change) in enumerate(CHANGES):
        for lane in range(64):
            old = int(held[number, lane % PLACES])
            before[number, lane] = old
            held[number, lane % PLACES] = change(old, int(given[number, lane])) & (1 << 8 * size) - 1
    return held, before


@pytest.mark.parametrize("space", ["0", "1", "3"])
@pytest.mark.parametrize(("cpu", "flavor"), TARGETS)
def test_lanes_change_places_one_after_the_other(cpu: str, flavor: str, space: str) -> None:
    """In memory, in workgroup memory, and at flat addresses; what lanes get back is what was there before each."""
    held, given = operands(np.random.default_rng(3))
    wanted, before = expected(held, given)
    returned = np.zeros_like(given)
    ran = launched(cpu, compiled(cpu, flavor, atomics(space)), held, given, returned)
    prefix = {"0": "flat_atomic_", "1": "global_atomic_", "3": "ds_"}[space]
    assert len([name for name in ran if name.startswith(prefix)]) > 20
    for number, (name, type_, _, _) in enumerate(CHANGES):
        assert (returned[number] == before[number]).all(), (name, type_)
        assert (held[number] == wanted[number]).all(), (name, type_)


def test_a_change_that_is_another_one_is_seen() -> None:
    held, given = operands(np.random.default_rng(3))
    wanted, _ = expected(held, given)
    code = compiled("gfx942", "llvm22", atomics("1").replace("atomicrmw umax", "atomicrmw max", 1))
    launched("gfx942", code, held, given, np.zeros_like(given))
    assert (held != wanted).any(axis=1).sum() == 1


SWAP = """
  %place = and i32 %t, 15
  %p = getelementptr {type}, ptr addrspace(1) %x, i32 %place
  %w = zext i32 %t to i64
  %i = {narrow} i64 %w to {type}
  %c = and {type} %i, 48
  %r = cmpxchg ptr addrspace(1) %p, {type} %c, {type} %i syncscope("agent") monotonic monotonic
  %o = extractvalue {{ {type}, i1 }} %r, 0
  %q = getelementptr {type}, ptr addrspace(1) %y, i32 %t
  store {type} %o, ptr addrspace(1) %q
"""


@pytest.mark.parametrize("type_", ["i32", "i64"])
@pytest.mark.parametrize(("cpu", "flavor"), TARGETS)
def test_a_place_is_swapped_where_it_holds_what_is_expected(cpu: str, flavor: str, type_: str) -> None:
    kind = np.uint32 if type_ == "i32" else np.uint64
    x, y = np.array([16 * (place % 4) for place in range(16)], kind), np.zeros(64, kind)
    held, before = x.copy(), y.copy()
    for lane in range(64):
        before[lane] = held[lane % 16]
        if held[lane % 16] == lane & 48:
            held[lane % 16] = lane
    launched(cpu, compiled(cpu, flavor, SWAP.format(type=type_, narrow="trunc" if type_ == "i32" else "bitcast")), x, y)
    assert (x == held).all() and (y == before).all()


PRIVATE = """
  %a = alloca [24 x i32], align 16, addrspace(5)
  br label %fill
fill:
  %k = phi i32 [ 0, %0 ], [ %k1, %fill ]
  %p = getelementptr [24 x i32], ptr addrspace(5) %a, i32 0, i32 %k
  %m = mul i32 %k, %t
  store volatile i32 %m, ptr addrspace(5) %p
  %k1 = add i32 %k, 1
  %more = icmp ult i32 %k1, {filled}
  br i1 %more, label %fill, label %filled
filled:
  %n = urem i32 %t, 24
  %q = getelementptr [24 x i32], ptr addrspace(5) %a, i32 0, i32 %n
  %v = load volatile i32, ptr addrspace(5) %q
  %f = addrspacecast ptr addrspace(5) %q to ptr
  %w = load volatile i32, ptr %f
  %h = getelementptr i8, ptr addrspace(5) %q, i32 1
  %b = load volatile i8, ptr addrspace(5) %h
  %e = zext i8 %b to i32
  %s = add i32 %v, %w
  %u = add i32 %s, %e
  %o = getelementptr i32, ptr addrspace(1) %x, i32 %t
  store i32 %u, ptr addrspace(1) %o
"""


@pytest.mark.parametrize(("cpu", "flavor"), TARGETS)
def test_each_lane_has_private_memory_that_flat_addresses_reach(cpu: str, flavor: str) -> None:
    x = np.zeros(64, np.int32)
    ran = launched(cpu, compiled(cpu, flavor, PRIVATE.format(filled=24)), x)
    lane = np.arange(64)
    value = lane % 24 * lane
    assert (x == 2 * value + (value >> 8 & 255)).all()
    assert any(name.startswith("scratch_load") for name in ran) and any(name.startswith("flat_load") for name in ran)


def test_private_memory_that_nothing_wrote_is_told() -> None:
    with pytest.raises(MachineFault, match="private memory that was never written") as caught:
        launched("gfx942", compiled("gfx942", "llvm22", PRIVATE.format(filled=20)), np.zeros(64, np.int32))
    assert caught.value.kind == "uninitialised" and caught.value.lanes == (20,)


SHARED = """
  %p = getelementptr i64, ptr addrspace(3) @shared, i32 %t
  %f = addrspacecast ptr addrspace(3) %p to ptr
  %odd = and i32 %t, 1
  %is = icmp eq i32 %odd, 1
  %g = getelementptr i64, ptr addrspace(1) %x, i32 %t
  %h = addrspacecast ptr addrspace(1) %g to ptr
  %c = select i1 %is, ptr %f, ptr %h
  %w = zext i32 %t to i64
  store volatile i64 %w, ptr %c
  %v = load volatile i64, ptr %c
  %d = mul i64 %v, 3
  %o = getelementptr i64, ptr addrspace(1) %y, i32 %t
  store i64 %d, ptr addrspace(1) %o
"""


@pytest.mark.parametrize(("cpu", "flavor"), TARGETS)
def test_a_flat_address_is_in_one_memory_or_another_by_lane(cpu: str, flavor: str) -> None:
    x, y = np.full(64, -1, np.int64), np.zeros(64, np.int64)
    launched(cpu, compiled(cpu, flavor, SHARED), x, y)
    lane = np.arange(64)
    assert (y == 3 * lane).all() and (x == np.where(lane % 2 == 0, lane, -1)).all()


RECORDS = """
  %r = call ptr addrspace(8) @llvm.amdgcn.make.buffer.rsrc.p8.p1(ptr addrspace(1) %x, i16 {stride}, SIZE {count},
    i32 {flags})
  %v = call i32 @llvm.amdgcn.struct.ptr.buffer.load.i32(ptr addrspace(8) %r, i32 %t, i32 8, i32 0, i32 0)
  %o = getelementptr i32, ptr addrspace(1) %y, i32 %t
  store i32 %v, ptr addrspace(1) %o
  %a = call i32 @llvm.amdgcn.struct.ptr.buffer.atomic.add.i32(i32 %t, ptr addrspace(8) %r, i32 %t, i32 4, i32 0, i32 0)
  %z1 = getelementptr i32, ptr addrspace(1) %z, i32 %t
  store i32 %a, ptr addrspace(1) %z1
"""


@pytest.mark.parametrize(("cpu", "flavor"), TARGETS)
def test_records_of_a_buffer_are_found_by_their_number(cpu: str, flavor: str) -> None:
    """Records of 16 bytes, of which the third dword is read and the second one added to; a size in doubt stops."""
    x = np.arange(64 * 4, dtype=np.int32).reshape(64, 4)
    before, y, z = x.copy(), np.full(64, -1, np.int32), np.full(64, -1, np.int32)
    body = RECORDS.format(stride=16, count=40, flags=0x27000)
    lane = np.arange(64)
    with pytest.raises(MachineFault, match="whether a size counts bytes or records"):
        launched(cpu, compiled(cpu, flavor, body), x, y, z)
    body = RECORDS.format(stride=16, count=64 * 16, flags=0x27000)
    launched(cpu, compiled(cpu, flavor, body), x, y, z)
    assert (y == before[:, 2]).all() and (z == before[:, 1]).all()
    assert (x[:, 1] == before[:, 1] + lane).all() and (x[:, [0, 2, 3]] == before[:, [0, 2, 3]]).all()


def saturated(kind: Any, function: Any) -> Any:
    """Return a function of integers computed in 64 bits and kept in the range of a type."""
    ends = np.iinfo(kind)
    return lambda a, b: np.clip(function(a.astype(np.int64), b.astype(np.int64)), ends.min, ends.max).astype(kind)


F16 = np.float16
PLAIN: dict[str, tuple[Any, str, str, Any]] = {
    "add": (F16, "half", "  %r = fadd half %a, %b", lambda a, b: a + b),
    "multiply": (F16, "half", "  %r = fmul half %a, %b", lambda a, b: a * b),
    "divide": (F16, "half", "  %r = fdiv half %a, %b", lambda a, b: a / b),
    "larger": (F16, "half", "  %r = call half @llvm.maxnum.f16(half %a, half %b)", np.fmax),
    "root": (
        F16,
        "half",
        "  %c = call half @llvm.fabs.f16(half %a)\n  %r = call half @llvm.sqrt.f16(half %c)",
        lambda a, b: np.sqrt(np.abs(a)),
    ),
    "floor": (F16, "half", "  %r = call half @llvm.floor.f16(half %a)", lambda a, b: np.floor(a)),
    "pairs": (
        F16,
        "<2 x half>",
        "  %r = call <2 x half> @llvm.fma.v2f16(<2 x half> %a, <2 x half> %b, <2 x half> %a)",
        lambda a, b: (a.astype(np.float64) * b + a).astype(F16),
    ),
    "to_integer": (F16, "half", "  %i = fptosi half %a to i16\n  %r = sitofp i16 %i to half", lambda a, b: np.trunc(a)),
    "f64": (np.float64, "double", "  %r = fdiv double %a, %b", lambda a, b: a / b),
    "f64_root": (
        np.float64,
        "double",
        "  %c = fmul double %a, %a\n  %r = call double @llvm.sqrt.f64(double %c)",
        lambda a, b: np.sqrt(a * a),
    ),
    "add_u16": (np.uint16, "i16", "  %r = call i16 @llvm.uadd.sat.i16(i16 %a, i16 %b)", saturated(np.uint16, np.add)),
    "sub_i16": (
        np.int16,
        "<2 x i16>",
        "  %r = call <2 x i16> @llvm.ssub.sat.v2i16(<2 x i16> %a, <2 x i16> %b)",
        saturated(np.int16, np.subtract),
    ),
    "sub_u32": (
        np.uint32,
        "i32",
        "  %r = call i32 @llvm.usub.sat.i32(i32 %a, i32 %b)",
        saturated(np.uint32, np.subtract),
    ),
    "add_i32": (np.int32, "i32", "  %r = call i32 @llvm.sadd.sat.i32(i32 %a, i32 %b)", saturated(np.int32, np.add)),
    "quotient": (np.int64, "i64", "  %r = sdiv i64 %a, %b", lambda a, b: np.trunc(a / b).astype(np.int64)),
}
"""What is computed of two operands a lane, or two of each: type, LLVM's type, IR and numpy's own."""


@pytest.mark.parametrize("flavor", ["llvm20", "llvm22"])
@pytest.mark.parametrize("name", sorted(PLAIN))
def test_lanes_compute_what_numpy_does(name: str, flavor: str) -> None:
    """Sums and products of 16 bits are exact or rounded once; whole numbers stay below what f64 holds exactly."""
    kind, type_, body, formula = PLAIN[name]
    generator, count = np.random.default_rng(9), 128 if type_.startswith("<") else 64
    if np.dtype(kind).kind == "f":
        a, b = ((generator.normal(size=count) * 40).astype(kind) for _ in range(2))
    else:
        low, high = (-(1 << 40), 1 << 40) if kind == np.int64 else (np.iinfo(kind).min, np.iinfo(kind).max)
        a, b = (generator.integers(low, high, count, dtype=kind) for _ in range(2))
        b[::3] = np.where(b[::3] % 17 == 0, 1, b[::3] % 17)
    lines = [body]
    for pointer, value in (("x", "a"), ("y", "b")):
        lines.insert(0, f"  %{value} = load {type_}, ptr addrspace(1) %p{pointer}")
        lines.insert(0, f"  %p{pointer} = getelementptr {type_}, ptr addrspace(1) %{pointer}, i32 %t")
    lines += [
        f"  %pz = getelementptr {type_}, ptr addrspace(1) %z, i32 %t",
        f"  store {type_} %r, ptr addrspace(1) %pz",
    ]
    declared = sorted(set(re.findall(r"(\S+|<[^>]*>) (@llvm\.\S+?)\((.*)\)$", body, re.MULTILINE)))
    tail = TAIL + "".join(
        f"declare {type_} {function}({', '.join([type_] * (operands.count('%')))})\n"
        for _, function, operands in declared
    )
    for cpu in ("gfx942", "gfx950"):
        found = np.zeros(count, kind)
        launched(cpu, compiled(cpu, flavor, "\n".join(lines), tail), a.copy(), b.copy(), found)
        with np.errstate(all="ignore"):
            expected = formula(a, b)
        assert (found == expected).all(), (cpu, a[found != expected], b[found != expected])
