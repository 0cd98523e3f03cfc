"""Matrix products that families here do not use, as LLVM compiles their intrinsics, against numpy.

Where elements lie is written once more here, as AMD's matrix calculator prints it: for each lane and element its block,
row and place along k. Operands are small whole numbers, so that every order of a sum gives one result.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import attrs
import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

from kinfolk.ir.types import I32, PointerType
from kinfolk.parameters import Parameter
from kinfolk.plugins.loading import load
from kinfolk_runtime.isa import MachineExecutor
from kinfolk_runtime.toolchains.base import CompileJob
from kinfolk_runtime.toolchains.host import toolchain_for

pytestmark = [pytest.mark.compile, pytest.mark.simulate, pytest.mark.needs("gfx942", "gfx950")]

Array = npt.NDArray[Any]
TYPES: dict[str, tuple[Any, str, int]] = {
    "f64": (np.float64, "double", 64),
    "f32": (np.float32, "float", 32),
    "xf32": (np.float32, "float", 32),
    "f16": (np.float16, "half", 16),
    "bf16": (ml_dtypes.bfloat16, "bfloat", 16),
    "i8": (np.int8, "i32", 8),
    "fp8": (None, "i32", 8),
    "bf8": (None, "i32", 8),
    "fp6": (ml_dtypes.float6_e2m3fn, "i32", 6),
    "bf6": (ml_dtypes.float6_e3m2fn, "i32", 6),
    "fp4": (ml_dtypes.float4_e2m1fn, "i32", 4),
}
"""Type of numpy, of LLVM and bits of elements."""
FLOAT8 = {
    "gfx942": {"fp8": ml_dtypes.float8_e4m3fnuz, "bf8": ml_dtypes.float8_e5m2fnuz},
    "gfx950": {"fp8": ml_dtypes.float8_e4m3fn, "bf8": ml_dtypes.float8_e5m2},
}
CODES = ("fp8", "bf8", "fp6", "bf6", "fp4")
PARAMETERS = tuple(Parameter(name=name, type=PointerType(I32), access="readwrite", alignment=16) for name in "xyzw")


@attrs.frozen(kw_only=True)
class Case:
    """An intrinsic and what it multiplies; `packed` are types of operands that are written otherwise in LLVM."""

    name: str
    m: int
    k: int
    a: str
    b: str = ""
    blocks: int = 1
    result: str = "f32"
    packed: tuple[str, str] = ("", "")
    sparse: bool = False
    scaled: bool = False
    cbsz: int = 0
    abid: int = 0
    blgp: int = 0
    cpu: str = ""
    flavor: str = ""

    @property
    def types(self) -> tuple[str, str]:
        return self.a, self.b or self.a

    def per_lane(self, number: int) -> int:
        kept = self.k // 2 if self.sparse and number == 0 else self.k
        return self.m * kept * self.blocks // 64

    @property
    def results(self) -> int:
        return self.m * self.m * self.blocks // 64

    @property
    def label(self) -> str:
        return f"{self.name}:{self.types[0]}:{self.types[1]}:{self.cbsz}{self.abid}{self.blgp}"


def cases() -> Iterator[Case]:
    for m, blocks in ((32, 2), (16, 4), (4, 16)):
        yield Case(name=f"mfma.f32.{m}x{m}x1f32", m=m, k=1, a="f32", blocks=blocks)
        yield Case(name=f"mfma.f32.{m}x{m}x4f16", m=m, k=4, a="f16", blocks=blocks)
        yield Case(name=f"mfma.f32.{m}x{m}x4bf16.1k", m=m, k=4, a="bf16", blocks=blocks, packed=("<4 x i16>",) * 2)
        yield Case(name=f"mfma.i32.{m}x{m}x4i8", m=m, k=4, a="i8", blocks=blocks, result="i32", packed=("i32",) * 2)
    yield Case(name="mfma.f32.16x16x4f16", m=16, k=4, a="f16", blocks=4, cbsz=1, abid=1)
    yield Case(name="mfma.f32.4x4x4f16", m=4, k=4, a="f16", blocks=16, cbsz=2, abid=3)
    yield Case(name="mfma.f32.32x32x1f32", m=32, k=1, a="f32", blocks=2, blgp=2)
    yield Case(name="mfma.f32.16x16x4f16", m=16, k=4, a="f16", blocks=4, blgp=3)
    yield Case(name="mfma.f32.16x16x4f16", m=16, k=4, a="f16", blocks=4, blgp=6)
    for m, k in ((16, 32), (32, 16)):
        yield Case(name=f"mfma.i32.{m}x{m}x{k}.i8", m=m, k=k, a="i8", result="i32", packed=("i64", "i64"))
        yield Case(name=f"mfma.i32.{m}x{m}x{2 * k}.i8", m=m, k=2 * k, a="i8", result="i32", cpu="gfx950")
        yield Case(name=f"mfma.f32.{m}x{m}x{k // 4}.xf32", m=m, k=k // 4, a="xf32", cpu="gfx942")
    yield Case(name="mfma.f64.16x16x4f64", m=16, k=4, a="f64", result="f64")
    yield Case(name="mfma.f64.4x4x4f64", m=4, k=4, a="f64", blocks=4, result="f64")
    yield Case(name="mfma.f64.4x4x4f64", m=4, k=4, a="f64", blocks=4, result="f64", blgp=1)
    for m, k in ((16, 32), (32, 16)):
        for bits, (abid, wide_abid) in ((16, (2, 1)), (8, (1, 0))):
            size = k * 16 // bits
            for abid_, wide in ((abid, 1), (wide_abid, 2)):
                same: dict[str, Any] = {"m": m, "k": size * wide, "sparse": True, "abid": abid_}
                same["cpu"] = "gfx950" if wide == 2 else ""
                shape = f"{m}x{m}x{size * wide}"
                if bits == 16:
                    yield Case(name=f"smfmac.f32.{shape}.f16", a="f16", **same)
                    narrow = ("<4 x i16>", "<8 x i16>") if wide == 1 else ("", "")
                    yield Case(name=f"smfmac.f32.{shape}.bf16", a="bf16", packed=narrow, **same)
                    continue
                yield Case(name=f"smfmac.i32.{shape}.i8", a="i8", result="i32", **same)
                for a, b in (("bf8", "bf8"), ("bf8", "fp8"), ("fp8", "bf8"), ("fp8", "fp8")):
                    yield Case(name=f"smfmac.f32.{shape}.{a}.{b}", a=a, b=b, **same)
    for m, k in ((16, 128), (32, 64)):
        for a in CODES:
            for b in CODES if m == 16 else (a,):
                yield Case(
                    name=f"mfma.scale.f32.{m}x{m}x{k}.f8f6f4",
                    m=m,
                    k=k,
                    a=a,
                    b=b,
                    scaled=True,
                    cpu="gfx950",
                    flavor="llvm22",
                )


CASES = list(cases())


def vector(type_: str, bits: int, count: int) -> str:
    """Return LLVM's type of elements in a lane."""
    if type_ == "i32" and bits < 32:
        type_, count = "i32", count * bits // 32
    return type_ if count == 1 else f"<{count} x {type_}>"


