"""gfx950 as core meets it: facts, target ids, gates, and a kernel all the way to its code object."""

from __future__ import annotations

import re

import attrs
import pytest

from kinfolk import hooks
from kinfolk.arch import UnknownFact
from kinfolk.errors import IRError
from kinfolk.ir import build_kernel
from kinfolk.ir.ops import arithmetic, control, convert, lanes, memory, vector
from kinfolk.ir.types import BF16, F32, I32, PointerType
from kinfolk.parameters import Parameter
from kinfolk.spec import Spec
from kinfolk.usage import KernelArgument, Usage
from kinfolk_amdgcn.resources import LIMITS, wave_limits
from kinfolk_gfx950 import plugin
from kinfolk_gfx950.facts import FACTS

ARCH = plugin.arch()


def test_the_plugin_answers_the_hooks_of_an_arch():
    assert plugin.kinfolk_arch() is ARCH
    assert all(getattr(plugin, name).kinfolk_impl for name in ("kinfolk_arch", "kinfolk_gate_resources"))
    assert hasattr(hooks, "kinfolk_arch")
    assert set(hooks.REQUIRED["arch"]) <= set(vars(plugin))


def test_a_fact_reads_by_name_and_an_unknown_one_says_what_there_is():
    assert (ARCH.lds_bytes, ARCH.compute_units, ARCH.wave_size) == (163840, 256, 64)
    assert ARCH.fact("fp8_format") == "ocp"
    with pytest.raises(UnknownFact, match=r"declares no fact 'cus'; it declares: .*compute_units"):
        ARCH.fact("cus")


def test_the_facts_agree_with_each_other():
    assert ARCH.max_workgroup_size == 16 * ARCH.wave_size
    assert ARCH.lds_banks * ARCH.lds_bank_bytes == ARCH.lds_bytes_per_clock
    assert FACTS["wave_size"] == ARCH.wave_size
    assert ARCH.hbm_bytes_per_clock == 3636  # 8 TB/s at 2.2 GHz


# Measured with LLVM 22 on gfx950: registers of a kernel, and the occupancy it prints.
MEASURED = {64: 8, 72: 7, 73: 6, 80: 6, 81: 5, 96: 5, 97: 4, 128: 4, 129: 3, 168: 3, 169: 2, 256: 2, 257: 1, 512: 1}


@pytest.mark.parametrize("registers", MEASURED)
def test_registers_bound_the_waves_as_llvm_says(registers):
    assert wave_limits(ARCH).waves_per_simd(registers, 0) == MEASURED[registers]


def test_accumulation_registers_begin_at_a_multiple_of_four():
    limits = wave_limits(ARCH)
    assert limits.waves_per_simd(125, 128) == 2
    assert limits.waves_per_simd(125, 129) == limits.waves_per_simd(253, 4) == 1
    assert limits.waves_per_simd(253, 0) == 2


# Gates.

GOOD = {
    "vgpr": 252,
    "agpr": 0,
    "sgpr": 46,
    "lds_bytes": 30976,
    "parked": 0,
    "waves_per_simd": 2,
    "workgroups_per_cu": 2,
    "kernarg_bytes": 88,
    "max_flat_workgroup_size": 256,
}


def usage(target="gfx950", hidden=(), **figures):
    return Usage(symbol="k", target=target, scratch_bytes=0, scratch_ops=0, figures=GOOD | figures, hidden=hidden)


def refusals(of):
    return plugin.kinfolk_gate_resources(usage=of, spec=Spec(), arch=ARCH)


HIDDEN = (KernelArgument(offset=32, size=4, kind="hidden_block_count_x"),)
EDGES = {
    "amdgcn.resources.parked": (usage(parked=0), usage(parked=1)),
    "amdgcn.resources.lds_bytes": (usage(lds_bytes=163840), usage(lds_bytes=163841)),
    "amdgcn.resources.vgpr": (usage(vgpr=256, agpr=256), usage(vgpr=256, agpr=257)),
    "amdgcn.resources.waves_per_simd": (usage(waves_per_simd=1), usage(waves_per_simd=0)),
    "amdgcn.resources.workgroups_per_cu": (usage(workgroups_per_cu=1), usage(workgroups_per_cu=0)),
    "amdgcn.resources.block": (usage(max_flat_workgroup_size=1024), usage(max_flat_workgroup_size=1025)),
    "amdgcn.resources.hidden_arguments": (usage(), usage(hidden=HIDDEN)),
    "amdgcn.resources.target": (usage(target="gfx950:xnack-"), usage(target="gfx942")),
}


def test_every_limit_has_its_edge_here():
    assert {limit.code for limit in LIMITS} | {"amdgcn.resources.target"} == EDGES.keys()


@pytest.mark.parametrize("code", EDGES)
def test_a_limit_holds_up_to_its_edge_and_says_why_beyond(code):
    within, beyond = EDGES[code]
    assert refusals(within) == ()
    [refusal] = refusals(beyond)
    assert (refusal.code, refusal.kind, refusal.plugin) == (code, "cannot", "kinfolk-gfx950")
    assert refusal.limit and refusal.because and refusal.remedy


def test_all_refusals_are_given_at_once_with_their_numbers():
    found = refusals(usage(lds_bytes=170000, waves_per_simd=0, workgroups_per_cu=0))
    assert [refusal.field for refusal in found] == ["lds_bytes", "waves_per_simd", "workgroups_per_cu"]
    assert "lds_bytes is 170000, supported: at most 163840" in str(found[0])


