"""Memory, views and barriers in LLVM's words for amdgcn, seen in the machine code that LLVM makes of them."""

from __future__ import annotations

import re

import attrs
import pytest
from lowered import WAVE64, at, instructions, kernel, pointer

from kinfolk.ir import build_kernel, constant
from kinfolk.ir.ops import arithmetic, control, lanes, memory, vector
from kinfolk.ir.types import BF16, F16, F32, F64, I1, I32
from kinfolk.parameters import Parameter


def atomic(x, y, counter, n):
    memory.atomic_add(counter, n)
    memory.atomic_add(y, memory.load(at(x, lanes.thread_id())))


@pytest.mark.compile
def test_an_atomic_is_one_instruction_without_cache_operations(llvm):
    module = WAVE64.lower(kernel(atomic), None, 22)
    code = "\n".join(instructions(llvm.assembly(module)))
    assert re.search(r"global_atomic_add v", code)
    assert re.search(r"global_atomic_add_f32 v", code)
    assert not re.search("buffer_wbl2|buffer_inv|cmpswap", code)
    ordered = attrs.evolve(module, text=module.text.replace("monotonic", "seq_cst"))
    assert re.search("buffer_wbl2", llvm.assembly(ordered)), "the check would not see a cache operation"


ACCESSES = {
    (F16, 1): "short",
    (BF16, 2): "dword",
    (F32, 1): "dword",
    (BF16, 4): "dwordx2",
    (F64, 1): "dwordx2",
    (BF16, 8): "dwordx4",
    (I32, 4): "dwordx4",
}


@pytest.mark.compile
@pytest.mark.parametrize("generation", [20, 22])
@pytest.mark.parametrize("element, count", ACCESSES, ids=str)
def test_a_view_is_read_and_written_by_buffer_instructions(llvm, element, count, generation):
    def body(x, y, n):
        source, target, index = memory.bound(x, n), memory.bound(y, n), lanes.thread_id() * count
        memory.view_store(target, index, memory.view_load(source, index + 8 * count, count=count))

    parameters = (pointer("x", element, "read"), pointer("y", element, "write"), Parameter(name="n", type=I32))
    module = WAVE64.lower(kernel(body, parameters=parameters), None, generation)
    resource, kind = {20: ("p1", "i32"), 22: ("p8.p1", "i64")}[generation]
    declared = f"@llvm.amdgcn.make.buffer.rsrc.{resource}(ptr addrspace(1), i16, {kind}, i32)"
    assert declared in module.text
    if generation == 20:
        return
    code = "\n".join(instructions(llvm.assembly(module)))
    width, offset = ACCESSES[element, count], 8 * count * element.bytes
    assert re.search(rf"buffer_load_u?{width} .* offen offset:{offset}", code)
    assert re.search(rf"buffer_store_{width} .* offen$", code, re.MULTILINE)
    assert "s_mov_b32" in code and "0x27000" in code


def test_a_constant_in_an_index_is_added_last_and_in_bytes():
    def body(x, y, counter, n):
        view, index = memory.bound(x, n), lanes.thread_id() - n
        found = [memory.view_load(view, at_) for at_ in (index + 5, 7 + index, constant(3, I32), constant(2**30, I32))]
        memory.store(y, found[0] + found[1] + found[2] + found[3])

    text = WAVE64.lower(kernel(body), None, 22).text
    offsets = re.findall(r"raw.ptr.buffer.load.i32\(ptr addrspace\(8\) %[\w.]+, i32 ([\w.%-]+),", text)
    assert offsets[2:] == ["12", "0"]  # the last one wraps, as the hardware's 32-bit offset does
    added = [re.search(rf"{re.escape(name)} = add i32 (%[\w.]+), (\d+)", text).groups() for name in offsets[:2]]
    assert [constant for _, constant in added] == ["20", "28"]
    assert all(f"{scaled} = shl i32" in text for scaled, _ in added)


def clamped_view(x, y, counter, n):
    rows = arithmetic.smin(arithmetic.smax(n - lanes.block_id(axis=0) * 16, 0), 16)
    page = lanes.uniform(memory.load(at(counter, lanes.thread_id())))
    view = memory.bound(at(x, page * 512), rows * 512)
    memory.store(at(y, lanes.thread_id()), memory.view_load(view, lanes.thread_id()))


