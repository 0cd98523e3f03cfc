"""Conversions of 8-bit floats on each arch: simulated, lowered and run with stand-ins for instructions, compiled."""

from __future__ import annotations

import ctypes
import re

import llvmlite.binding as llvm
import ml_dtypes
import numpy as np
import pytest

from kinfolk.errors import IllegalOp, ToolError
from kinfolk.ir import build_kernel
from kinfolk.ir.float8 import ENCODINGS, FORMATS
from kinfolk.ir.ops import float8, lanes, memory, vector
from kinfolk.ir.types import BF16, F8E4M3FN, F8E4M3FNUZ, F8E5M2, F8E5M2FNUZ, F16, F32, PointerType, VectorType
from kinfolk.parameters import Parameter
from kinfolk.plugins.loading import load
from kinfolk_runtime.simulator.engine import Simulator
from kinfolk_runtime.toolchains import CompileJob
from kinfolk_runtime.toolchains.host import named_toolchain

pytestmark = pytest.mark.needs("gfx942", "gfx950")

ARCHS = {name: load("arch", name).plugin.kinfolk_arch() for name in ("gfx942", "gfx950")}
# AMD's ISA documents of MI300 and of MI350: which floats fp8 and bf8 are in the instructions.
KNOWN = {"gfx942": (F8E4M3FNUZ, F8E5M2FNUZ), "gfx950": (F8E4M3FN, F8E5M2)}
WORDS = {F8E4M3FN: "fp8", F8E4M3FNUZ: "fp8", F8E5M2: "bf8", F8E5M2FNUZ: "bf8"}
PAIRS = [(arch, narrow) for arch, narrows in KNOWN.items() for narrow in narrows]
THEIRS = {
    F8E4M3FN: ml_dtypes.float8_e4m3fn,
    F8E5M2: ml_dtypes.float8_e5m2,
    F8E4M3FNUZ: ml_dtypes.float8_e4m3fnuz,
    F8E5M2FNUZ: ml_dtypes.float8_e5m2fnuz,
    F32: np.float32,
    F16: np.float16,
    BF16: ml_dtypes.bfloat16,
}
LANES = {"llvmlite": "llvm22", "llc": "llvm22", "llvmlite20": "llvm20"}
CODES = np.arange(256, dtype=np.uint8)


def converting(arch, source, target, count, overflow=None):
    """Each lane converts `count` of the elements that it loads, and stores them one by one."""
    loaded = 1 << (count - 1).bit_length()

    def body(given, taken):
        first = lanes.lane_id() * loaded
        value = memory.load(memory.offset(given, first), count=loaded)
        if count != loaded:
            value = vector.slice_(value, 0, count)
        if overflow is None:
            made = float8.widen_float8(value, to=target)
        else:
            made = float8.narrow_float8(value, to=target, overflow=overflow)
        for index in range(count):
            part = vector.extract(made, index=index) if isinstance(made.type, VectorType) else made
            memory.store(memory.offset(taken, first + index), part)

    parameters = [
        Parameter(name=name, type=PointerType(type_), alignment=16, access="readwrite")
        for name, type_ in (("given", source), ("taken", target))
    ]
    return build_kernel("k", parameters, arch=arch, block=64, body=body)


def values_of(source, narrow):
    """Storage bits of `source`: each value of the 8-bit format, ties, neighbours, NaN and infinities; 512 of them."""
    with np.errstate(all="ignore"):
        exact = CODES.view(THEIRS[narrow]).astype(np.float64)
        exact = np.unique(exact[np.isfinite(exact)])
        largest, step = exact[-1], exact[-1] - exact[-2]
        edges = largest + step * np.array([0.5, 0.51, 1.0, 1e6, np.inf, np.nan])
        points = np.concatenate([exact, (exact[1:] + exact[:-1]) / 2, edges, -edges, [-0.0, 1e-30, -1e-30]])
        bits = np.resize(points.astype(THEIRS[source]), 512 + 32).view(f"u{source.bytes}")
    bits[-32:] += 1
    return bits[-512:].copy()


def expected(bits, source, target, overflow):
    with np.errstate(all="ignore"):
        value = bits.view(THEIRS[source]).astype(np.float32)
        if overflow == "saturate":
            largest = float(ml_dtypes.finfo(THEIRS[target]).max)
            value = np.clip(value, -largest, largest)
        return value.astype(THEIRS[target]).view(f"u{target.bytes}")


