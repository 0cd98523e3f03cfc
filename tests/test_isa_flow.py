"""What LLVM makes of loops that lanes leave at different places, calls, arrays in registers, and code not optimised.

The oracle of each is a loop in Python over lanes. Kernels take x, y (i32 arrays) and the launch's number of items.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from kinfolk.machine import LaunchShape
from kinfolk.plugins.loading import load
from kinfolk_amdgcn.isa.fault import MachineFault
from kinfolk_runtime.isa import MachineExecutor
from kinfolk_runtime.toolchains.base import CompileJob
from kinfolk_runtime.toolchains.host import toolchain_for

pytestmark = [pytest.mark.compile, pytest.mark.simulate, pytest.mark.needs("gfx942", "gfx950")]

Array = npt.NDArray[Any]
TARGETS = [(cpu, flavor, level) for cpu, flavor in (("gfx942", "llvm20"), ("gfx950", "llvm22")) for level in (0, 3)]
KERNEL = """
target triple = "amdgcn-amd-amdhsa"
{functions}
define amdgpu_kernel void @k(ptr addrspace(1) %x, ptr addrspace(1) %y, i32 %n) #0 {{
entry:
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %p = getelementptr i32, ptr addrspace(1) %x, i32 %t
  %q = getelementptr i32, ptr addrspace(1) %y, i32 %t
  %a = load i32, ptr addrspace(1) %p
{body}
  store i32 %r, ptr addrspace(1) %q
  ret void
}}
declare i32 @llvm.amdgcn.workitem.id.x()
attributes #0 = {{ "amdgpu-flat-work-group-size"="64,128" }}
"""
ITEMS = 100
X = (np.arange(ITEMS) * 2654435761 % 97).astype(np.int32)


def result(
    cpu: str, flavor: str, level: int, body: str, functions: str = "", n: int = 5
) -> tuple[Array, dict[str, int]]:
    """Return y and how often each instruction ran, of a workgroup of 100 items: its second wave is partly filled."""
    text = KERNEL.format(body=body, functions=functions)
    job = CompileJob(kernel="k", llvm_ir=text, triple="amdgcn-amd-amdhsa", cpu=cpu, opt_level=level)
    y, arch = np.full(ITEMS, -1, np.int32), load("arch", cpu).plugin.kinfolk_arch()
    shape = LaunchShape(grid=(1, 1, 1), block=(ITEMS, 1, 1))
    given = [X, y, n]
    code = toolchain_for(flavor).compile(job).object
    executor = MachineExecutor()
    many = len(arch.machine.load(code, None, arch).entry.arguments)
    return y, dict(executor.launch_object(code, arch, shape, given[:many]).by_name)


LEAVES = """
  br label %head
head:
  %i = phi i32 [ 0, %entry ], [ %i1, %rest ]
  %s = phi i32 [ %a, %entry ], [ %s2, %rest ]
  %s1 = add i32 %s, %i
  %low = and i32 %s1, 7
  %early = icmp eq i32 %low, 3
  br i1 %early, label %found, label %rest
rest:
  %s2 = mul i32 %s1, 3
  %large = icmp ugt i32 %s2, 1000
  %i1 = add i32 %i, 1
  %more = icmp ult i32 %i1, %t
  br i1 %more, label %head, label %out
found:
  %even = icmp eq i32 %a, 0
  br label %out
out:
  %flag = phi i1 [ %large, %rest ], [ %even, %found ]
  %j = phi i32 [ %s2, %rest ], [ %i, %found ]
  %b = zext i1 %flag to i32
  %m = mul i32 %b, 1000
  %r = add i32 %j, %m
