"""The model of time on whole kernels: of LLVM IR written by hand, and of MLA beside the static models of `inspect`."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from kinfolk.ir.types import F32, I32, PointerType
from kinfolk.parameters import Parameter
from kinfolk.plugins.loading import load
from kinfolk.timing import LaunchTrace, Timing, sensitivity
from kinfolk_runtime.isa import MachineExecutor
from kinfolk_runtime.toolchains.base import CompileJob
from kinfolk_runtime.toolchains.host import toolchain_for

pytestmark = [pytest.mark.compile, pytest.mark.simulate, pytest.mark.needs("mla", "gfx942", "gfx950")]

KERNEL = """
target triple = "amdgcn-amd-amdhsa"
@tile = internal addrspace(3) global [4096 x i32] poison, align 16
define amdgpu_kernel void @k(ptr addrspace(1) %x, i32 %n) #0 {{
  %t = call i32 @llvm.amdgcn.workitem.id.x()
{body}
}}
declare i32 @llvm.amdgcn.workitem.id.x()
attributes #0 = {{ "amdgpu-flat-work-group-size"="64,64" "amdgpu-no-implicitarg-ptr" "amdgpu-no-dispatch-ptr"
  "amdgpu-no-queue-ptr" "amdgpu-no-dispatch-id" "amdgpu-no-flat-scratch-init" }}
"""
LOCAL = """  %i = mul i32 %t, {stride}
  %p = getelementptr i32, ptr addrspace(3) @tile, i32 %i
  store volatile i32 %t, ptr addrspace(3) %p
  %v = load volatile i32, ptr addrspace(3) %p
  %q = getelementptr i32, ptr addrspace(1) %x, i32 %t
  store i32 %v, ptr addrspace(1) %q
  ret void"""
"""A store and a load of 4 bytes a lane, lanes `stride` words apart."""
MEMORY = """  %i = mul i32 %t, {stride}
  %q = getelementptr i32, ptr addrspace(1) %x, i32 %i
  %v = load volatile i32, ptr addrspace(1) %q
  store i32 %v, ptr addrspace(1) %q
  ret void"""
LOOP = """  br label %again
again:
  %k = phi i32 [ 0, %0 ], [ %k1, %again ]
  %s = phi float [ 1.0, %0 ], [ %s2, %again ]
  %s1 = fmul float %s, %s
  %s2 = fmul float %s1, %s1
  %k1 = add i32 %k, 1
  %more = icmp ult i32 %k1, %n
  br i1 %more, label %again, label %done
