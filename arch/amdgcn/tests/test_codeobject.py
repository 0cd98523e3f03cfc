"""Figures read from code objects, against what LLVM's own disassembler and our knowledge of each small kernel say."""

from __future__ import annotations

import random
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kinfolk.errors import ToolError
from kinfolk.usage import KernelArgument
from kinfolk_amdgcn.codeobject import CodeObjectError, WaveLimits, read_code_object, usage_from_object
from kinfolk_amdgcn.instructions import UnknownInstructionError, dword_count, is_scratch, scratch_op_count, walk
from kinfolk_amdgcn.testing.archs import OCCUPANCY

LIMITS = WaveLimits(
    vgprs_per_simd=512,
    vgpr_granule=8,
    accum_granule=4,
    max_waves_per_simd=8,
    simds_per_cu=4,
    lds_bytes_per_cu=65536,
    lds_granule=512,
)
PROCESSORS = ("gfx942", "gfx950")
TAIL = """
declare i32 @llvm.amdgcn.workitem.id.x()
declare <16 x float> @llvm.amdgcn.mfma.f32.32x32x2f32(float, float, <16 x float>, i32, i32, i32)
declare float @llvm.amdgcn.exp2.f32(float)
declare void @llvm.amdgcn.s.barrier()
attributes #0 = { "amdgpu-flat-work-group-size"="256,256" "amdgpu-no-implicitarg-ptr" }
"""
SIMPLE = """
define amdgpu_kernel void @simple(ptr addrspace(1) %a, i32 %n, i64 %m, float %s) #0 {
  %i = call i32 @llvm.amdgcn.workitem.id.x()
  %wide = zext i32 %i to i64
  %at = mul i64 %wide, %m
  %off = add i64 %at, 123456789012
  %g = getelementptr float, ptr addrspace(1) %a, i64 %off
  %v = load float, ptr addrspace(1) %g
  %e = call float @llvm.amdgcn.exp2.f32(float %v)
  %w = fmul float %e, 0x400921FB60000000
  %x = fadd float %w, %s
  %big = icmp ugt i32 %n, 1234567
  %y = select i1 %big, float %x, float 0x3FF3C0CA40000000
  store float %y, ptr addrspace(1) %g
  ret void
}
"""
MATRIX = """
@pool = internal addrspace(3) global [20000 x i8] poison, align 16
define amdgpu_kernel void @matrix(ptr addrspace(1) %a, float %s) #0 {
  %i = call i32 @llvm.amdgcn.workitem.id.x()
  %l = getelementptr float, ptr addrspace(3) @pool, i32 %i
  store float %s, ptr addrspace(3) %l
  call void @llvm.amdgcn.s.barrier()
  %f = load float, ptr addrspace(3) %l
  %g = getelementptr <16 x float>, ptr addrspace(1) %a, i32 %i
  %c = load <16 x float>, ptr addrspace(1) %g
  %d = call <16 x float> @llvm.amdgcn.mfma.f32.32x32x2f32(float %s, float %f, <16 x float> %c, i32 0, i32 0, i32 0)
  call void asm sideeffect "", "~{a45}"()
  store <16 x float> %d, ptr addrspace(1) %g
  ret void
}
"""
PRIVATE = """
define amdgpu_kernel void @private(ptr addrspace(1) %a, i32 %n) #0 {
  %p = alloca [64 x i32], addrspace(5)
  %q = getelementptr i32, ptr addrspace(5) %p, i32 %n
  store volatile i32 7, ptr addrspace(5) %q
  %v = load volatile i32, ptr addrspace(5) %p
  store i32 %v, ptr addrspace(1) %a
  ret void
}
"""
IN_A_CALLEE = """
define internal i32 @callee(i32 %n) noinline norecurse {
  %p = alloca [64 x i32], addrspace(5)
  %q = getelementptr i32, ptr addrspace(5) %p, i32 %n
  store volatile i32 7, ptr addrspace(5) %q
  %v = load volatile i32, ptr addrspace(5) %p
  ret i32 %v
}
define amdgpu_kernel void @caller(ptr addrspace(1) %a, i32 %n) #0 {
  %v = call i32 @callee(i32 %n)
  store i32 %v, ptr addrspace(1) %a
  ret void
}
"""
DYNAMIC = """
define amdgpu_kernel void @dynamic(ptr addrspace(1) %a, i32 %n) #0 {
  %p = alloca i32, i32 %n, addrspace(5)
  store volatile i32 7, ptr addrspace(5) %p
  %v = load volatile i32, ptr addrspace(5) %p
  store i32 %v, ptr addrspace(1) %a
  ret void
}
"""
UNDEFINED = """
declare float @llvm.amdgcn.no.such.thing(float)
define amdgpu_kernel void @unlinked(ptr addrspace(1) %a, float %s) #0 {
  %v = call float @llvm.amdgcn.no.such.thing(float %s)
  store float %v, ptr addrspace(1) %a
  ret void
}
"""


