"""gfx942 as core meets it: facts, target ids, gates, and a kernel all the way to its code object."""

from __future__ import annotations

import re

import attrs
import pytest

from kinfolk import hooks
from kinfolk.arch import UnknownFact
from kinfolk.ir import build_kernel
from kinfolk.ir.ops import arithmetic, control, convert, lanes, memory, vector
from kinfolk.ir.types import BF16, F32, I32, PointerType
from kinfolk.parameters import Parameter
from kinfolk.spec import Spec
from kinfolk.usage import KernelArgument, Usage
from kinfolk_amdgcn.codeobject import CodeObjectError
from kinfolk_amdgcn.resources import LIMITS, wave_limits
from kinfolk_amdgcn.target import TargetId, TargetIdError, parse_target_id, resolve_target_id
from kinfolk_gfx942 import plugin
from kinfolk_gfx942.facts import FACTS

ARCH = plugin.arch()


def test_the_plugin_answers_the_hooks_of_an_arch():
    assert plugin.kinfolk_arch() is ARCH
    assert all(getattr(plugin, name).kinfolk_impl for name in ("kinfolk_arch", "kinfolk_gate_resources"))
    assert hasattr(hooks, "kinfolk_arch")
    assert set(hooks.REQUIRED["arch"]) <= set(vars(plugin))


def test_a_fact_reads_by_name_and_an_unknown_one_says_what_there_is():
    assert (ARCH.lds_bytes, ARCH.compute_units, ARCH.wave_size) == (65536, 304, 64)
    assert ARCH.fact("fp8_format") == "fnuz"
    with pytest.raises(UnknownFact, match=r"declares no fact 'cus'; it declares: .*compute_units"):
        ARCH.fact("cus")


def test_the_facts_agree_with_each_other():
    assert ARCH.max_workgroup_size == 16 * ARCH.wave_size
    assert ARCH.lds_banks * ARCH.lds_bank_bytes == ARCH.lds_bytes_per_clock
    assert FACTS["wave_size"] == ARCH.wave_size
    assert ARCH.hbm_bytes_per_clock == 2523  # 5.3 TB/s at 2.1 GHz


# Measured with LLVM 22 on gfx942: registers of a kernel, and the occupancy it prints.
MEASURED = {64: 8, 72: 7, 73: 6, 80: 6, 81: 5, 96: 5, 97: 4, 128: 4, 129: 3, 168: 3, 169: 2, 256: 2, 257: 1, 512: 1}


@pytest.mark.parametrize("registers", MEASURED)
def test_registers_bound_the_waves_as_llvm_says(registers):
    assert wave_limits(ARCH).waves_per_simd(registers, 0) == MEASURED[registers]


def test_accumulation_registers_begin_at_a_multiple_of_four():
    limits = wave_limits(ARCH)
    assert limits.waves_per_simd(125, 128) == 2
    assert limits.waves_per_simd(125, 129) == limits.waves_per_simd(253, 4) == 1
    assert limits.waves_per_simd(253, 0) == 2


# Target ids.


@pytest.mark.parametrize(
    "text, parts",
    [
        ("gfx942", TargetId("gfx942")),
        ("gfx942:sramecc+:xnack-", TargetId("gfx942", True, False)),
        ("amdgcn-amd-amdhsa--gfx942:sramecc+", TargetId("gfx942", True)),
        ("gfx90a:xnack+", TargetId("gfx90a", None, True)),
    ],
)
def test_a_target_id_is_taken_apart_and_put_together(text, parts):
    assert parse_target_id(text) == parts
    assert str(parts) == text.rpartition("--")[2]
    assert parse_target_id(str(parts)) == parts


@pytest.mark.parametrize(
    "text, said",
    [
        ("", "does not begin with a processor such as gfx942 but with ''"),
        ("sm_90", "but with 'sm_90'"),
        ("gfx942:sramecc", "has 'sramecc', a feature is sramecc or xnack followed by"),
        ("gfx942:wave64+", "has 'wave64\\+'"),
        ("gfx942:xnack+:xnack-", "names xnack twice"),
        ("nvptx64--gfx942", "is for nvptx64, not for amdgcn-amd-amdhsa"),
    ],
)
def test_a_target_id_that_says_nothing_is_an_error(text, said):
    with pytest.raises(TargetIdError, match=said):
        parse_target_id(text)


def test_a_device_runs_code_that_pins_nothing_it_is_not():
    device = parse_target_id("gfx942:sramecc+:xnack-")
    assert device.runs(TargetId("gfx942"))
    assert device.runs(TargetId("gfx942", True, False))
    assert not device.runs(TargetId("gfx942", xnack=True))
    assert not device.runs(TargetId("gfx950"))
    assert resolve_target_id("gfx942:xnack-", ARCH.target_ids).llvm_features == "-xnack"
    with pytest.raises(TargetIdError, match="is of gfx950, this is for gfx942"):
        resolve_target_id("gfx950", ARCH.target_ids)


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


def usage(target="gfx942", hidden=(), **figures):
    return Usage(symbol="k", target=target, scratch_bytes=0, scratch_ops=0, figures=GOOD | figures, hidden=hidden)


