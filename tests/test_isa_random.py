"""Random programs in LLVM IR: what LLVM makes of one for these processors, run here, against its code for this host."""

from __future__ import annotations

import ctypes
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import numpy.typing as npt
import pytest
from random_llvm import ARRAY, Program

from kinfolk.machine import LaunchShape
from kinfolk.plugins.loading import load
from kinfolk_runtime.isa import MachineExecutor
from kinfolk_runtime.toolchains.base import CompileJob
from kinfolk_runtime.toolchains.host import toolchain_for

pytestmark = [pytest.mark.compile, pytest.mark.simulate, pytest.mark.needs("gfx942", "gfx950")]

Array = npt.NDArray[Any]
ITEMS, SHARED = 80, 5
FILLED = f"  %array = alloca [{ARRAY} x i32], addrspace(5)\n" + "".join(
    f"  %f{place} = getelementptr i32, ptr addrspace(5) %array, i32 {place}\n"
    f"  store i32 {place * place}, ptr addrspace(5) %f{place}\n"
    for place in range(ARRAY)
)
KERNEL = """target triple = "amdgcn-amd-amdhsa"
define amdgpu_kernel void @k(ptr addrspace(1) %in, ptr addrspace(1) %whole, i32 %n) #0 {{
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %place = mul i32 %t, 8
  %out = getelementptr i32, ptr addrspace(1) %whole, i32 %place
{body}
declare i32 @llvm.amdgcn.workitem.id.x()
attributes #0 = {{ "amdgpu-flat-work-group-size"="64,128" }}
"""
HOST = "define void @k(ptr %in, ptr %out, i32 %t, i32 %n) {{\n{body}\n"
CASES = [
    (seed, cpu, flavor, level)
    for seed in range(8)
    for cpu, flavor, level in (("gfx942", "llvm22", 3), ("gfx950", "llvm22", 0), ("gfx950", "llvm20", 3))
]


def on_host(body: str, given: Array) -> Array:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    plain = body.replace("ptr addrspace(1)", "ptr").replace("ptr addrspace(5)", "ptr").replace(", addrspace(5)", "")
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=1, jit=True
    )
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(HOST.format(body=plain)), machine)
    engine.finalize_object()
    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_int)(
        engine.get_function_address("k")
    )
    out = np.zeros((ITEMS, 8), np.uint32)
    for item in range(ITEMS):
        call(given.ctypes.data, out[item].ctypes.data, item, SHARED)
    return out


def on_machine(body: str, given: Array, cpu: str, flavor: str, level: int) -> Array:
    job = CompileJob(kernel="k", llvm_ir=KERNEL.format(body=body), triple="amdgcn-amd-amdhsa", cpu=cpu, opt_level=level)
    out, arch = np.zeros((ITEMS, 8), np.uint32), load("arch", cpu).plugin.kinfolk_arch()
    shape = LaunchShape(grid=(1, 1, 1), block=(ITEMS, 1, 1))
    MachineExecutor().launch_object(toolchain_for(flavor).compile(job).object, arch, shape, [given, out, SHARED])
    return out


def inputs(seed: int) -> Array:
    generator = np.random.default_rng(seed)
    edges = np.array([0, 1, 0xFFFFFFFF, 0x80000000, 0x7F800000, 0x00000001, 7, 64], np.uint32)
    return np.where(generator.random(64) < 0.5, generator.choice(edges, 64), generator.integers(0, 1 << 32, 64)).astype(
        np.uint32
    )


@pytest.mark.parametrize(("seed", "cpu", "flavor", "level"), CASES)
def test_a_random_program_gives_the_bits_that_this_host_gives(seed: int, cpu: str, flavor: str, level: int) -> None:
    body, given = FILLED + Program(seed, 25).text, inputs(seed)
    expected = on_host(body, given)
    assert on_machine(body, given, cpu, flavor, level).tolist() == expected.tolist()
    assert len(np.unique(expected)) > ITEMS


def test_another_program_gives_other_bits() -> None:
    """The control: a sum that is a difference on one of the two sides is seen."""
    body, given = FILLED + Program(1, 25).text, inputs(1)
    changed = body.replace(" = add i32 ", " = sub i32 ")
    assert (
        changed != body and on_machine(changed, given, "gfx942", "llvm22", 3).tolist() != on_host(body, given).tolist()
    )
