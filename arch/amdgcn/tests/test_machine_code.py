"""Instructions, blocks and figures as they are read of assembly text; numbers of LLVM's model were recorded from it."""

from __future__ import annotations

import pytest
from lowered import WAVE64

from kinfolk_amdgcn.machine import assembly, objects, read, target
from kinfolk_amdgcn.machine.costs import matrix_clocks
from kinfolk_amdgcn.machine.operands import instruction, registers

LLVM_PASSES = {
    "v_mfma_f32_4x4x4_16b_f16": 2,
    "v_mfma_f32_16x16x16_bf16": 4,
    "v_mfma_f32_32x32x8_f16": 8,
    "v_mfma_f32_16x16x32_bf16": 4,
    "v_mfma_f32_32x32x16_f16": 8,
    "v_mfma_f32_16x16x32_fp8_bf8": 4,
    "v_mfma_f32_32x32x16_fp8_fp8": 8,
    "v_mfma_f32_16x16x4_f32": 8,
    "v_mfma_f32_32x32x2_f32": 16,
    "v_mfma_f32_4x4x1_16b_f32": 2,
    "v_mfma_f32_16x16x8_xf32": 4,
    "v_mfma_f32_32x32x4_xf32": 8,
    "v_mfma_f32_16x16x4_4b_f16": 8,
    "v_mfma_f32_32x32x4_2b_bf16": 16,
    "v_mfma_f64_4x4x4_4b_f64": 4,
    "v_mfma_f64_16x16x4_f64": 8,
    "v_mfma_i32_16x16x32_i8": 4,
    "v_mfma_i32_32x32x32_i8": 8,
    "v_mfma_i32_16x16x64_i8": 4,
    "v_mfma_i32_16x16x4_4b_i8": 8,
    "v_smfmac_f32_16x16x64_bf16": 4,
    "v_smfmac_f32_32x32x32_fp8_fp8": 8,
    "v_smfmac_i32_32x32x64_i8": 8,
}
"""Latency less 4, as `llvm-mca -instruction-info` of LLVM 22 prints it for the processor that has the instruction."""


@pytest.mark.parametrize("opcode", LLVM_PASSES)
def test_passes_are_those_of_llvms_model(opcode):
    assert matrix_clocks(opcode, "", WAVE64) == 4 * LLVM_PASSES[opcode]


def test_narrow_elements_on_both_sides_double_the_rate():
    wide = matrix_clocks("v_mfma_f32_16x16x128_f8f6f4", "a[0:3], v[0:7], v[8:15], a[0:3]", WAVE64)
    narrow = matrix_clocks("v_mfma_f32_16x16x128_f8f6f4", "a[0:3], v[0:3], v[8:11], a[0:3] cbsz:4 blgp:4", WAVE64)
    one = matrix_clocks("v_mfma_scale_f32_16x16x128_f8f6f4", "a[0:3], v[0:3], v[8:15], a[0:3] cbsz:4", WAVE64)
    assert (wide, narrow, one) == (32, 16, 32)


def of(text):
    opcode, _, operands = text.partition(" ")
    return instruction(opcode, operands, WAVE64)