def spilling(width: int = 150) -> str:
    """A kernel that keeps more values alive than its 64 registers hold."""
    loads = [
        f"  %g{i} = getelementptr float, ptr addrspace(1) %a, i32 {i * 64}\n"
        f"  %p{i} = getelementptr float, ptr addrspace(1) %g{i}, i32 %i\n"
        f"  %v{i} = load volatile float, ptr addrspace(1) %p{i}"
        for i in range(width)
    ]
    stores = [f"  store volatile float %v{i}, ptr addrspace(1) %p{width - 1 - i}" for i in range(width)]
    return "\n".join(
        (
            "define amdgpu_kernel void @spilling(ptr addrspace(1) %a) #1 {",
            "  %i = call i32 @llvm.amdgcn.workitem.id.x()",
            *loads,
            *stores,
            "  ret void\n}",
            'attributes #1 = { "amdgpu-flat-work-group-size"="256,256" "amdgpu-waves-per-eu"="8,8" '
            '"amdgpu-num-vgpr"="32" "amdgpu-no-implicitarg-ptr" }',
        )
    )


def compile_object(text: str, cpu: str = "gfx942") -> bytes:
    import llvmlite.binding as llvm

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    machine = llvm.Target.from_triple("amdgcn-amd-amdhsa").create_target_machine(cpu=cpu, opt=3, codemodel="default")
    module = llvm.parse_assembly(text + TAIL)
    module.triple, module.data_layout = "amdgcn-amd-amdhsa", str(machine.target_data)
    module.verify()
    return machine.emit_object(module)


def tool(name: str) -> str:
    """Path of an LLVM tool; a missing one fails the test, it skips nothing."""
    found = shutil.which(f"{name}-22") or shutil.which(name)
    assert found, f"{name} of LLVM 22 is needed as the oracle of this test"
    return found


def said_by(name: str, *arguments: str | Path) -> str:
    """Standard output of an LLVM tool."""
    return subprocess.run([tool(name), *arguments], capture_output=True, text=True, check=True).stdout


def disassembled(data: bytes, path: Path) -> list[tuple[str, int, int]]:
    """What llvm-objdump reads: mnemonic, dwords and first dword of every instruction."""
    path.write_bytes(data)
    text = said_by("llvm-objdump", "-d", path)
    lines = re.findall(r"^\t(\S+).*// [0-9A-F]+:((?: [0-9A-F]{8})+)", text, re.MULTILINE)
    return [(mnemonic, len(dwords.split()), int(dwords.split()[0], 16)) for mnemonic, dwords in lines]


def text_section(data: bytes) -> tuple[int, int]:
    """Offset and size of .text, by hand from the ELF header."""
    at = lambda offset, size: int.from_bytes(data[offset : offset + size], "little")  # noqa: E731
    table, count = at(0x28, 8), at(0x3C, 2)
    executable = [table + 64 * i for i in range(count) if at(table + 64 * i + 8, 8) & 4]
    [header] = executable
    return at(header + 0x18, 8), at(header + 0x20, 8)