done:
  %q = getelementptr float, ptr addrspace(1) %x, i32 %t
  store float %s2, ptr addrspace(1) %q
  ret void"""


@cache
def compiled(cpu: str, body: str) -> bytes:
    text = KERNEL.format(body=body)
    return (
        toolchain_for("llvm22")
        .compile(CompileJob(kernel="k", llvm_ir=text, triple="amdgcn-amd-amdhsa", cpu=cpu))
        .object
    )


def traced(cpu: str, body: str, workgroups: int = 1, n: int = 8) -> LaunchTrace:
    executor = MachineExecutor(traced=True)
    arch = load("arch", cpu).plugin.kinfolk_arch()
    parameters = (
        Parameter(name="x", type=PointerType(F32 if "float" in body else I32), access="readwrite", alignment=64),
        Parameter(name="n", type=I32),
    )
    x = np.zeros(4096, np.int32)
    trace = executor.launch(compiled(cpu, body), "k", arch, (workgroups, 1, 1), 64, parameters, (x, n)).trace
    assert trace is not None
    return trace


def row(timing: Timing, name: str) -> Any:
    [found] = [each for each in timing.instructions if each.text.startswith(name)]
    return found


@pytest.mark.parametrize(("cpu", "banks"), [("gfx942", 32), ("gfx950", 64)])
def test_conflicts_are_those_of_the_addresses(cpu: str, banks: int) -> None:
    """Lanes as many words apart as there are banks all want the first of them, one after the other: 64 clocks."""
    apart, packed = (traced(cpu, LOCAL.format(stride=stride)).timing() for stride in (banks, 1))
    for name in ("ds_write_b32", "ds_read_b32"):
        fewest = 64 * 4 // (4 * banks)
        assert (row(apart, name).conflicts, row(packed, name).conflicts) == (64 - fewest, 0)
    served = [timing.busy["workgroup_memory"] * timing.clocks for timing in (apart, packed)]
    assert served == pytest.approx([2 * 64, 2 * fewest])
    halved = traced(cpu, LOCAL.format(stride=banks // 2)).timing()
    assert row(halved, "ds_read_b32").conflicts == 32 - fewest
    grid = traced(cpu, LOCAL.format(stride=banks), workgroups=3)
    assert grid.conflict_clocks == 3 * 2 * (64 - fewest), "those of every workgroup, not of one compute unit"


@pytest.mark.parametrize("cpu", ["gfx942", "gfx950"])
def test_lines_are_those_of_the_addresses(cpu: str) -> None:
    """64 lanes side by side touch 4 lines of 64 bytes, 16 words apart each lane its own: 60 clocks more each way."""
    apart, packed = (traced(cpu, MEMORY.format(stride=stride)).timing() for stride in (16, 1))
    wait = "s_waitcnt vmcnt(0)"
    assert row(packed, wait).spent.stalls["memory_latency"] == row(apart, wait).spent.stalls["memory_latency"] == 696
    assert row(apart, wait).spent.stalls["memory_bandwidth"] - row(packed, wait).spent.stalls["memory_bandwidth"] == 60


def test_a_loop_of_a_chain_takes_what_its_instructions_issue() -> None:
    """Two products, an addition and a comparison of 4 clocks, a wait of 1, and a branch of 16, at last of 4.

    The first wait is for a scalar load of 200 clocks, which began 20 before.
    """
    timing = traced("gfx942", LOOP, n=101).timing()
    loop = timing.main_loop
    assert loop is not None and loop.rounds == 101
    assert loop.spent.issue == {"vector": 101 * 8, "scalar": 101 * 9, "branch": 100 * 16 + 4}
    assert loop.spent.stalls == {"memory_latency": 180}


def test_workgroups_take_turns_where_no_more_fit() -> None:
    """What is resident is as registers, workgroup memory and waves have it: 16 KiB of 64 let four in."""
    trace = traced("gfx942", LOCAL.format(stride=1), workgroups=304 * 9)
    timing = trace.timing()
    assert (timing.share, timing.timed, timing.resident) == (9, 9, 4)
    begins = sorted(wave.begin for wave in timing.waves)
    assert begins[:4] == [0, 0, 0, 0] and begins[4] > 0
    part = trace.timing(workgroups=4)
    assert (part.timed, part.clocks_of_grid) == (4, part.clocks * 9 / 4)


def test_what_is_not_kept_is_told_in_proportion(monkeypatch: pytest.MonkeyPatch) -> None:
    """A trace that is full keeps how much others ran: here of the first batch of 32 workgroups all, of others that."""
    monkeypatch.setattr("kinfolk_amdgcn.isa.trace.MOST_KEPT", 32)
    timing = traced("gfx942", LOCAL.format(stride=1), workgroups=304 * 9).timing()
    assert (timing.share, timing.timed, timing.resident) == (9, 1, 4)
    assert timing.clocks_of_grid == 9 * timing.clocks > 0


def test_a_constant_is_scaled_by_name() -> None:
    trace = traced("gfx942", MEMORY.format(stride=1))
    slower = trace.timing({"memory_latency": 2.0}).clocks - trace.timing().clocks
    assert slower == 700
    with pytest.raises(ValueError, match="no constant 'latency'; it has wave_issue"):
        trace.timing({"latency": 2.0})
    with pytest.raises(ValueError, match="memory_latency is multiplied by what is above 0, got 0"):
        trace.timing({"memory_latency": 0})
    ratios = sensitivity(trace)
    assert list(ratios) == [each.name for each in trace.constants]
    assert ratios["memory_latency"][0] < 1 < ratios["memory_latency"][1]
    assert ratios["matrix_pass"] == (1.0, 1.0), "there are no products"


def test_a_launch_is_not_traced_unless_it_was_asked_for() -> None:
    arch = load("arch", "gfx942").plugin.kinfolk_arch()
    parameters = (
        Parameter(name="x", type=PointerType(I32), access="readwrite", alignment=4),
        Parameter(name="n", type=I32),
    )
    code = compiled("gfx942", MEMORY.format(stride=1))
    arguments = (np.zeros(64, np.int32), 0)
    assert MachineExecutor().launch(code, "k", arch, (1, 1, 1), 64, parameters, arguments).trace is None