def kernel(case: Case) -> str:
    loads: list[str] = []
    names = []
    for number, (pointer, element) in enumerate(zip("xy", case.types, strict=True)):
        _, type_, bits = TYPES[element]
        written = case.packed[number] or vector(type_, bits, case.per_lane(number))
        stride = case.per_lane(number) * bits // 8
        loads += [
            f"  %i{pointer} = mul i32 %t, {stride}",
            f"  %p{pointer} = getelementptr i8, ptr addrspace(1) %{pointer}, i32 %i{pointer}",
            f"  %{pointer}0 = load {written}, ptr addrspace(1) %p{pointer}, align 4",
        ]
        names.append((written, f"%{pointer}0"))
    result = vector(TYPES.get(case.result, (0, "i32", 32))[1], TYPES.get(case.result, (0, "", 32))[2], case.results)
    size = case.results * (8 if case.result == "f64" else 4)
    operands = [*(f"{type_} {name}" for type_, name in names), f"{result} %z0"]
    types = [names[0][0], names[1][0], result]
    if case.sparse:
        operands += ["i32 %index", f"i32 {case.cbsz}", f"i32 {case.abid}"]
        types += ["i32"] * 3
    elif case.scaled:
        codes = [CODES.index(each) for each in case.types]
        operands += [f"i32 {codes[0]}", f"i32 {codes[1]}", "i32 1", "i32 %index", "i32 2", "i32 %second"]
        types += ["i32"] * 6
    else:
        operands += [f"i32 {case.cbsz}", f"i32 {case.abid}", f"i32 {case.blgp}"]
        types += ["i32"] * 3
    name = "llvm.amdgcn." + case.name
    if case.scaled:
        name += "".join(f".v{type_[1:].split(' ')[0]}i32" for type_, _ in names)
    return "\n".join(
        (
            'target triple = "amdgcn-amd-amdhsa"',
            *("define amdgpu_kernel void @k(ptr addrspace(1) %x, ptr addrspace(1) %y, ptr addrspace(1) %z,",),
            *("  ptr addrspace(1) %w) #0 {", "  %t = call i32 @llvm.amdgcn.workitem.id.x()"),
            *loads,
            *(f"  %iz = mul i32 %t, {size}", "  %pz = getelementptr i8, ptr addrspace(1) %z, i32 %iz"),
            f"  %z0 = load {result}, ptr addrspace(1) %pz, align 4",
            *("  %pw = getelementptr i32, ptr addrspace(1) %w, i32 %t", "  %index = load i32, ptr addrspace(1) %pw"),
            "  %pv = getelementptr i32, ptr addrspace(1) %pw, i32 64",
            "  %second = load i32, ptr addrspace(1) %pv",
            f"  %d = call {result} @{name}({', '.join(operands)})",
            *(f"  store {result} %d, ptr addrspace(1) %pz, align 4", "  ret void", "}"),
            f"declare {result} @{name}({', '.join(types)})",
            "declare i32 @llvm.amdgcn.workitem.id.x()",
            'attributes #0 = { "amdgpu-flat-work-group-size"="64,64" "amdgpu-no-implicitarg-ptr"',
            '  "amdgpu-no-dispatch-ptr" "amdgpu-no-queue-ptr" "amdgpu-no-dispatch-id" "amdgpu-agpr-alloc"="0" }',
        )
    )


