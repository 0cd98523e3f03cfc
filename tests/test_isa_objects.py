"""What a launch of any code object gives a kernel: hidden arguments, memory, constants, items along several axes.

The kernels are LLVM IR as front ends write it; what they store is compared with what was asked for.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest

from kinfolk.errors import BindError
from kinfolk.machine import LaunchShape
from kinfolk.plugins.loading import load
from kinfolk_amdgcn.codeobject import CodeObjectError, read_code_object
from kinfolk_amdgcn.isa.fault import MachineFault
from kinfolk_runtime.isa import MachineExecutor
from kinfolk_runtime.toolchains.base import CompileJob
from kinfolk_runtime.toolchains.host import toolchain_for
from kinfolk_runtime.toolchains.linker import link

pytestmark = [pytest.mark.compile, pytest.mark.simulate, pytest.mark.needs("gfx942", "gfx950")]

HEAD = 'target triple = "amdgcn-amd-amdhsa"\n'
TAIL = """
declare i32 @llvm.amdgcn.workitem.id.x()
declare i32 @llvm.amdgcn.workitem.id.y()
declare i32 @llvm.amdgcn.workitem.id.z()
declare i32 @llvm.amdgcn.workgroup.id.x()
declare i32 @llvm.amdgcn.workgroup.id.z()
declare ptr addrspace(4) @llvm.amdgcn.implicitarg.ptr()
declare ptr addrspace(4) @llvm.amdgcn.dispatch.ptr()
attributes #0 = { "amdgpu-flat-work-group-size"="1,256" }
!llvm.module.flags = !{!0}
!0 = !{i32 1, !"amdhsa_code_object_version", i32 500}
"""
HIDDEN_DWORDS = 24  # up to the hidden sizes, offsets and dimensions of code object 5


def compiled(body: str, cpu: str = "gfx942", flavor: str = "llvm22") -> bytes:
    job = CompileJob(kernel="k", llvm_ir=HEAD + body + TAIL, triple="amdgcn-amd-amdhsa", cpu=cpu)
    return toolchain_for(flavor).compile(job).object


def launch(code: bytes, shape: LaunchShape, arguments: Any, cpu: str = "gfx942", **more: Any) -> None:
    MachineExecutor().launch_object(code, load("arch", cpu).plugin.kinfolk_arch(), shape, arguments, **more)


COPY = """
define amdgpu_kernel void @k(ptr addrspace(1) %out, i64 %n) #0 {
  %p = call ptr addrspace(4) @llvm.amdgcn.SOURCE.ptr()
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %s = getelementptr i32, ptr addrspace(4) %p, i32 %t
  %v = load i32, ptr addrspace(4) %s
  %d = getelementptr i32, ptr addrspace(1) %out, i32 %t
  store i32 %v, ptr addrspace(1) %d
  ret void
}
"""


@pytest.mark.parametrize(("cpu", "flavor"), [("gfx942", "llvm22"), ("gfx950", "llvm20")])
def test_hidden_arguments_are_those_of_the_launch(cpu: str, flavor: str) -> None:
    """Copied out dword by dword; their order is that of LLVM's documentation of code object 5."""
    out = np.zeros(HIDDEN_DWORDS, np.uint32)
    code = compiled(COPY.replace("SOURCE", "implicitarg"), cpu, flavor)
    shape = LaunchShape(grid=(1, 1, 1), block=(HIDDEN_DWORDS, 1, 1), dynamic_bytes=64)
    launch(code, shape, [out, 5], cpu)
    assert struct.unpack("<3I3H3H", out.tobytes()[:24]) == (1, 1, 1, HIDDEN_DWORDS, 1, 1, 0, 0, 0)
    assert struct.unpack_from("<3QH", out.tobytes(), 40) == (0, 0, 0, 1), "offsets, dimensions"


def test_the_dispatch_packet_has_the_sizes_of_workgroups_and_grid() -> None:
    out = np.zeros(16, np.uint32)
    code = compiled(COPY.replace("SOURCE", "dispatch"))
    launch(code, LaunchShape(grid=(1, 1, 1), block=(16, 1, 1)), {"out": out, "n": 5})
    assert struct.unpack_from("<3HxxIII", out.tobytes(), 4) == (16, 1, 1, 16, 1, 1)