"""


def leaves(t: int, a: int) -> int:
    i, s = 0, a
    while True:
        s += i
        if s & 7 == 3:
            return i + 1000 * (a == 0)
        s, i = s * 3 & 0xFFFFFFFF, i + 1
        if i >= t:
            return s + 1000 * (s > 1000) & 0xFFFFFFFF


@pytest.mark.parametrize(("cpu", "flavor", "level"), TARGETS)
def test_lanes_leave_a_loop_at_different_places(cpu: str, flavor: str, level: int) -> None:
    """Masks of those that left are merged in registers of which, in the first round, no bit is written."""
    y, _ = result(cpu, flavor, level, LEAVES)
    assert y.view(np.uint32).tolist() == [leaves(t, int(a)) for t, a in enumerate(X)]


FUNCTIONS = """
define internal i32 @twice(i32 %v, i32 %d) noinline {
  %s = alloca [4 x i32], addrspace(5)
  %j = and i32 %v, 3
  %e = getelementptr i32, ptr addrspace(5) %s, i32 %j
  store volatile i32 %d, ptr addrspace(5) %e
  %w = load volatile i32, ptr addrspace(5) %e
  %m = mul i32 %v, 2
  %z = add i32 %m, %w
  ret i32 %z
}
define internal i32 @nested(i32 %v, i32 %d) noinline {
  %b = call i32 @twice(i32 %v, i32 %d)
  %c = call i32 @twice(i32 %b, i32 7)
  ret i32 %c
}
@table = internal addrspace(4) constant [2 x ptr] [ptr @twice, ptr @nested]
"""
CALLS = """
  %odd = and i32 %a, 1
  %e = getelementptr ptr, ptr addrspace(4) @table, i32 %odd
  %f = load ptr, ptr addrspace(4) %e
  %c = call i32 %f(i32 %a, i32 %t)
  %r = call i32 @nested(i32 %c, i32 1)
"""


@pytest.mark.parametrize(("cpu", "flavor", "level"), TARGETS)
def test_functions_are_called_by_name_and_by_an_address_that_differs_by_lane(cpu: str, flavor: str, level: int) -> None:
    y, ran = result(cpu, flavor, level, CALLS, FUNCTIONS)

    def twice(v: int, d: int) -> int:
        return 2 * v + d

    def nested(v: int, d: int) -> int:
        return twice(twice(v, d), 7)

    chosen = [(nested if a % 2 else twice)(int(a), t) for t, a in enumerate(X)]
    assert y.tolist() == [nested(c, 1) for c in chosen]
    assert ran["s_swappc_b64"] and ran["s_setpc_b64"]


NOT_CODE = """
  %wrong = inttoptr i64 4096 to ptr
  %f = select i1 true, ptr %wrong, ptr null
  %h = call ptr asm "", "=s,0"(ptr %f)
  %r = call i32 %h(i32 %a)
"""


def test_a_call_to_where_no_code_is_stops() -> None:
    with pytest.raises(
        MachineFault, match=r"s_swappc_b64 .* bytes from the kernel, where no instruction begins"
    ) as found:
        result("gfx942", "llvm22", 3, NOT_CODE)
    assert found.value.kind == "memory"


IN_REGISTERS = """
  %v0 = insertelement <16 x i32> zeroinitializer, i32 %a, i32 %n
  %m = and i32 %a, 15
  %v1 = insertelement <16 x i32> %v0, i32 %t, i32 %m
  %b = extractelement <16 x i32> %v1, i32 %n
  %k = and i32 %t, 15
  %c = extractelement <16 x i32> %v1, i32 %k
  %d = mul i32 %b, 1000
  %r = add i32 %c, %d
"""


@pytest.mark.parametrize(("cpu", "flavor", "level"), TARGETS)
def test_elements_of_an_array_in_registers_are_found_by_number(cpu: str, flavor: str, level: int) -> None:
    """By one that all lanes share, and by one that differs."""
    y, ran = result(cpu, flavor, level, IN_REGISTERS)
    expected: list[int] = []
    for t, a in enumerate(X):
        held = [0] * 16
        held[5] = int(a)
        held[int(a) % 16] = t
        expected.append(held[t % 16] + 1000 * held[5])
    assert y.tolist() == expected
    assert ran["s_set_gpr_idx_on"] and ran["s_set_gpr_idx_off"]


def test_a_number_past_the_registers_stops() -> None:
    with pytest.raises(MachineFault, match=r"v_mov_b32 .* v\d+, the kernel has \d+ such registers") as found:
        result("gfx942", "llvm22", 3, IN_REGISTERS, n=255)
    assert found.value.kind == "memory"


SIGNS = """
  %x0 = sitofp i32 %a to float
  %x1 = sitofp i32 %t to float
  %odd = and i32 %a, 1
  %is = icmp eq i32 %odd, 0
  %g = fneg float %x0
  %s = select i1 %is, float %g, float %x1
  %bits = bitcast float %s to i32
  %r = add i32 %bits, 0
"""


@pytest.mark.parametrize(("cpu", "flavor", "level"), TARGETS)
def test_a_selected_float_changes_its_sign(cpu: str, flavor: str, level: int) -> None:
    y, _ = result(cpu, flavor, level, SIGNS)
    expected = np.where(X % 2 == 0, -X.astype(np.float32), np.arange(ITEMS, dtype=np.float32))
    assert y.view(np.float32).tobytes() == expected.astype(np.float32).tobytes()