def place(case: Case, number: int, lane: int, element: int) -> tuple[int, int, int]:
    """Return block, row of A (column of B) and k of an element of a lane; of sparse A, k among what is there."""
    row, rest = lane % case.m, lane // case.m
    block, group = rest % case.blocks, rest // case.blocks
    count = case.per_lane(number)
    if TYPES[case.types[number]][2] == 8 and case.scaled:  # two halves, each of which runs through all lanes
        half = count // 2
        return block, row, case.k // 2 * (element // half) + half * group + element % half
    return block, row, count * group + element


def result_place(case: Case, lane: int, slot: int) -> tuple[int, int, int]:
    """Return block, row and column of a slot of the result."""
    if case.m == 4:
        if case.result == "f64":
            return lane // 4 % 4, lane // 16, lane % 4
        return lane // 4, slot, lane % 4
    if case.m == 16:
        row = 4 * slot + lane // 16 if case.result == "f64" else 4 * (lane // 16) + slot % 4
        return (0 if case.result == "f64" else slot // 4), row, lane % 16
    return slot // 16, 8 * (slot // 4) % 32 + 4 * (lane // 32) + slot % 4, lane % 32


def numpy_type(case: Case, element: str, cpu: str) -> Any:
    return FLOAT8[cpu].get(element, TYPES[element][0])


def packed(values: Array, element: str, cpu: str, case: Case) -> Array:
    """Return values [lanes, elements] as bytes of registers."""
    held = values.astype(numpy_type(case, element, cpu))
    bits = TYPES[element][2]
    if bits >= 8:
        return np.ascontiguousarray(held).view(np.uint8)
    spread = held.view(np.uint8)[..., None] >> np.arange(bits, dtype=np.uint8) & 1
    return np.packbits(spread.reshape(len(values), -1), axis=1, bitorder="little")


def drawn(case: Case, generator: np.random.Generator) -> tuple[list[Array], list[Array]]:
    """Return what lanes hold of both operands, and both as matrices [blocks, row, k], sparse ones filled up."""
    held, matrices = [], []
    for number, element in enumerate(case.types):
        low, high = (-3, 4) if TYPES[element][2] > 6 else (0, 3)
        values = generator.integers(low, high, (64, case.per_lane(number)))
        kept = case.k // 2 if case.sparse and number == 0 else case.k
        matrix = np.zeros((case.blocks, case.m, kept))
        for lane in range(64):
            for at in range(case.per_lane(number)):
                matrix[place(case, number, lane, at)] = values[lane, at]
        held.append(values)
        matrices.append(matrix)
    return held, matrices


def moved(case: Case, a: Array, held_b: Array, b: Array) -> tuple[Array, Array]:
    """Return matrices after what fields do to them."""
    if case.result == "f64":
        return (-a if case.blgp & 1 else a), b
    if case.cbsz and not case.sparse:
        group = 1 << case.cbsz
        a = np.stack([a[block // group * group + case.abid] for block in range(case.blocks)])
    if case.blgp:
        lane = np.arange(64)
        source = {2: lane % 32 + 32, 3: (lane + 16) % 64, 6: lane % 16 + 32}[case.blgp]
        b = np.zeros_like(b)
        for each in range(64):
            for at in range(case.per_lane(1)):
                b[place(case, 1, each, at)] = held_b[source[each], at]
    return a, b


COMPILED = [(case, flavor) for case in CASES for flavor in ("llvm20", "llvm22") if case.flavor in ("", flavor)]


@pytest.mark.parametrize(("case", "flavor"), COMPILED, ids=[f"{case.label}-{flavor}" for case, flavor in COMPILED])
def test_a_product_is_that_of_its_matrices(case: Case, flavor: str) -> None:
    generator = np.random.default_rng(4)
    (held_a, held_b), (a, b) = drawn(case, generator)
    words = generator.integers(0, 1 << 32, 128, dtype=np.uint64).astype(np.uint32)
    kind = {"f64": np.float64, "f32": np.float32, "i32": np.int32}[case.result]
    c = generator.integers(-9, 9, (64, case.results)).astype(kind)
    if case.sparse:
        a = filled(case, a, words)
    if case.scaled:
        words = generator.integers(125, 131, (128, 4), dtype=np.uint8).view(np.uint32)[:, 0]
        a, b = (scaled(case, each, words[64 * n :] >> np.uint32(8 * (n + 1)) & 255) for n, each in enumerate((a, b)))
    a, b = moved(case, a, held_b, b)
    expected = np.zeros_like(c)
    product = np.einsum("bik,bjk->bij", a, b)
    for lane in range(64):
        for slot in range(case.results):
            expected[lane, slot] = product[result_place(case, lane, slot)] + c[lane, slot]
    for cpu in ("gfx942", "gfx950"):
        if case.cpu in ("", cpu):
            job = CompileJob(kernel="k", llvm_ir=kernel(case), triple="amdgcn-amd-amdhsa", cpu=cpu)
            code = toolchain_for(flavor).compile(job).object
            operands = [
                packed(held, element, cpu, case) for held, element in zip((held_a, held_b), case.types, strict=True)
            ]
            arrays = [np.ascontiguousarray(each).reshape(-1).view(np.int32) for each in (*operands, c.copy(), words)]
            arch = load("arch", cpu).plugin.kinfolk_arch()
            ran = MachineExecutor().launch(code, "k", arch, (1, 1, 1), 64, PARAMETERS, arrays).by_name
            assert any("mfma" in name for name in ran)
            assert (arrays[2].view(kind).reshape(c.shape) == expected).all()


def filled(case: Case, a: Array, words: Array) -> Array:
    """Return sparse A with zeros: two of four along k are there, 2 bits of the index of its lane for each."""
    count = case.per_lane(0)
    full = np.zeros((1, case.m, case.k))
    for lane in range(64):
        index = int(words[lane]) >> 2 * count * case.abid
        for at in range(count):
            block, row, k = place(case, 0, lane, at)
            full[block, row, k // 2 * 4 + (index >> 2 * at & 3)] += a[block, row, k]
    return full


def scaled(case: Case, matrix: Array, scales: Array) -> Array:
    """Return a matrix each 32 of which along k are times two to a scale, that of row r in lane r of their part."""
    full = matrix.copy()
    for row in range(case.m):
        for k in range(case.k):
            full[0, row, k] *= 2.0 ** (int(scales[row + case.m * (k // 32)]) - 127)
    return full


def test_a_product_of_other_operands_is_another_one() -> None:
    """The control: two elements along k of A exchanged change the result."""
    case = CASES[1]
    (_, _), (a, b) = drawn(case, np.random.default_rng(4))
    assert (np.einsum("bik,bjk->bij", a[:, :, [1, 0, 2, 3]], b) != np.einsum("bik,bjk->bij", a, b)).any()
