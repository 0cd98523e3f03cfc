"""What surrounds a kernel in LLVM's words for amdgcn: attributes, arguments, data layout, and what is not lowered."""

from __future__ import annotations

import re
from collections import defaultdict

import attrs
import pytest
from lowered import WAVE32, WAVE64, at, instructions, kernel

from kinfolk.arch import Arch
from kinfolk.errors import IRError
from kinfolk.ir import constant
from kinfolk.ir.ops import lanes, memory
from kinfolk.ir.types import F32, VectorType
from kinfolk_amdgcn.lowering.module import DATA_LAYOUTS


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
        ({"accumulators": "agpr"}, "'accumulators' is 'vgpr', 'either' or left out, got 'agpr'"),
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
    assert llvm.ask("layout", cpu="gfx942") == DATA_LAYOUTS[22]
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
