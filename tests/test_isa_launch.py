"""Any code object runs: here of LLVM IR written by hand, launched without a plan."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kinfolk.errors import BindError, SimulationError, ToolError
from kinfolk.ir.types import I32, PointerType
from kinfolk.parameters import Parameter
from kinfolk.plugins.loading import load
from kinfolk_amdgcn.isa.fault import MachineFault
from kinfolk_amdgcn.isa.kernel_object import read_kernel
from kinfolk_runtime.isa import MachineExecutor
from kinfolk_runtime.simulator.engine import Simulator
from kinfolk_runtime.toolchains.base import CompileJob
from kinfolk_runtime.toolchains.host import toolchain_for

pytestmark = [pytest.mark.compile, pytest.mark.simulate, pytest.mark.needs("gfx942", "gfx950")]

PARAMETERS = (
    Parameter(name="x", type=PointerType(I32), access="readwrite", alignment=4),
    Parameter(name="n", type=I32),
)
KERNEL = """
target triple = "amdgcn-amd-amdhsa"
define amdgpu_kernel void @k(ptr addrspace(1) {passed} %x, i32 {passed} %n) #0 {{
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %g = call i32 @llvm.amdgcn.workgroup.id.x()
  %o = mul i32 %g, 128
  %i = add i32 %o, %t
  %p = getelementptr i32, ptr addrspace(1) %x, i32 %i
{body}
}}
declare i32 @llvm.amdgcn.workitem.id.x()
declare i32 @llvm.amdgcn.workgroup.id.x()
declare i32 @llvm.amdgcn.readfirstlane.i32(i32)
declare void @llvm.amdgcn.s.barrier()
attributes #0 = {{ "amdgpu-flat-work-group-size"="128,128" "amdgpu-no-implicitarg-ptr" "amdgpu-no-dispatch-ptr"
  "amdgpu-no-queue-ptr" "amdgpu-no-dispatch-id" "amdgpu-no-flat-scratch-init" }}
"""
ADD = "  %v = add i32 %i, %n\n  store i32 %v, ptr addrspace(1) %p\n  ret void"
HALF_WAITS = """  %wave = call i32 @llvm.amdgcn.readfirstlane.i32(i32 %t)
  %first = icmp ult i32 %wave, 64
  br i1 %first, label %waits, label %goes
waits:
  call void @llvm.amdgcn.s.barrier()
  call void @llvm.amdgcn.s.barrier()
  br label %goes
goes:
  call void @llvm.amdgcn.s.barrier()
  store i32 %n, ptr addrspace(1) %p
  ret void"""
LOOP = """  br label %again
again:
  %k = phi i32 [ 0, %0 ], [ %k1, %again ]
  %s = phi i32 [ 0, %0 ], [ %s1, %again ]
  %s1 = add i32 %s, %k
  %k1 = add i32 %k, 1
  %more = icmp ult i32 %k1, %t
  br i1 %more, label %again, label %done