SILENT = Spec()


class Excused(Spec):
    """A spec that parks values and says why; it says nothing of the rest."""

    def reason_for(self, figure):
        return "the moves stand outside the loop" if figure == "parked" else None


def refusals(of, spec=SILENT):
    return plugin.kinfolk_gate_resources(usage=of, spec=spec, arch=ARCH)


HIDDEN = (KernelArgument(offset=32, size=4, kind="hidden_block_count_x"),)
EDGES = {
    "amdgcn.resources.parked": (usage(parked=0), usage(parked=1)),
    "amdgcn.resources.lds_bytes": (usage(lds_bytes=65536), usage(lds_bytes=65537)),
    "amdgcn.resources.vgpr": (usage(vgpr=256, agpr=256), usage(vgpr=256, agpr=257)),
    "amdgcn.resources.waves_per_simd": (usage(waves_per_simd=1), usage(waves_per_simd=0)),
    "amdgcn.resources.workgroups_per_cu": (usage(workgroups_per_cu=1), usage(workgroups_per_cu=0)),
    "amdgcn.resources.block": (usage(max_flat_workgroup_size=1024), usage(max_flat_workgroup_size=1025)),
    "amdgcn.resources.hidden_arguments": (usage(), usage(hidden=HIDDEN)),
    "amdgcn.resources.target": (usage(target="gfx942:xnack-"), usage(target="gfx950")),
}


def test_every_limit_has_its_edge_here():
    assert {limit.code for limit in LIMITS} | {"amdgcn.resources.target"} == EDGES.keys()


@pytest.mark.parametrize("code", EDGES)
def test_a_limit_holds_up_to_its_edge_and_says_why_beyond(code):
    within, beyond = EDGES[code]
    assert refusals(within) == ()
    [refusal] = refusals(beyond)
    assert (refusal.code, refusal.kind, refusal.plugin) == (code, "cannot", "kinfolk-gfx942")
    assert refusal.limit and refusal.because and refusal.remedy


def test_parked_values_need_a_declared_reason_and_it_excuses_nothing_else():
    assert "reason_for" in refusals(usage(parked=7))[0].remedy
    assert refusals(usage(parked=7), Excused()) == ()
    [refusal] = refusals(usage(parked=7, lds_bytes=70000), Excused())
    assert refusal.field == "lds_bytes"


def test_code_is_walked_where_the_arch_has_formats_that_are_known(llvm):
    module = ARCH.lower(kernel_of_one_store(), None, 22)
    code = llvm.object(module)
    assert ARCH.usage(code, "one_store").scratch_ops == 0
    unknown = attrs.evolve(ARCH, facts=dict(FACTS) | {"microcode_formats": "other"})
    with pytest.raises(CodeObjectError, match=r"gfx942; .* if it were for a processor whose encodings are known"):
        unknown.usage(code, "one_store")
    another = attrs.evolve(ARCH, target_ids=("gfx900",))
    with pytest.raises(CodeObjectError, match="if it were for gfx900"):
        another.usage(code, "one_store")


def kernel_of_one_store():
    parameter = Parameter(name="to", type=PointerType(I32), access="write", alignment=4)
    return build_kernel(
        "one_store", [parameter], arch=ARCH, block=64, body=lambda to: memory.store(to, lanes.lane_id())
    )


def test_all_refusals_are_given_at_once_with_their_numbers():
    found = refusals(usage(lds_bytes=70000, waves_per_simd=0, workgroups_per_cu=0))
    assert [refusal.field for refusal in found] == ["lds_bytes", "waves_per_simd", "workgroups_per_cu"]
    assert "lds_bytes is 70000, supported: at most 65536" in str(found[0])


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
    assert found.target == "gfx942"
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


def test_a_copy_under_another_name_is_written_alike():
    copy = attrs.evolve(ARCH, name="another")
    assert copy.lower(row_kernel(copy), None, 22).text == ARCH.lower(row_kernel(), None, 22).text


def test_the_lanes_of_wide_accesses_are_those_published():
    """ROCm's tables: a 16-byte read serves 0-3 with 20-23, 4-7 with 16-19, ...; a write eight lanes in order."""
    groups = ("0-3,20-23", "4-7,16-19", "8-11,28-31", "12-15,24-27")
    groups += ("32-35,52-55", "36-39,48-51", "40-43,60-63", "44-47,56-59")
    spans = [[tuple(map(int, span.split("-"))) for span in group.split(",")] for group in groups]
    published = tuple(tuple(lane for low, high in group for lane in range(low, high + 1)) for group in spans)
    banks = ARCH.banks
    assert banks is not None and (banks.banks, banks.bank_bytes) == (32, 4)
    assert banks.phases_of("read", 16).lanes == published
    assert banks.phases_of("write", 16).lanes == tuple(tuple(range(lane, lane + 8)) for lane in range(0, 64, 8))
    assert [banks.phases_of("read", 8), banks.phases_of("write", 4), banks.phases_of("stage", 4)] == [None] * 3
    assert "of no other access" in banks.unmeasured