@pytest.mark.parametrize(
    "text, issue, reads, writes",
    [
        ("v_add_f32_e32 v0, v1, v2", "vector", "v1 v2", "v0"),
        ("v_fmac_f32_e32 v0, v1, v2", "vector", "v0 v1 v2", "v0"),
        ("v_exp_f32_e32 v0, v1", "transcendental", "v1", "v0"),
        ("v_accvgpr_read_b32 v0, a7", "accumulator_move", "a7", "v0"),
        ("v_pk_mul_f32 v[2:3], v[4:5], v[6:7] op_sel_hi:[1,0]", "vector", "v4 v5 v6 v7", "v2 v3"),
        ("v_cmp_lt_f32_e32 vcc, v1, v2", "vector", "v1 v2", "vcc"),
        ("v_cmp_gt_i32_e64 s[4:5], s6, v2", "vector", "s6 v2", "s4 s5"),
        ("v_add_co_u32_e64 v0, s[4:5], v1, v2", "vector", "s4 s5 v1 v2", "s4 s5 v0"),
        ("v_permlane32_swap_b32_e32 v1, v2", "vector", "v1 v2", "v1 v2"),
        ("v_readfirstlane_b32 s4, v9", "vector", "v9", "s4"),
        ("ds_read_b128 v[0:1], v9 offset:16", "workgroup_memory", "v9", "v0 v1"),
        ("ds_write_b64 v9, v[0:1]", "workgroup_memory", "v0 v1 v9", ""),
        ("ds_add_rtn_u32 v3, v1, v2", "workgroup_memory", "v1 v2", "v3"),
        ("ds_add_u32 v1, v2", "workgroup_memory", "v1 v2", ""),
        ("buffer_load_dwordx2 v[0:1], v9, s[4:7], 0 offen", "global_memory", "s4 s5 s6 s7 v9", "v0 v1"),
        ("buffer_load_dword v9, s[4:7], 0 offen lds", "global_memory", "s4 s5 s6 s7 v9", ""),
        ("global_store_dword v[0:1], v2, off", "global_memory", "v0 v1 v2", ""),
        ("global_atomic_add v[0:1], v2, off", "global_memory", "v0 v1 v2", ""),
        ("global_atomic_add v5, v[0:1], v2, off sc0", "global_memory", "v0 v1 v2", "v5"),
        ("scratch_load_dword v0, off, s32", "scratch_memory", "s32", "v0"),
        ("s_load_dwordx2 s[4:5], s[0:1], 0x18", "scalar_memory", "s0 s1", "s4 s5"),
        ("s_cmp_lt_u32 s20, s6", "scalar", "s20 s6", ""),
        ("s_waitcnt vmcnt(0)", "wait", "", ""),
        ("s_cbranch_vccnz .LBB0_5", "branch", "", ""),
        ("s_barrier", "barrier", "", ""),
        ("s_nop 3", "none", "", ""),
    ],
)
def test_what_an_instruction_reads_and_writes(text, issue, reads, writes):
    found = of(text)
    assert (found.issue, found.reads, found.writes) == (issue, frozenset(reads.split()), frozenset(writes.split()))


def test_the_sum_of_a_product_is_apart_from_its_operands():
    found = of("v_mfma_f32_16x16x16_bf16 a[0:3], v[4:5], v[6:7], a[8:11]")
    assert found.reads == registers("v[4:7]") and found.adds_to == registers("a[8:11]")
    assert found.writes == registers("a[0:3]") and found.matrix_clocks == 16
    sparse = of("v_smfmac_f32_16x16x32_bf16 a[0:3], v[4:5], v[8:11], v20")
    assert sparse.adds_to == sparse.writes == registers("a[0:3]")
    assert sparse.reads == registers("v[4:5], v[8:11], v20")


@pytest.mark.parametrize(
    "text, size, direction",
    [
        ("ds_read_b128 v[0:3], v9", 16, "read"),
        ("ds_read2_b64 v[0:3], v9 offset1:1", 16, "read"),
        ("ds_read2st64_b32 v[0:1], v9 offset1:1", 8, "read"),
        ("ds_read_b64_tr_b16 v[0:1], v9", 8, "read"),
        ("ds_read_u16 v0, v9", 2, "read"),
        ("ds_write_b8 v9, v0", 1, "write"),
        ("ds_bpermute_b32 v0, v1, v2", 4, "read"),
        ("buffer_load_dwordx4 v[0:3], v9, s[4:7], 0 offen", 16, "read"),
        ("global_store_short v[0:1], v2, off", 2, "write"),
        ("v_add_f32_e32 v0, v1, v2", 0, ""),
    ],
)
def test_how_much_a_lane_moves(text, size, direction):
    assert (of(text).bytes, of(text).direction) == (size, direction)


def test_waits_by_name_and_by_number():
    assert of("s_waitcnt vmcnt(3) lgkmcnt(0)").waits == {"vmcnt": 3, "lgkmcnt": 0} and of("s_waitcnt lgkmcnt(0)").drains
    assert of("s_waitcnt 0").waits == {"vmcnt": 0, "lgkmcnt": 0}
    assert not of("s_waitcnt vmcnt(3)").drains and of("s_waitcnt expcnt(0)").waits == {}


