"""Portable ops in LLVM's words for amdgcn, seen in the machine code that LLVM makes of them."""

from __future__ import annotations

import re
from collections import defaultdict
from functools import partial

import attrs
import numpy as np
import pytest

from kinfolk.arch import Arch
from kinfolk.errors import IRError
from kinfolk.ir import build_kernel, constant
from kinfolk.ir.numpy_lanes import NumpyAlgebra, NumpyLane
from kinfolk.ir.ops import arithmetic, control, convert, lanes, memory, vector
from kinfolk.ir.types import BF16, F16, F32, F64, I16, I32, I64, PointerType, VectorType
from kinfolk.matrix import MatrixCatalog
from kinfolk.parameters import Parameter
from kinfolk_amdgcn import ops
from kinfolk_amdgcn.lowering import lower_kernel
from kinfolk_amdgcn.lowering.module import DATA_LAYOUTS

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
        lower_kernel=lower_kernel if wave_size == 64 else partial(lower_kernel, legality=None),
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


SHUFFLES = {1: r"quad_perm:\[1,0,3,2\]", 2: r"quad_perm:\[2,3,0,1\]", 4: r"swizzle\(SWAP,4\)"}
SHUFFLES |= {8: "row_ror:8", 16: r"swizzle\(SWAP,16\)", 32: "ds_bpermute_b32"}


def integer(x):
    return convert.bitcast(x, to=I32)


def branch(x, n):
    chosen = control.if_else(lanes.any_lane(x > 2.0), lambda: [x * 3.0], lambda: [x])
    return chosen[0]


def first_of_16(x, n):
    return convert.zext(lanes.first_lane(convert.trunc(integer(x), to=I16)), to=I32)


def first_of_64(x, n):
    wide = lanes.first_lane(convert.bitcast(vector.pack(x, x * 2.0), to=I64))
    return convert.trunc(wide, to=I32)


def byte_permute(x, n):
    return lanes.byte_permute(integer(x), n, selector=(2, 3, 6, 7))


ONE_INSTRUCTION = {
    "exp2": (of_each_lane(lambda x, n: arithmetic.exp2(x)), r"v_exp_f32", "v_ldexp|v_cndmask"),
    "log2": (of_each_lane(lambda x, n: arithmetic.log2(x)), r"v_log_f32", "v_ldexp|v_cndmask"),
    "rcp": (of_each_lane(lambda x, n: arithmetic.rcp(x)), r"v_rcp_f32", "v_div|v_fma"),
    "lane_id": (of_each_lane(lambda x, n: lanes.lane_id()), r"v_and_b32\w* v\d+, 63", "mbcnt"),
    "wave_id": (of_each_lane(lambda x, n: lanes.wave_id()), r"v_readfirstlane_b32", "exec"),
    "block_id": (of_each_lane(lambda x, n: lanes.block_id(axis=0)), r"v_mov_b32\w* v\d+, s\d+", "exec"),
    "first_lane": (of_each_lane(lambda x, n: lanes.first_lane(x)), r"v_readfirstlane_b32", "exec"),
    "first_lane of 16 bits": (of_each_lane(first_of_16), r"v_readfirstlane_b32", "exec"),
    "first_lane of 64 bits": (of_each_lane(first_of_64), r"v_readfirstlane_b32", "exec"),
    "uniform": (of_each_lane(lambda x, n: lanes.uniform(integer(x))), r"v_readfirstlane_b32", "exec"),
    "any_lane": (of_each_lane(branch), r"s_cbranch_vcc", "exec|v_cndmask"),
    "byte_permute": (of_each_lane(byte_permute), r"v_perm_b32", "v_bfi|v_or"),
    "opaque": (of_each_lane(lambda x, n: control.opaque(n)), "v_mov_b32", "exec"),
    **{
        f"shuffle_xor {mask}": (
            of_each_lane(lambda x, n, mask=mask: arithmetic.fmax(x, lanes.shuffle_xor(x, mask=mask))),
            text,
            "exec|v_cndmask",
        )
        for mask, text in SHUFFLES.items()
    },
}