@pytest.mark.simulate
@pytest.mark.parametrize("engine", ["reference", "fast"])
@pytest.mark.parametrize("arch, narrow", PAIRS, ids=str)
def test_a_kernel_converts_as_ml_dtypes_does(arch, narrow, engine):
    for source in (F32, F16, BF16):
        bits = values_of(source, narrow)
        for overflow in float8.OVERFLOWS:
            found = np.zeros(512, np.uint8)
            kernel = converting(ARCHS[arch], source, narrow, 4, overflow)
            for half in (slice(0, 256), slice(256, 512)):
                Simulator(engine=engine).launch(kernel, (1, 1, 1), [bits[half], found[half]])
            assert np.array_equal(found, expected(bits, source, narrow, overflow))
        back = np.zeros(256, bits.dtype)
        Simulator(engine=engine).launch(converting(ARCHS[arch], narrow, source, 4), (1, 1, 1), [CODES.copy(), back])
        assert np.array_equal(back, expected(CODES, narrow, source, None))


# The lowered text, run here, with stand-ins for the instructions that tell when a mode of the hardware would decide.

STAND_INS = """
declare float @stand_in.widen(i32)
define <2 x float> @stand_in.cvt.pk.f32.{word}(i32 %word, i1 %upper) {{
  %up = zext i1 %upper to i32
  %by = shl i32 %up, 4
  %half = lshr i32 %word, %by
  %high = lshr i32 %half, 8
  %a = call float @stand_in.widen(i32 %half)
  %b = call float @stand_in.widen(i32 %high)
  %one = insertelement <2 x float> poison, float %a, i32 0
  %two = insertelement <2 x float> %one, float %b, i32 1
  ret <2 x float> %two
}}
declare i32 @stand_in.narrow(float, float, i32, i32)
define i32 @stand_in.cvt.pk.{word}.f32(float %a, float %b, i32 %old, i1 %upper) {{
  %up = zext i1 %upper to i32
  %known = freeze i32 %old
  %made = call i32 @stand_in.narrow(float %a, float %b, i32 %known, i32 %up)
  ret i32 %made
}}
declare float @stand_in.fmed3.f32(float, float, float)
"""


class Instructions:
    """The conversions of one format as the ISA describes them; `decided` counts inputs whose result a mode decides."""

    def __init__(self, narrow) -> None:
        self.form, self.theirs, self.decided = FORMATS[narrow], THEIRS[narrow], 0
        f32, i32 = ctypes.c_float, ctypes.c_uint32
        self._kept = {
            "widen": ctypes.CFUNCTYPE(f32, i32)(self.widen),
            "narrow": ctypes.CFUNCTYPE(i32, f32, f32, i32, i32)(self.narrow),
            "fmed3.f32": ctypes.CFUNCTYPE(f32, f32, f32, f32)(self.median),
        }
        for name, function in self._kept.items():
            llvm.add_symbol(f"stand_in.{name}", ctypes.cast(function, ctypes.c_void_p).value)

    def widen(self, word):
        return float(np.uint8(word & 0xFF).view(self.theirs).astype(np.float32))

    def narrow(self, a, b, old, upper):
        code = self.code(a) | self.code(b) << 8
        return old & 0xFFFF | code << 16 if upper else old & 0xFFFF0000 | code

    def code(self, value):
        with np.errstate(all="ignore"):
            made = np.float32(value).astype(self.theirs)
        stays = np.isfinite(np.float32(made)) or np.isnan(value) or (np.isinf(value) and self.form.infinity is not None)
        if not stays:
            self.decided += 1
            return 0x55
        return int(made.view(np.uint8))

    def median(self, *values):
        """V_MED3_F32: with a NaN among them, the least of the others."""
        if any(map(np.isnan, values)):
            return min(value for value in values if not np.isnan(value))
        return sorted(values)[1]