@pytest.fixture(scope="module")
def objects() -> dict[str, bytes]:
    texts = {"simple": SIMPLE, "matrix": MATRIX, "private": PRIVATE, "spilling": spilling(), "caller": IN_A_CALLEE}
    return {name: compile_object(text) for name, text in texts.items()}


@pytest.mark.parametrize("name", ["simple", "matrix", "private", "spilling", "caller"])
def test_the_walk_agrees_with_the_disassembler_on_compiled_kernels(objects, name, tmp_path):
    offset, size = text_section(objects[name])
    ours = [(count, dword) for _, count, dword in walk(objects[name][offset : offset + size])]
    theirs = disassembled(objects[name], tmp_path / "o")
    assert ours == [(count, dword) for _, count, dword in theirs]
    scratch = sum(mnemonic.startswith("scratch_") for mnemonic, _, _ in theirs)
    assert usage_from_object(objects[name], name, LIMITS, PROCESSORS).scratch_ops == scratch
    assert (scratch > 0) == (name in ("private", "spilling", "caller"))


def random_code(draw: random.Random, size: int) -> bytes:
    """Uniform words, with more of what is rare in them: literals, modifiers, flat and scaled-matrix encodings."""
    words = [draw.getrandbits(32) for _ in range(size // 4)]
    for i in range(0, len(words), 2):
        words[i] = (words[i] & ~0x1FF) | draw.choice((255, 249, 250, words[i] & 0x1FF))
        if draw.random() < 0.3:
            encoding = draw.choice((0xDC000000, 0xB0000000, 0xD3AC0000, 0xBE800000, 0xBF000000, 0xE0000000))
            words[i] = encoding | words[i] & 0x3FFFFFF
    return b"".join(word.to_bytes(4, "little") for word in words)


@pytest.mark.parametrize("cpu", ["gfx942", "gfx950"])
def test_lengths_and_scratch_agree_with_the_disassembler_on_random_code(cpu, tmp_path):
    """Where the disassembler knows an instruction, its length is ours: over every encoding, random operands."""
    data = bytearray(compile_object(SIMPLE, cpu))
    offset, size = text_section(data)
    draw = random.Random(cpu)
    known: list[tuple[str, int, int]] = []
    crashed = 0
    for _ in range(60):
        data[offset : offset + size] = random_code(draw, size)
        try:
            instructions = disassembled(bytes(data), tmp_path / "o")
        except subprocess.CalledProcessError:  # a few random words crash LLVM 22's disassembler itself
            crashed += 1
            continue
        known += [each for each in instructions if not each[0].startswith(".")]
    lenient = [each for each in known if each[1] == 3]  # a literal after two dwords, which the ISA does not have
    assert len(lenient) < len(known) / 200
    known = [each for each in known if each not in lenient]
    assert crashed < 15
    assert [(name, count, hex(dword)) for name, count, dword in known if dword_count(dword) != count] == []
    assert [each for each in known if each[0].startswith("scratch_") != is_scratch(each[2])] == []
    assert len(known) > 3000
    assert sum(is_scratch(dword) for _, _, dword in known) > 10
    assert {count for _, count, _ in known} >= {1, 2}
    assert {dword >> 26 for _, _, dword in known} >= {0x30, 0x34, 0x36, 0x37, 0x38, 0x3A}


def test_a_scaled_matrix_instruction_is_one_of_four_dwords(tmp_path):
    name = "@llvm.amdgcn.mfma.scale.f32.16x16x128.f8f6f4.v8i32.v8i32"
    text = f"""
declare <4 x float> {name}(<8 x i32>, <8 x i32>, <4 x float>, i32, i32, i32, i32, i32, i32)
define amdgpu_kernel void @scaled(ptr addrspace(1) %a, i32 %s) #0 {{
  %i = call i32 @llvm.amdgcn.workitem.id.x()
  %g = getelementptr <8 x i32>, ptr addrspace(1) %a, i32 %i
  %v = load <8 x i32>, ptr addrspace(1) %g
  %d = call <4 x float> {name}(<8 x i32> %v, <8 x i32> %v, <4 x float> zeroinitializer,
                               i32 0, i32 0, i32 0, i32 %s, i32 0, i32 %i)
  store <4 x float> %d, ptr addrspace(1) %g
  ret void
}}
"""
    data = compile_object(text, "gfx950")
    offset, size = text_section(data)
    theirs = disassembled(data, tmp_path / "o")
    assert [(count, dword) for _, count, dword in walk(data[offset : offset + size])] == [each[1:] for each in theirs]
    assert 4 in {count for mnemonic, count, _ in theirs if mnemonic.startswith("v_mfma_scale")}


def test_figures_of_a_simple_kernel(objects):
    usage = usage_from_object(objects["simple"], "simple", LIMITS, PROCESSORS)
    assert (usage.symbol, usage.target, usage.scratch_bytes, usage.scratch_ops) == ("simple", "gfx942", 0, 0)
    assert usage.arguments == (
        KernelArgument(offset=0, size=8, kind="pointer"),
        KernelArgument(offset=8, size=4, kind="value"),
        KernelArgument(offset=16, size=8, kind="value"),
        KernelArgument(offset=24, size=4, kind="value"),
    )
    assert usage.hidden == ()
    figures = usage.figures
    assert figures["kernarg_bytes"] == 28 and figures["max_flat_workgroup_size"] == 256
    assert figures["waves_per_simd"] == 8 and figures["workgroups_per_cu"] == 8 and figures["agpr"] == 0
    assert 0 < figures["vgpr"] < 16 and 0 < figures["sgpr"] < 32 and figures["lds_bytes"] == figures["parked"] == 0


def test_accumulation_registers_are_taken_out_of_the_unified_count(objects, tmp_path):
    """The note counts both kinds in .vgpr_count; the difference is where LLVM's own descriptor starts the second."""
    usage = usage_from_object(objects["matrix"], "matrix", LIMITS, PROCESSORS)
    (tmp_path / "o").write_bytes(objects["matrix"])
    note = said_by("llvm-readelf", "--notes", tmp_path / "o")
    total = int(re.search(r"\.vgpr_count: +(\d+)", note)[1])
    descriptor = said_by("llvm-objdump", "-D", "-j", ".rodata", tmp_path / "o")
    start = int(re.search(r"\.amdhsa_accum_offset (\d+)", descriptor)[1])
    assert usage.figures["agpr"] == 46 and usage.figures["vgpr"] == start == total - 46
    assert usage.figures["lds_bytes"] == 20000 and usage.figures["workgroups_per_cu"] == 3


def test_scratch_and_parked_of_a_kernel_that_spills(objects):
    usage = usage_from_object(objects["spilling"], "spilling", LIMITS, PROCESSORS)
    assert usage.scratch_bytes > 0 and usage.scratch_ops > 0 and usage.figures["parked"] > 0
    assert usage_from_object(objects["private"], "private", LIMITS, PROCESSORS).figures["parked"] == 0


def test_scratch_in_a_called_function_counts_for_its_kernel(objects):
    read = read_code_object(objects["caller"])
    assert scratch_op_count(read.functions["callee"]) > 0
    usage = usage_from_object(objects["caller"], "caller", LIMITS, PROCESSORS)
    assert usage.scratch_ops >= scratch_op_count(read.functions["callee"])


def test_a_linked_object_gives_the_same_figures(objects, tmp_path):
    for name in ("simple", "matrix", "private"):
        (tmp_path / "o").write_bytes(objects[name])
        subprocess.run([tool("ld.lld"), "-shared", tmp_path / "o", "-o", tmp_path / "so"], check=True)
        linked = (tmp_path / "so").read_bytes()
        assert usage_from_object(linked, name, LIMITS, PROCESSORS) == usage_from_object(
            objects[name], name, LIMITS, PROCESSORS
        )


UNIFIED = [(256, 1, 1), (256, 256, 1), (125, 128, 2), (129, 128, 1), (128, 128, 2), (1, 0, 8), (0, 0, 8), (512, 8, 0)]


@pytest.mark.parametrize("vgpr, agpr, waves", [(vgpr, 0, waves) for vgpr, waves in OCCUPANCY.items()] + UNIFIED)
def test_waves_per_simd(vgpr, agpr, waves):
    assert LIMITS.waves_per_simd(vgpr, agpr) == waves


@pytest.mark.parametrize(
    "waves_per_simd, waves_per_workgroup, lds_bytes, workgroups",
    [
        (2, 4, 0, 2),
        (2, 4, 32768, 2),
        (2, 4, 32769, 1),
        (8, 4, 21504, 3),
        (8, 4, 21505, 2),
        (1, 8, 0, 0),
        (2, 8, 65537, 0),
        (8, 1, 0, 32),
    ],
)
def test_workgroups_per_cu(waves_per_simd, waves_per_workgroup, lds_bytes, workgroups):
    assert LIMITS.workgroups_per_cu(waves_per_simd, waves_per_workgroup, lds_bytes) == workgroups


@pytest.mark.parametrize(
    "text, symbol, says",
    [
        (SIMPLE, "other", "holds no kernel other; it holds simple"),
        (DYNAMIC, "dynamic", "a stack whose size is not known"),
        (UNDEFINED, "unlinked", "llvm.amdgcn.no.such.thing is undefined"),
        ("define void @f() {\n  ret void\n}\n", "f", "holds no kernel f; it holds none"),
    ],
)
def test_what_cannot_be_vouched_for_is_an_error(text, symbol, says):
    with pytest.raises(CodeObjectError, match=re.escape(says)):
        usage_from_object(compile_object(text), symbol, LIMITS, PROCESSORS)


def test_a_processor_of_unknown_encodings_is_an_error():
    with pytest.raises(CodeObjectError, match=r"gfx1100; its scratch instructions .* for gfx942 or gfx950$"):
        usage_from_object(compile_object(SIMPLE, "gfx1100"), "simple", LIMITS, PROCESSORS)


@pytest.mark.parametrize("data", [b"", b"\x7fELF", b"not an object" * 20, bytes(4096), b"\x7fELF\x02\x01" + bytes(200)])
def test_what_is_no_object_is_an_error(data):
    with pytest.raises(CodeObjectError):
        read_code_object(data)


def test_an_object_of_another_machine_is_an_error():
    with pytest.raises(CodeObjectError, match="not AMDGPU"):
        read_code_object(Path(sys.executable).resolve().read_bytes())


def test_every_truncation_is_an_error(objects):
    data = objects["matrix"]
    for length in (*range(80), *range(80, len(data), 37), len(data) - 1):
        with pytest.raises(ToolError):
            usage_from_object(data[:length], "matrix", LIMITS, PROCESSORS)


def test_damage_gives_figures_or_an_error_but_never_a_crash(objects):
    draw = random.Random(1)
    outcomes = {"read": 0, "refused": 0}
    for _ in range(1500):
        data = bytearray(objects["matrix"])
        for _ in range(draw.choice((1, 1, 4))):
            place = draw.choice((draw.randrange(64), draw.randrange(len(data)), len(data) - 1 - draw.randrange(900)))
            data[place] = draw.getrandbits(8)
        try:
            usage_from_object(bytes(data), "matrix", LIMITS, PROCESSORS)
            outcomes["read"] += 1
        except CodeObjectError:
            outcomes["refused"] += 1
    assert min(outcomes.values()) > 50


def test_the_walk_refuses_what_it_does_not_know():
    assert list(walk((0xBF810000).to_bytes(4, "little"))) == [(0, 1, 0xBF810000)]  # s_endpgm
    with pytest.raises(UnknownInstructionError, match="at offset 4"):
        list(walk(bytes.fromhex("000081bf") + (0xF0000000).to_bytes(4, "little")))  # MIMG: not in this family
    with pytest.raises(UnknownInstructionError, match="ends inside"):
        list(walk((0xDC700000).to_bytes(4, "little")))