@pytest.mark.compile
@pytest.mark.parametrize("generation", [20, 22])
@pytest.mark.parametrize("name", ONE_INSTRUCTION)
def test_an_op_becomes_the_instruction_meant_for_it(llvm, name, generation):
    body, expected, never = ONE_INSTRUCTION[name]
    module = WAVE64.lower(kernel(body), None, generation)
    code = "\n".join(instructions(llvm.assembly(module)))
    assert re.search(expected, code), code
    assert not re.search(never, code), code


@pytest.mark.compile
@pytest.mark.parametrize("count", [1, 2, 4])
def test_a_transcendental_of_a_vector_is_one_instruction_a_component(llvm, count):
    body = of_each_lane(lambda x, n: arithmetic.exp2(x), count)
    code = instructions(llvm.assembly(WAVE64.lower(kernel(body), None, 22)))
    assert sum(line.startswith("v_exp_f32") for line in code) == count


@pytest.mark.compile
def test_every_op_is_written_for_waves_of_32_too(llvm):
    for name, (body, _, _) in ONE_INSTRUCTION.items():
        if name != "shuffle_xor 32":
            llvm.assembly(WAVE32.lower(kernel(body, arch=WAVE32), None, 22))
    code = instructions(llvm.assembly(WAVE32.lower(kernel(ONE_INSTRUCTION["lane_id"][0], arch=WAVE32), None, 22)))
    assert any(re.match(r"v_and_b32\w* v\d+, 31", line) for line in code)


def published_source(text, lane):
    """Return the lane a cross-lane control reads, as the ISA document defines it for waves of 64."""
    if match := re.search(r"quad_perm:\[(\d),(\d),(\d),(\d)\]", text):
        return lane // 4 * 4 + int(match.group(lane % 4 + 1))
    if match := re.search(r"row_ror:(\d+)", text):
        return lane // 16 * 16 + (lane - int(match.group(1))) % 16
    [swap] = re.findall(r"swizzle\(SWAP,(\d+)\)", text)
    return lane ^ int(swap)


@pytest.mark.compile
@pytest.mark.parametrize("mask", [1, 2, 4, 8, 16])
def test_a_shuffle_reads_the_lanes_that_its_meaning_names(llvm, mask):
    code = instructions(llvm.assembly(WAVE64.lower(kernel(ONE_INSTRUCTION[f"shuffle_xor {mask}"][0]), None, 22)))
    [moving] = [line for line in code if re.search("quad_perm|row_ror|swizzle", line)]
    [(operand, meant)] = lanes.shuffle_xor.meaning.sources(64, np.ones(64, bool), mask=mask)
    assert operand == 0
    assert [published_source(moving, lane) for lane in range(64)] == meant.tolist()
    other = "row_ror:4" if mask == 8 else "quad_perm:[3,2,1,0]"  # the control: neighbours of the right controls
    assert [published_source(other, lane) for lane in range(64)] != meant.tolist()


@pytest.mark.compile
@pytest.mark.parametrize("selector", [(0, 1, 2, 3), (4, 5, 6, 7), (2, 3, 6, 7), (7, 0, 5, 2), (1, 1, 4, 4)])
def test_a_byte_permutation_selects_what_llvm_folds_it_to(llvm, selector):
    """LLVM's constant folder knows v_perm_b32 independently of us."""
    low, high = 0x33221100, 0x77665544

    def body(x, y, counter, n):
        memory.store(counter, lanes.byte_permute(arithmetic.add(n, 0, nsw=False), n, selector=selector))

    text = WAVE64.lower(kernel(body), None, 22).text
    text = re.sub(r"@llvm.amdgcn.perm\(i32 %[\w.]+, i32 %[\w.]+,", f"@llvm.amdgcn.perm(i32 {high}, i32 {low},", text)
    [stored] = re.findall(r"store i32 (-?\d+)", llvm.ask("folded", text))
    algebra = NumpyAlgebra.of_lanes(1)
    operands = [NumpyLane(I32, np.array([value], np.uint32)) for value in (low, high)]
    meant = lanes.byte_permute.meaning.body(algebra, *operands, selector=selector)
    assert int(stored) % 2**32 == int(meant.data[0])
    swapped = lanes.byte_permute.meaning.body(algebra, *operands[::-1], selector=selector)
    assert int(stored) % 2**32 != int(swapped.data[0])