ITEMS = """
define amdgpu_kernel void @k(ptr addrspace(1) %out) #0 {
  %x = call i32 @llvm.amdgcn.workitem.id.x()
  %y = call i32 @llvm.amdgcn.workitem.id.y()
  %z = call i32 @llvm.amdgcn.workitem.id.z()
  %g = call i32 @llvm.amdgcn.workgroup.id.x()
  %h = call i32 @llvm.amdgcn.workgroup.id.z()
  %a = mul i32 %h, 2
  %b = add i32 %a, %g
  %c = mul i32 %b, 2
  %d = add i32 %c, %z
  %e = mul i32 %d, 3
  %f = add i32 %e, %y
  %i = mul i32 %f, 50
  %j = add i32 %i, %x
  %p = getelementptr i32, ptr addrspace(1) %out, i32 %j
  store i32 %j, ptr addrspace(1) %p
  ret void
}
"""


def test_items_and_workgroups_are_numbered_along_three_axes() -> None:
    """300 items are four waves and 44 lanes; each writes a place of its own."""
    code = compiled(ITEMS.replace("#0", '"amdgpu-flat-work-group-size"="300,300"'))
    out = np.zeros((3, 2, 2, 3, 50), np.int32)
    launch(code, LaunchShape(grid=(2, 1, 3), block=(50, 3, 2)), [out])
    assert (out.reshape(-1) == np.arange(out.size)).all()


DYNAMIC = """
@held = external addrspace(3) global [0 x i32], align 16
define amdgpu_kernel void @k(ptr addrspace(1) %out) #0 {
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %r = xor i32 %t, 63
  %w = getelementptr [0 x i32], ptr addrspace(3) @held, i32 0, i32 %t
  store volatile i32 %t, ptr addrspace(3) %w
  %s = getelementptr [0 x i32], ptr addrspace(3) @held, i32 0, i32 %r
  %v = load volatile i32, ptr addrspace(3) %s
  %p = getelementptr i32, ptr addrspace(1) %out, i32 %t
  store i32 %v, ptr addrspace(1) %p
  ret void
}
"""


def test_a_launch_gives_workgroup_memory_and_less_than_is_used_is_told() -> None:
    code, out = compiled(DYNAMIC), np.zeros(64, np.int32)
    launch(code, LaunchShape(grid=(1, 1, 1), block=(64, 1, 1), dynamic_bytes=256), [out])
    assert (out == np.arange(64) ^ 63).all()
    with pytest.raises(MachineFault, match="past the 252 bytes of the workgroup's memory") as caught:
        launch(code, LaunchShape(grid=(1, 1, 1), block=(64, 1, 1), dynamic_bytes=252), [out])
    assert caught.value.lanes == (63,)


CONSTANTS = """
@table = {linkage} addrspace(4) constant [4 x i32] [i32 11, i32 22, i32 33, i32 44]
@where = {linkage} addrspace(4) constant ptr addrspace(4) getelementptr (i8, ptr addrspace(4) @table, i64 8)
define amdgpu_kernel void @k(ptr addrspace(1) %out) #0 {{
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %p = getelementptr [4 x i32], ptr addrspace(4) @table, i32 0, i32 %t
  %v = load i32, ptr addrspace(4) %p
  %q = load volatile ptr addrspace(4), ptr addrspace(4) @where
  %u = load i32, ptr addrspace(4) %q
  %s = add i32 %u, %v
  %d = getelementptr i32, ptr addrspace(1) %out, i32 %t
  store i32 %s, ptr addrspace(1) %d
  ret void
}}
"""


@pytest.mark.parametrize("linked", [False, True], ids=["relocatable", "linked"])
@pytest.mark.parametrize("linkage", ["internal unnamed_addr", ""], ids=["own", "by slot"])
def test_constants_are_read_from_the_code_object(linkage: str, linked: bool) -> None:
    """By the distance from the code, by a slot that holds the address, and through an address in another constant."""
    code, out = compiled(CONSTANTS.format(linkage=linkage)), np.zeros(4, np.int32)
    launch(link(code) if linked else code, LaunchShape(grid=(1, 1, 1), block=(4, 1, 1)), [out])
    assert out.tolist() == [44, 55, 66, 77]