def run_here(kernel, arch, given, taken, word, change=lambda text: text):
    """Run the lowered text of a kernel as lane 0 on this host, at every eighth element."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine(opt=1, features="+f16c,+avx")
    text = change(arch.lower(kernel, None, 22).text)
    text = (
        re.sub(r"target (datalayout|triple) = .*", "", text).replace("amdgpu_kernel ", "").replace(" addrspace(1)", "")
    )
    text = text.replace("call i32 @llvm.amdgcn.workitem.id.x()", "add i32 0, 0").replace("llvm.amdgcn", "stand_in")
    text = re.sub(r"declare .*@stand_in.*\n", "", text) + STAND_INS.format(word=word)
    module = llvm.parse_assembly(re.sub(r"attributes #0 = .*", "attributes #0 = { nounwind }", text))
    module.verify()
    engine = llvm.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    run = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(engine.get_function_address("k"))
    for start in range(0, len(given), 8):
        run(given[start:].ctypes.data, taken[start:].ctypes.data)
    engine.close()


@pytest.mark.compile
@pytest.mark.parametrize(
    "count, source", [(1, F32), (2, F16), (3, F32), (4, F32), (4, BF16), (5, F16), (8, BF16)], ids=str
)
@pytest.mark.parametrize("arch, narrow", PAIRS, ids=str)
def test_no_instruction_is_given_what_a_mode_decides(arch, narrow, count, source):
    """Both overflows come out right although what the instruction would make of one is rubbish here."""
    bits, done = values_of(source, narrow), [start + index for start in range(0, 512, 8) for index in range(count)]
    for overflow in float8.OVERFLOWS:
        stands, found = Instructions(narrow), np.zeros(512, np.uint8)
        run_here(converting(ARCHS[arch], source, narrow, count, overflow), ARCHS[arch], bits, found, WORDS[narrow])
        assert np.array_equal(found[done], expected(bits, source, narrow, overflow)[done])
        assert stands.decided == 0
    back = np.zeros(256, bits.dtype)
    run_here(converting(ARCHS[arch], narrow, source, count), ARCHS[arch], CODES.copy(), back, WORDS[narrow])
    done = [each for each in done if each < 256]
    assert np.array_equal(back[done], expected(CODES, narrow, source, None)[done])


@pytest.mark.compile
@pytest.mark.parametrize("arch, narrow", PAIRS, ids=str)
@pytest.mark.parametrize("overflow", float8.OVERFLOWS)
def test_the_stand_ins_see_a_lowering_that_leaves_it_to_the_mode(arch, narrow, overflow):
    """Negative control: without the replacement of what is past the largest value the check above fails."""

    def careless(text):
        return re.sub(r"(%\S+) = select i1 \S+, float (%\S+|\S+), float (%\S+)", passed_on, text)

    def passed_on(match):
        value = match[2] if overflow == "saturate" else match[3]
        return f"{match[1]} = fadd float {value}, 0x8000000000000000"

    stands, found, bits = Instructions(narrow), np.zeros(512, np.uint8), values_of(F32, narrow)
    kernel = converting(ARCHS[arch], F32, narrow, 4, overflow)
    run_here(kernel, ARCHS[arch], bits, found, WORDS[narrow], careless)
    assert stands.decided > 0 and 0x55 in found


INSTRUCTIONS = {None: "v_cvt_pk_f32_{}", "saturate": "v_cvt_pk_{}_f32", "nonfinite": "v_cvt_pk_{}_f32"}


@pytest.mark.compile
@pytest.mark.parametrize("lane", LANES)
@pytest.mark.parametrize("arch, narrow", PAIRS, ids=str)
def test_every_llvm_compiles_them_to_the_instruction(arch, narrow, lane):
    flavor = LANES[lane]
    try:
        toolchain = named_toolchain(lane)
        assert toolchain.build
    except ToolError as error:
        pytest.skip(str(error))
    for overflow, instruction in INSTRUCTIONS.items():
        for wide in (F32, F16, BF16):
            types = (narrow, wide) if overflow is None else (wide, narrow)
            module = ARCHS[arch].lower(converting(ARCHS[arch], *types, 4, overflow), None, int(flavor[-2:]))
            job = CompileJob(kernel="k", llvm_ir=module.text, triple=module.triple, cpu=module.cpu, assembly=True)
            assembly = toolchain.compile(job).assembly
            found = re.findall(r"v_cvt(?:_scalef32)?_\w*(?:fp8|bf8)\w*", assembly)
            assert [name.partition("_e32")[0].partition("_sdwa")[0] for name in found] == [
                instruction.format(WORDS[narrow])
            ] * 2
            assert ("v_med3_f32" in assembly) == (overflow == "saturate")
            assert "scratch_" not in assembly
            assert ".amdhsa_fp16_overflow 0" in assembly, "what converting an infinity needs"


@pytest.mark.parametrize("arch, other", [("gfx942", "gfx950"), ("gfx950", "gfx942")])
def test_the_other_encoding_is_refused_when_a_kernel_is_built_and_when_one_is_lowered(arch, other):
    here, there = ARCHS[arch], ARCHS[other]
    assert here.fact("fp8_format") != there.fact("fp8_format")
    assert ENCODINGS[here.fact("fp8_format")] == KNOWN[arch]
    for lacking, own in zip(KNOWN[other], KNOWN[arch], strict=True):
        said = rf"float8 is not legal on {arch}: no instruction converts {lacking}, its instructions convert "
        said += rf".* \(fp8_format is {here.fact('fp8_format')}\); use {own}, whose codes mean other values"
        for types, overflow in (((F32, lacking), "saturate"), ((lacking, F32), None)):
            assert not here.has(f"core.{'narrow' if overflow else 'widen'}_float8", *types)
            with pytest.raises(IllegalOp, match=said):
                converting(here, *types, 4, overflow)
            elsewhere = converting(there, *types, 4, overflow)
            with pytest.raises(IllegalOp, match=said):
                here.lower(elsewhere, None, 22)
            there.lower(elsewhere, None, 22)
        assert here.has("core.narrow_float8", F32, own) and here.has("core.widen_float8", own, BF16)