@pytest.mark.compile
def test_multiplying_by_a_power_of_two_shifts_and_by_another_number_does_not(llvm):
    def code(factor):
        return "\n".join(instructions(llvm.assembly(WAVE64.lower(kernel(body(factor)), None, 22))))

    def body(factor):
        return of_each_lane(lambda x, n: lanes.thread_id() * factor)

    assert "v_mul" not in code(64)
    assert "v_mul" in code(65)
    assert "shl nsw i32" in WAVE64.lower(kernel(body(64)), None, 22).text
    lowest = WAVE64.lower(kernel(body(-(2**31))), None, 22).text
    assert re.search(r"mul nsw i32 %[\w.]+, -2147483648", lowest), "as a signed number it is no power of two"


# Memory.


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


# Attributes.


def attribute_text(module):
    return re.search(r"attributes #0 = \{(.*)\}", module.text).group(1)


def quoted(module):
    pairs = re.findall(r'"([\w-]+)"(?:="([^"]*)")?', attribute_text(module))
    found = defaultdict(list)
    for name, value in pairs:
        found[name].append(value)
    assert all(len(values) == 1 for values in found.values()), "an attribute is given twice"
    return {name: values[0] for name, values in found.items()}


def plain(x, y, counter, n):
    memory.store(at(y, lanes.thread_id()), memory.load(at(x, lanes.thread_id())))


@pytest.mark.parametrize(
    "arch, block, expected",
    [(WAVE64, 64, "64,64"), (WAVE64, 1024, "64,1024"), (WAVE32, 32, "32,32"), (WAVE32, 64, "32,64")],
    ids=lambda value: value.name if isinstance(value, Arch) else str(value),
)
def test_the_range_of_workgroup_sizes_begins_at_one_wave(arch, block, expected):
    found = quoted(arch.lower(kernel(plain, arch=arch, block=block), None, 22))
    assert found["amdgpu-flat-work-group-size"] == expected
    low, high = map(int, expected.split(","))
    assert low <= high


@pytest.mark.parametrize(
    "arch, block, workgroups, waves",
    [(WAVE64, 256, 1, 1), (WAVE64, 256, 2, 2), (WAVE64, 64, 2, 1), (WAVE64, 128, 3, 2), (WAVE32, 256, 2, 8)],
)
def test_workgroups_on_a_compute_unit_become_waves_on_a_simd(arch, block, workgroups, waves):
    module = arch.lower(kernel(plain, arch=arch, block=block, workgroups_per_cu=workgroups), None, 22)
    assert quoted(module)["amdgpu-waves-per-eu"] == str(waves)


def test_what_is_not_asked_for_is_left_to_the_compiler():
    found = quoted(WAVE64.lower(kernel(plain), None, 22))
    assert found.keys().isdisjoint({"amdgpu-waves-per-eu", "amdgpu-agpr-alloc", "amdgpu-no-agpr"})
    asked = quoted(WAVE64.lower(kernel(plain, accumulators="vgpr"), None, 22))
    assert asked["amdgpu-agpr-alloc"] == "0" and asked["amdgpu-no-agpr"] == ""


@pytest.mark.parametrize(
    "attributes, said",
    [
        ({"unroll": 2}, r"'unroll' is not known on test-gfx942, known: workgroups_per_cu, accumulators"),
        ({"workgroups_per_cu": 0}, "'workgroups_per_cu' is a positive int, got 0"),
        ({"workgroups_per_cu": True}, "'workgroups_per_cu' is a positive int, got True"),
        ({"workgroups_per_cu": 9}, "9 workgroups of 256 threads are 9 waves per SIMD, test-gfx942 holds 8"),
        ({"accumulators": "agpr"}, "'accumulators' is 'vgpr' or left out, got 'agpr'"),
    ],
)
def test_a_kernel_attribute_that_cannot_be_met_is_an_error_naming_it(attributes, said):
    with pytest.raises(IRError, match=said):
        WAVE64.lower(kernel(plain, **attributes), None, 22)