def test_a_read_past_the_code_object_and_what_only_a_linker_places_are_told() -> None:
    own, one, out = (
        CONSTANTS.format(linkage="internal unnamed_addr"),
        LaunchShape(grid=(1, 1, 1), block=(4, 1, 1)),
        [None],
    )
    far = compiled(own.replace("i32 0, i32 %t", "i32 99999, i32 %t"))
    with pytest.raises(MachineFault, match=r"reads past the \d+ bytes of the code object"):
        launch(far, one, out)
    table = "@table = internal unnamed_addr addrspace(4) constant [4 x i32]"
    undefined = own.replace(
        f"{table} [i32 11, i32 22, i32 33, i32 44]", "@table = external addrspace(4) constant [4 x i32]"
    )
    assert undefined != own
    with pytest.raises(CodeObjectError, match="uses table, which only a linker gives a place: link it"):
        launch(compiled(undefined), one, out)


def test_what_does_not_fit_a_kernel_is_told_with_what_it_takes() -> None:
    code, out = compiled(COPY.replace("SOURCE", "dispatch")), np.zeros(16, np.uint32)
    one = LaunchShape(grid=(1, 1, 1), block=(16, 1, 1))
    takes = r"k takes 2 arguments: out \(pointer, 8 bytes\), n \(value, 8 bytes\)"
    for given, said in (
        ([out], f"{takes}; 1 are given"),
        ({"out": out, "m": 5}, f"{takes}; m is none of them"),
        ({"out": out}, f"{takes}; n is not given"),
        ([5, 5], "argument out of k is a pointer, got 5"),
        ([out, 1 << 64], "argument n of k is a value of 8 bytes, got 18446744073709551616"),
        ([out, np.int32(5)], "argument n of k is a value of 8 bytes"),
        ([out, out], "argument n of k is a value of 8 bytes"),
        ([np.array([None] * 16), 5], "argument out is an array of object, which has no bytes that a kernel could use"),
        ([out.astype(">u4"), 5], "argument out is an array of >u4"),
    ):
        with pytest.raises(BindError, match=said):
            launch(code, one, given)
    for shape, said in (
        (LaunchShape(grid=(1, 1, 1), block=(257, 1, 1)), r"257 items; k is compiled for 256"),
        (LaunchShape(grid=(0, 1, 1), block=(16, 1, 1)), r"grid is \(0, 1, 1\)"),
        (LaunchShape(grid=(1, 1, 1), block=(16, 1, 1), dynamic_bytes=-4), "dynamic_bytes is -4"),
        (LaunchShape(grid=(1, 1, 1), block=(16, 1, 1), dynamic_bytes=1.5), "dynamic_bytes is 1.5"),  # type: ignore[arg-type]
        (LaunchShape(grid=(1, 1, 1), block=(16, 1, 1), dynamic_bytes=65537), "gfx942 has 65536. Pass at most 65536"),
    ):
        with pytest.raises(BindError, match=said):
            launch(code, shape, [out, 5])
    with pytest.raises(BindError, match="read_only names 'x', k takes 2 arguments"):
        launch(code, one, [out, 5], read_only=["x"])
    with pytest.raises(MachineFault, match="writes out, which is declared to be only read"):
        launch(code, one, [out, 5], read_only=["out"])
    out.flags.writeable = False
    with pytest.raises(MachineFault, match="writes out, which is declared to be only read"):
        launch(code, one, [out, 5])
    with pytest.raises(MachineFault, match="address 0x0, where nothing is allocated"):
        launch(code, one, [None, 5])
    with pytest.raises(CodeObjectError, match="the code of k is for gfx942, gfx950 runs that of gfx950"):
        launch(code, one, [out, 5], "gfx950")


def test_an_object_of_several_kernels_is_asked_by_name() -> None:
    code, out = compiled(ITEMS + ITEMS.replace("@k(", "@other(")), np.zeros(64, np.int32)
    assert set(read_code_object(code).kernels) == {"k", "other"}
    one = LaunchShape(grid=(1, 1, 1), block=(50, 1, 1))
    with pytest.raises(CodeObjectError, match="holds kernels k, other: name one"):
        launch(code, one, [out])
    launch(code, one, [out], symbol="other")
    assert (out[:50] == np.arange(50)).all()