done:
  store i32 %s1, ptr addrspace(1) %p
  ret void"""


def compiled(cpu: str, body: str, passed: str = "", flavor: str = "llvm22") -> bytes:
    text = KERNEL.format(body=body, passed=passed)
    return (
        toolchain_for(flavor).compile(CompileJob(kernel="k", llvm_ir=text, triple="amdgcn-amd-amdhsa", cpu=cpu)).object
    )


def launched(cpu: str, code: bytes, count: int, n: int = 7) -> Any:
    x = np.full(count, -1, np.int32)
    arch = load("arch", cpu).plugin.kinfolk_arch()
    MachineExecutor().launch(code, "k", arch, (3, 1, 1), 128, PARAMETERS, (x, n))
    return x


@pytest.mark.parametrize("flavor", ["llvm20", "llvm22"])
@pytest.mark.parametrize("cpu", ["gfx942", "gfx950"])
def test_arguments_come_from_memory_or_preloaded(cpu: str, flavor: str) -> None:
    """`inreg` has them in scalar registers at the start, and the code begins past what older firmware would run."""
    for passed, preloaded in (("", 0), ("inreg", 3)):
        code = compiled(cpu, ADD, passed, flavor)
        assert read_kernel(code, "k").preload == (0, preloaded)
        assert (launched(cpu, code, 384) == np.arange(384) + 7).all()


def test_lanes_leave_a_loop_one_by_one() -> None:
    """Each lane sums the numbers below its own: lane 0 runs the body once."""
    found = launched("gfx942", compiled("gfx942", LOOP), 384)
    assert found.tolist() == [max(0, t * (t - 1) // 2) for t in range(128)] * 3


def test_a_loop_that_never_ends_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kinfolk_amdgcn.isa.engine.MOST_STEPS", 1000)
    endless = "  br label %again\nagain:\n  store volatile i32 %n, ptr addrspace(1) %p\n  br label %again"
    with pytest.raises(MachineFault, match="after 1000 instructions, and the waves have not ended") as caught:
        launched("gfx942", compiled("gfx942", endless), 384)
    assert caught.value.kind == "limit"
    assert (launched("gfx942", compiled("gfx942", ADD), 384) == np.arange(384) + 7).all()


def test_an_access_past_its_array_names_instruction_buffer_and_place() -> None:
    with pytest.raises(MachineFault, match=r"k: global_store_dword at offset 0x\w+ writes byte \d+ of x") as caught:
        launched("gfx942", compiled("gfx942", ADD), 300)
    fault = caught.value
    assert isinstance(fault, SimulationError)
    assert (fault.kind, fault.kernel, fault.instruction, fault.workgroup) == (
        "memory",
        "k",
        "global_store_dword",
        (2, 0, 0),
    )
    assert fault.wave == 0 and fault.lanes == (44,), "300 is 2 * 128 + 44"


def test_waves_that_wait_for_others_that_have_ended_are_told() -> None:
    with pytest.raises(MachineFault, match="barrier that others, which have ended, do not reach") as caught:
        launched("gfx942", compiled("gfx942", HALF_WAITS), 384)
    assert caught.value.kind == "sync"


X = np.zeros(128, np.int32)
READ_ONLY = X.copy()
READ_ONLY.flags.writeable = False


@pytest.mark.parametrize(
    ("grid", "block", "count", "arguments", "said"),
    [
        ((0, 1, 1), 128, 2, (X, 7), r"grid is \(0, 1, 1\)"),
        ((1, 1, 1), 0, 2, (X, 7), r"block is \(0, 1, 1\)"),
        ((1, 1, 1), 129, 2, (X, 7), "129 items; k is compiled for 128"),
        ((1, 1, 1), 128, 1, (X,), r"k takes 2 arguments: .*; 1 parameters are declared"),
        ((1, 1, 1), 128, 2, (X,), r"2 parameters \(x, n\), 1 arguments are given"),
        ((1, 1, 1), 128, 2, (X, 1 << 31), "argument n of k is 2147483648, its type is i32"),
        ((1, 1, 1), 128, 2, (X, 1.5), "argument n of k is 1.5, its type is i32"),
        ((1, 1, 1), 128, 2, (X, True), "argument n of k is True, its type is i32"),
        ((1, 1, 1), 128, 2, (5, 7), "parameter x is a pointer, got 5"),
        ((1, 1, 1), 128, 2, (READ_ONLY, 7), "argument x is an array that may only be read"),
        ((1, 1, 1), 128, 2, (np.array([None]), 7), "argument x is an array of object"),
    ],
)
def test_a_launch_that_does_not_fit_is_told(
    grid: tuple[int, int, int], block: int, count: int, arguments: tuple[Any, ...], said: str
) -> None:
    code, arch = compiled("gfx942", ADD), load("arch", "gfx942").plugin.kinfolk_arch()
    with pytest.raises(BindError, match=said):
        MachineExecutor().launch(code, "k", arch, grid, block, PARAMETERS[:count], arguments)
    MachineExecutor().launch(code, "k", arch, (1, 1, 1), 128, PARAMETERS, (X, -(1 << 31)))


def test_an_alignment_that_is_no_power_of_two_is_told() -> None:
    for alignment in (0, 3, -4):
        with pytest.raises(BindError, match=f"alignment is {alignment}: pass a power of two"):
            MachineExecutor(alignment=alignment)


def test_a_seed_that_is_none_is_told_by_its_field() -> None:
    for make, name in ((MachineExecutor, "seed"), (Simulator, "order_seed"), (Simulator().with_order, "order_seed")):
        assert make(0) and make(7)
        for wrong in ("a", True, 1.0, None):
            with pytest.raises(TypeError, match=f"^{name} takes a Python int, got {wrong!r} of type"):
                make(wrong)
        with pytest.raises(ValueError, match=f"^{name} must be at least 0, got -1"):
            make(-1)


def test_damaged_objects_are_told_and_none_ends_in_an_error_of_ours() -> None:
    """Bytes of an object changed at random, and its end cut off: it runs, or a message says what is wrong."""
    code, generator = compiled("gfx942", ADD), np.random.default_rng(5)
    told = 0
    for number in range(300):
        damaged = np.frombuffer(code, np.uint8).copy()
        places = generator.integers(0, len(code), 1 + number % 4)
        damaged[places] = generator.integers(0, 256, len(places))
        whole = damaged.tobytes()[: len(code) if number % 5 else int(generator.integers(0, len(code)))]
        try:
            launched("gfx942", whole, 3 * 128)
        except (SimulationError, ToolError, BindError):
            told += 1
    assert 50 < told < 300
    end = compiled("gfx942", ADD).replace((0xBF810000).to_bytes(4, "little"), (0xBF800000).to_bytes(4, "little"))
    with pytest.raises(MachineFault, match="the last instruction of the code: no s_endpgm ends the waves"):
        launched("gfx942", end, 3 * 128)


@pytest.mark.parametrize(
    ("mode", "said"),
    [
        (
            '"denormal-fp-math"="preserve-sign,preserve-sign" "denormal-fp-math-f32"="ieee,ieee"',
            "denormals of f16 and f64",
        ),
        ('"denormal-fp-math-f32"="preserve-sign,preserve-sign"', "flushes f32 denormals"),
    ],
)
def test_a_kernel_that_flushes_denormals_of_any_type_stops(mode: str, said: str) -> None:
    text = KERNEL.format(body=ADD, passed="").replace("attributes #0 = {", "attributes #0 = { " + mode)
    job = CompileJob(kernel="k", llvm_ir=text, triple="amdgcn-amd-amdhsa", cpu="gfx942")
    with pytest.raises(MachineFault, match=said) as found:
        launched("gfx942", toolchain_for("llvm22").compile(job).object, 3 * 128)
    assert found.value.kind == "unsupported"