def test_block_ids_that_are_read_are_passed():
    def body(x, y, counter, n):
        memory.store(at(y, lanes.block_id(axis=1)), memory.load(at(x, lanes.thread_id())))

    found = quoted(WAVE64.lower(kernel(body), None, 22))
    assert "amdgpu-no-workgroup-id-z" in found and "amdgpu-no-workgroup-id-y" not in found
    assert "amdgpu-no-workgroup-id-y" in quoted(WAVE64.lower(kernel(plain), None, 22))


@pytest.mark.compile
def test_the_argument_block_holds_the_declared_arguments_and_nothing_else(llvm):
    module = WAVE64.lower(kernel(plain), None, 22)
    assembly = llvm.assembly(module)
    assert re.search(r"\.kernarg_segment_size: (\d+)", assembly).group(1) == "28"  # three pointers and an i32
    assert "hidden_" not in assembly
    assert re.search(r"\.amdhsa_float_denorm_mode_32 (\d)", assembly).group(1) == "3"  # denormals kept, in and out
    assert re.search(r"\.amdhsa_user_sgpr_count (\d)", assembly).group(1) == "2"  # the argument pointer
    talkative = attrs.evolve(module, text=module.text.replace('"amdgpu-no-implicitarg-ptr"', ""))
    assert "hidden_" in llvm.assembly(talkative), "the check would not see a hidden argument"


@pytest.mark.parametrize("generation, capture", [(20, "nocapture"), (21, "captures(none)"), (22, "captures(none)")])
def test_a_pointer_says_what_is_done_with_its_memory(generation, capture):
    text = WAVE64.lower(kernel(plain), None, generation).text
    [define] = re.findall(r"define amdgpu_kernel void @k\((.*)\) #0", text)
    assert define.split(", ") == [
        f"ptr addrspace(1) noalias {capture} readonly align 16 %x",
        f"ptr addrspace(1) noalias {capture} align 16 %y",
        f"ptr addrspace(1) noalias {capture} align 4 %counter",
        "i32 %n",
    ]


# The module.


@pytest.mark.compile
def test_the_data_layout_is_that_of_llvms_own_target_machine(llvm):
    assert llvm.ask("layout") == DATA_LAYOUTS[22]
    assert f'target datalayout = "{DATA_LAYOUTS[22]}"' in WAVE64.lower(kernel(plain), None, 22).text


def test_a_generation_is_served_by_rank_and_one_too_old_is_an_error():
    newer, known = (WAVE64.lower(kernel(plain), None, generation).text for generation in (23, 22))
    assert newer == known
    assert DATA_LAYOUTS[20] in WAVE64.lower(kernel(plain), None, 21).text
    with pytest.raises(IRError, match="LLVM 19 is not written for; the oldest generation is 20"):
        WAVE64.lower(kernel(plain), None, 19)


def test_what_the_arch_cannot_launch_is_not_lowered():
    def allocating(count):
        def body(x, y, counter, n):
            memory.workgroup_store(memory.allocate(F32, count), lanes.thread_id(), memory.load(x))

        return body

    assert WAVE64.lower(kernel(allocating(16384)), None, 22)
    with pytest.raises(IRError, match="allocates 65552 bytes of workgroup memory in 1 buffers, test-gfx942 has 65536"):
        WAVE64.lower(kernel(allocating(16385)), None, 22)
    assert WAVE64.lower(kernel(plain, block=1024), None, 22)
    with pytest.raises(IRError, match="block is 1088 threads, test-gfx942 takes 1024"):
        WAVE64.lower(kernel(plain, block=1088), None, 22)
    with pytest.raises(IRError, match="waves of 64, test-gfx1100 has 32 lanes"):
        WAVE32.lower(kernel(plain), None, 22)


@pytest.mark.compile
def test_a_constant_vector_is_stored_like_any_other_value(llvm):
    def body(x, y, counter, n):
        memory.view_store(memory.bound(y, n), lanes.thread_id() * 4, constant(1.5, VectorType(F32, 4)))

    code = "\n".join(instructions(llvm.assembly(WAVE64.lower(kernel(body), None, 22))))
    assert "0x3fc00000" in code and "buffer_store_dwordx4" in code