# A kernel to its code object.


def softmax_sums(x, sums, row_length):
    """Per row of a block's wave: the sum of 2^(x - max) over up to 512 elements."""
    lane, row = lanes.lane_id(), lanes.block_id(axis=0) * 4 + lanes.wave_id()
    view = memory.bound(memory.offset(x, row * row_length), row_length)
    values = convert.fpext(memory.view_load(view, lane * 8, count=8), to=F32)
    largest = vector.extract(values, index=0)
    for index in range(1, 8):
        largest = arithmetic.fmax(largest, vector.extract(values, index=index))
    for mask in (1, 2, 4, 8, 16, 32):
        largest = arithmetic.fmax(largest, lanes.shuffle_xor(largest, mask=mask))
    powers = arithmetic.exp2(values - vector.splat(largest, count=8))
    total = vector.extract(powers, index=0)
    for index in range(1, 8):
        total = total + vector.extract(powers, index=index)
    for mask in (1, 2, 4, 8, 16, 32):
        total = total + lanes.shuffle_xor(total, mask=mask)
    shared = memory.allocate(F32, 4)
    control.if_else(lane.eq(0), lambda: memory.workgroup_store(shared, lanes.wave_id(), total) or ())
    control.barrier()
    own = memory.workgroup_load(shared, lane & 3)
    control.if_else(lane < 4, lambda: memory.store(memory.offset(sums, row * 4 + lane), own) or ())


def row_kernel(arch=ARCH):
    parameters = (
        Parameter(name="x", type=PointerType(BF16), alignment=16),
        Parameter(name="sums", type=PointerType(F32), access="write", alignment=4),
        Parameter(name="row_length", type=I32),
    )
    attributes = {"workgroups_per_cu": 8}
    return build_kernel("row_sums", parameters, arch=arch, block=256, attributes=attributes, body=softmax_sums)


@pytest.mark.compile
def test_a_row_kernel_compiles_without_scratch_and_within_its_budget(llvm):
    module = ARCH.lower(row_kernel(), None, 22)
    found = ARCH.usage(llvm.object(module), "row_sums")
    assert (found.scratch_bytes, found.scratch_ops, found.figure("parked")) == (0, 0, 0)
    assert found.target == "gfx950"
    assert found.figure("kernarg_bytes") == sum(argument.size for argument in found.arguments) == 20
    assert [argument.kind for argument in found.arguments] == ["pointer", "pointer", "value"]
    assert found.hidden == ()
    assert found.figure("lds_bytes") == 16
    assert found.figure("waves_per_simd") == 8
    assert found.figure("max_flat_workgroup_size") == 256
    assert refusals(found) == ()


@pytest.mark.compile
def test_the_row_kernel_has_no_loop_and_no_waterfall(llvm):
    assembly = llvm.assembly(ARCH.lower(row_kernel(), None, 22))
    assert len(re.findall("v_exp_f32", assembly)) == 8
    labels = re.findall(r"^\.LBB\d+_\d+:", assembly, re.MULTILINE)
    branches = re.findall(r"s_c?branch\w* \.LBB\d+_\d+", assembly)
    positions = {label[:-1]: assembly.index(f"\n{label}") for label in labels}
    assert all(assembly.index(branch) < positions[branch.split()[-1]] for branch in branches), "a branch goes back"


# Workgroup memory beyond what other archs of the kind have.


def filling(elements):
    """A kernel that writes and reads the last 256 elements of so many f32."""

    def body(x, sums, row_length):
        tile, thread = memory.allocate(F32, elements), lanes.thread_id()
        memory.workgroup_store(tile, thread, convert.sitofp(thread, to=F32), offset=elements - 256)
        control.barrier()
        own = memory.workgroup_load(tile, thread ^ 1, offset=elements - 256)
        memory.store(memory.offset(sums, thread), own)

    parameters = row_kernel().parameters
    return build_kernel("fill", parameters, arch=ARCH, block=256, attributes={"workgroups_per_cu": 1}, body=body)


@pytest.mark.compile
def test_all_of_the_workgroup_memory_can_be_had_and_no_more(llvm):
    kernel = filling(ARCH.lds_bytes // 4)
    found = ARCH.usage(llvm.object(ARCH.lower(kernel, None, 22)), "fill")
    assert (found.figure("lds_bytes"), found.figure("workgroups_per_cu")) == (163840, 1)
    assert refusals(found) == ()
    with pytest.raises(IRError, match="gfx950 has at most 163840"):
        ARCH.lower(filling(ARCH.lds_bytes // 4 + 1), None, 22)


def test_workgroup_memory_is_dealt_in_granules_of_1280_bytes():
    limits = wave_limits(ARCH)
    assert (limits.lds_bytes_per_cu, limits.lds_granule) == (163840, 1280)
    assert limits.workgroups_per_cu(8, 4, 32 * 1280) == 4
    assert limits.workgroups_per_cu(8, 4, 32 * 1280 + 1) == 3


def test_a_copy_under_another_name_is_written_alike():
    copy = attrs.evolve(ARCH, name="another")
    assert copy.lower(row_kernel(copy), None, 22).text == ARCH.lower(row_kernel(), None, 22).text


def test_nothing_is_claimed_of_lanes_served_together():
    banks = ARCH.banks
    assert banks is not None and (banks.banks, banks.bank_bytes, banks.bytes_per_clock) == (64, 4, 256)
    assert banks.phases == () and "not published" in banks.unmeasured