@pytest.mark.compile
def test_a_clamped_size_makes_no_loop_over_lanes(llvm):
    module = WAVE64.lower(kernel(clamped_view), None, 22)
    assert "s_and_saveexec" not in llvm.assembly(module)
    records = r"call i32 @llvm.amdgcn.readfirstlane.i32\(i32 (%v.\d+)\)\n(?=.*zext)"
    divergent = attrs.evolve(module, text=re.sub(records, r"add i32 \1, 0\n", module.text))
    assert divergent.text != module.text
    assert "s_and_saveexec" in llvm.assembly(divergent), "the check would not see such a loop"


def staged(x, y, counter, n):
    thread, tile = lanes.thread_id(), memory.allocate(F32, 2048)
    view = memory.bound(x, n)

    def step(index, carried):
        total, incoming = carried
        memory.workgroup_store(tile, thread * 4, incoming, alignment=16)
        following = memory.view_load(view, thread * 4 + index * 1024, count=4)
        direct = memory.load(at(x, thread + index * 1024))
        control.barrier()
        theirs = memory.workgroup_load(tile, (thread ^ 65) * 4, count=4, alignment=16)
        control.barrier()
        return [total + theirs + vector.splat(direct, count=4), following]

    first = memory.view_load(view, thread * 4, count=4)
    total, _ = control.for_range(0, n, 1, [first, first], step)
    memory.store(at(y, thread * 4), total, alignment=16)


def before_barriers(code):
    """Return, per barrier, the instructions since the last load from global memory or the barrier before."""
    segments, segment = [], []
    for line in code:
        if line.startswith("s_barrier"):
            segments.append(segment)
            segment = []
        elif line.startswith(("buffer_load", "global_load")):
            segment = [line]
        else:
            segment.append(line)
    return segments


@pytest.mark.compile
def test_a_barrier_waits_for_workgroup_memory_and_not_for_loads_in_flight(llvm):
    module = WAVE64.lower(kernel(staged), None, 22)
    code = instructions(llvm.assembly(module))
    first = before_barriers(code)[0]
    assert first[0].startswith(("buffer_load", "global_load"))
    assert "s_waitcnt lgkmcnt(0)" in first
    assert not any("vmcnt" in line for line in first)
    names = [line.split()[0] for line in code if line.startswith(("ds_", "s_barrier"))]
    start = names.index("ds_write_b128")
    assert names[start : start + 4] == ["ds_write_b128", "s_barrier", "ds_read_b128", "s_barrier"]


@pytest.mark.compile
def test_the_check_sees_a_barrier_that_drains_and_one_that_waits_for_nothing(llvm):
    module = WAVE64.lower(kernel(staged), None, 22)
    drained = attrs.evolve(module, text=module.text.replace('syncscope("workgroup")', 'syncscope("agent")'))
    assert any("vmcnt(0)" in line for line in before_barriers(instructions(llvm.assembly(drained)))[0])
    bare = attrs.evolve(module, text=re.sub(r"  fence .*\n", "", module.text))
    assert "s_waitcnt lgkmcnt(0)" not in before_barriers(instructions(llvm.assembly(bare)))[0]


@pytest.mark.compile
def test_nothing_is_scheduled_across_a_schedule_fence(llvm):
    def body(x, y, counter, n):
        mine = lanes.thread_id()
        first = arithmetic.exp2(memory.load(at(x, mine)))
        control.schedule_fence()
        memory.store(at(y, mine), first + memory.load(at(x, mine + 512)))

    def order(module):
        code = instructions(llvm.assembly(module))
        return [line.split("_")[0] for line in code if line.startswith(("global_load", "v_exp"))]

    module = WAVE64.lower(kernel(body), None, 22)
    assert order(module) == ["global", "v", "global"]
    free = attrs.evolve(module, text=module.text.replace("  call void @llvm.amdgcn.sched.barrier(i32 0)\n", ""))
    assert order(free) == ["global", "global", "v"]


@pytest.mark.compile
def test_a_truth_has_a_byte_in_memory(llvm):
    """LLVM packs a vector of i1 into bits; the IR, and both engines, give each a byte."""
    parameters = [pointer("x", I1, "read"), pointer("y", I1, "write")]

    def body(x, y):
        memory.store(y, memory.load(x, count=4, alignment=4), alignment=4)

    module = WAVE64.lower(build_kernel("k", parameters, arch=WAVE64, block=64, body=body), None, 22)
    code = "\n".join(instructions(llvm.assembly(module)))
    assert re.search(r"(global|s)_load_dword |s_load_dword ", code)
    assert re.search(r"global_store_dword ", code)