TEXT = """
    .amdgcn_target "amdgcn-amd-amdhsa--gfx942:xnack-"
    .text
    .type k,@function
k:                                      ; @k
; %bb.0:                                ; %entry.0
    s_load_dword s0, s[0:1], 0x0        ; a comment
    s_cbranch_scc1 .LBB0_3
.LBB0_1:                                ; %loop.1
                                        ; =>This Inner Loop Header: Depth=1
    v_mfma_f32_16x16x16_bf16 a[0:3], v[0:1], v[2:3], a[0:3]
    s_cbranch_vccnz .LBB0_4
; %bb.2:
    s_cbranch_scc1 .LBB0_1
.LBB0_3:                                ; %done.2
    s_endpgm
.LBB0_4:                                ; %cold.3
    v_mov_b32_e32 v0, 0
    s_branch .LBB0_1
    .section .rodata,"a",@progbits
    .amdhsa_kernel k
        .amdhsa_group_segment_fixed_size 16384
        .amdhsa_private_segment_fixed_size 8
        .amdhsa_next_free_vgpr 212
        .amdhsa_next_free_sgpr 40
        .amdhsa_accum_offset 200
    .end_amdhsa_kernel
    .amdgpu_metadata
---
amdhsa.kernels:
  - .agpr_count:     12
    .args:
      - .name:           x
        .offset:         0
    .max_flat_workgroup_size: 256
    .name:           k
    .sgpr_count:     46
    .sgpr_spill_count: 1
    .symbol:         k.kd
    .vgpr_count:     212
    .vgpr_spill_count: 2
    .wavefront_size: 64
...
    .end_amdgpu_metadata
"""
LIMITS = {
    "vgprs_per_simd": 512,
    "vgpr_granule": 8,
    "accum_granule": 4,
    "lds_granule": 512,
}


def test_a_text_as_blocks_with_names_and_figures():
    arch = WAVE64.__class__(**{**_fields(WAVE64), "facts": {**WAVE64.facts.declared, **LIMITS}})
    [function] = read(TEXT.encode(), None, {}, arch)
    assert (function.symbol, function.target) == ("k", "gfx942")
    assert [(block.label, block.source, block.successors) for block in function.blocks] == [
        ("%bb.0", "entry.0", (3, 1)),
        (".LBB0_1", "loop.1", (4, 2)),
        ("%bb.2", "", (1, 3)),
        (".LBB0_3", "done.2", ()),
        (".LBB0_4", "cold.3", (1,)),
    ]
    assert function.figures == {
        "lds_bytes": 16384,
        "scratch_bytes": 8,
        "sgpr": 46,
        "vgpr": 200,
        "agpr": 12,
        "max_flat_workgroup_size": 256,
        "parked": 3,
        "waves_per_simd": 2,
        "workgroups_per_cu": 2,
    }
    [given] = read(TEXT.encode(), None, {"lds_bytes": 40000}, arch)
    assert given.figures["lds_bytes"] == 40000 and given.figures["workgroups_per_cu"] == 1


def _fields(arch):
    names = ("name", "target_ids", "wave_size", "matrix", "ops", "lower_kernel", "read_usage")
    return {name: getattr(arch, name) for name in names}


def test_a_text_that_declares_nothing_is_one_function_without_figures():
    [listing] = assembly.listings("v_mov_b32 v0, v1\nagain:\ns_branch again // forever\n")
    assert listing.symbol == "" and assembly.figures("s_nop 0") == {}
    assert target(b"s_nop 0\n") is None and target(TEXT.encode()) == "gfx942"


DISASSEMBLY = """
o.o:	file format elf64-amdgpu

0000000000001900 <k>:
	s_cbranch_scc1 2                                           // 000000001900: BF850002 <label_x+0x4>
	v_mov_b32_e32 v0, v1                                       // 000000001904: 7E000301

0000000000001908 <label_x>:
	s_cbranch_vccnz 65534                                      // 000000001908: BF87FFFE <k+0x4>
	s_endpgm                                                   // 00000000190C: BF810000
"""


def test_jumps_of_a_disassembly_lead_where_their_encoding_says():
    """0x1900 + 4 + 4 * 2 = 0x190c; 0x1908 + 4 - 4 * 2 = 0x1904. A symbol that is no function is a label."""
    [listing] = objects.listings(DISASSEMBLY, {"k"})
    jumps = [line.jumps_to for line in listing.items if getattr(line, "jumps_to", "")]
    assert jumps == ["0x190c", "0x1904"]
    labels = [item.name for item in listing.items if not hasattr(item, "opcode")]
    assert labels == ["0x1904", "0x190c"]


def test_what_is_no_object_is_said_to_be_none():
    from kinfolk_amdgcn.codeobject import CodeObjectError

    assert target(b"\x7fELF" + bytes(70)) is None
    with pytest.raises(CodeObjectError, match="not a readable ELF object"):
        objects.figures(b"\x7fELF" + bytes(70))
