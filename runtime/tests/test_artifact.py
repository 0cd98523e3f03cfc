"""An artifact answers for its binaries: what is exchanged, damaged, too large or stale is refused, by name."""

from __future__ import annotations

import threading
from typing import Any, ClassVar

import attrs
import pytest

from kinfolk.arch import Arch, LoweredModule
from kinfolk.errors import DefectiveKernel, InternalError, Refused, ToolError
from kinfolk.expr import const
from kinfolk.fields import ExactBool, ExactFloat, ExactInt
from kinfolk.hooks import hookimpl
from kinfolk.ir import Kernel, build_kernel
from kinfolk.ir.ops import memory
from kinfolk.ir.types import F32, I32, I64, PointerType
from kinfolk.ir.value import Value
from kinfolk.matrix import MatrixCatalog
from kinfolk.parameters import Parameter
from kinfolk.plan import Argument, Axis, Binding, FloatField, Launch, Plan
from kinfolk.plugins.composition import Composition
from kinfolk.plugins.discovery import Offer
from kinfolk.plugins.loading import Loaded
from kinfolk.refusal import Refusal
from kinfolk.request import Request
from kinfolk.spec import Spec
from kinfolk.usage import Usage
from kinfolk_amdgcn.codeobject import WaveLimits, usage_from_object
from kinfolk_runtime import Artifact, ArtifactError, compile, compile_specs  # noqa: A004
from kinfolk_runtime.artifact import argument_layout, artifact_key, compile_job, sha256
from kinfolk_runtime.compilation import compile_spec
from kinfolk_runtime.toolchains.llvmlite_toolchain import LlvmliteToolchain

LIMITS = WaveLimits(
    vgprs_per_simd=512, vgpr_granule=8, accum_granule=4, max_waves_per_simd=8, simds_per_cu=4, lds_bytes_per_cu=65536
)
PARAMETERS = (
    Parameter(name="count", type=I32),
    Parameter(name="out", type=PointerType(F32, "global"), access="write", alignment=4),
    Parameter(name="scale", type=F32),
    Parameter(name="step", type=I64),
)
SIGNATURE = "i32 %count, ptr addrspace(1) %out, float %scale, i64 %step"
ATTRIBUTES = '"amdgpu-flat-work-group-size"="64,64" "amdgpu-no-implicitarg-ptr"'
STORE = "  store float %scale, ptr addrspace(1) %out\n"
SPILL = """
  %p = alloca [64 x i32], addrspace(5)
  %q = getelementptr i32, ptr addrspace(5) %p, i32 %count
  store volatile i32 7, ptr addrspace(5) %q
"""


@attrs.frozen(kw_only=True)
class FillSpec(Spec):
    """Store a scale; `value` is compiled in, `spills` puts memory on the stack."""

    value: int = attrs.field(default=1, validator=ExactInt())
    spills: bool = attrs.field(default=False, validator=ExactBool())

    def parameters(self) -> tuple[Parameter, ...]:
        return PARAMETERS


@attrs.frozen(kw_only=True)
class FillRequest(Request):
    family: ClassVar[str] = "fill"
    n: int = attrs.field(default=64, validator=ExactInt())
    scale: float = attrs.field(default=1.0, validator=ExactFloat(0.0, 8.0))


class FillPlugin:
    """A family of one kernel."""

    parameters = PARAMETERS
    name: str | None = None

    @hookimpl
    def kinfolk_request_type(self) -> type[Request]:
        return FillRequest

    @hookimpl
    def kinfolk_candidates(self) -> tuple[Any, ...]:
        return ()

    @hookimpl
    def kinfolk_emit_ir(self, spec: Spec, arch: Arch) -> Kernel:
        def body(*values: Value) -> None:
            [place] = [value for value in values if isinstance(value.type, PointerType)]
            for value in values:
                if value.type in (I32, I64):
                    place = memory.offset(place, value)
            memory.store(place, next(value for value in values if value.type == F32))

        return build_kernel(self.name or spec.symbol(), self.parameters, arch=arch, block=64, body=body)

    @hookimpl
    def kinfolk_reference(self) -> None:
        return None

    @hookimpl
    def kinfolk_gate_resources(self, usage: Usage, spec: Spec) -> tuple[Refusal, ...]:
        if usage.figure("vgpr") <= 128:
            return ()
        words = {"limit": "vgpr <= 128", "because": "it is a small kernel", "remedy": "Use less.", "plugin": "fill"}
        return (Refusal(code="fill.vgpr", kind="cannot", field="vgpr", value=usage.figure("vgpr"), **words),)


class StubPlugin:
    """An arch whose lowering is a text of ours: what is tested here is what comes after it."""

    def __init__(
        self, signature: str = SIGNATURE, attributes: str = ATTRIBUTES, body: str = "", cpu: str = "gfx942"
    ) -> None:
        self.signature, self.attributes, self.body, self.cpu = signature, attributes, body, cpu
        self.lowered: list[int] = []

    def lower(self, kernel: Kernel, arch: Arch, spec: Spec | None, llvm: int) -> LoweredModule:
        self.lowered.append(llvm)
        assert isinstance(spec, FillSpec)
        value = f"  %g = getelementptr float, ptr addrspace(1) %out, i32 {spec.value}\n"
        value += "  store float 1.0, ptr addrspace(1) %g\n"
        body = (SPILL if spec.spills else "") + self.body + STORE + value
        text = f"define amdgpu_kernel void @{kernel.name}({self.signature}) #0 {{\n{body}  ret void\n}}\n"
        text += f"attributes #0 = {{ {self.attributes} }}\n"
        return LoweredModule(symbol=kernel.name, text=text, triple="amdgcn-amd-amdhsa", cpu=self.cpu)

    @hookimpl
    def kinfolk_arch(self) -> Arch:
        return Arch(
            name="stub",
            target_ids=(self.cpu,),
            wave_size=64,
            facts={},
            matrix=MatrixCatalog(()),
            lower_kernel=self.lower,
            read_usage=lambda code, symbol, arch: usage_from_object(code, symbol, LIMITS, ("gfx942", "gfx950")),
        )


def composed(arch: StubPlugin | None = None, family: FillPlugin | None = None) -> Composition:
    def loaded(kind: str, name: str, plugin: object) -> Loaded:
        return Loaded(Offer(kind=kind, name=name, value=name, distribution=name, version="0"), plugin)

    return Composition(loaded("family", "fill", family or FillPlugin()), loaded("arch", "stub", arch or StubPlugin()))


def planned(*specs: FillSpec, flavor: str = "llvm22", arch: str = "stub") -> Plan:
    arguments = (
        Argument("count", "i32", const(64)),
        Argument("out", "pointer", "out"),
        Argument("scale", "f32", FloatField("scale")),
        Argument("step", "i64", const(1)),
    )
    return Plan(
        request=FillRequest(),
        launches=tuple(Launch(spec=spec, grid=(1, 1, 1), block=64, arguments=arguments) for spec in specs),
        bindings=(Binding(name="out", role="output", dtype="f32", shape=(Axis(64),), alignment=4, access="write"),),
        outputs=("out",),
        arch=arch,
        flavor=flavor,
        candidate="fill",
    )


class CountingToolchain(LlvmliteToolchain):
    """Counts what it really compiles."""

    def __init__(self) -> None:
        super().__init__(workers=2)
        self.compiled: list[str] = []

    def compile(self, job: Any) -> Any:
        self.compiled.append(job.kernel)
        return super().compile(job)


@pytest.fixture(scope="module")
def toolchain():
    made = CountingToolchain()
    yield made
    made.close()


@pytest.fixture
def artifact(toolchain) -> Artifact:
    return compile(planned(FillSpec(value=1), FillSpec(value=2)), composition=composed(), toolchain=toolchain)


def changed(artifact: Artifact, **fields: Any) -> Artifact:
    """The artifact with its first kernel tampered with."""
    first, *rest = artifact.kernels
    return attrs.evolve(artifact, kernels=(attrs.evolve(first, **fields), *rest))


def test_a_plan_becomes_an_artifact_that_stands_its_own_check(artifact, toolchain):
    one, two = artifact.kernels
    assert (one.symbol, two.symbol) == (FillSpec(value=1).symbol(), FillSpec(value=2).symbol())
    assert one.object.startswith(b"\x7fELF")
    assert one.object_sha256 == sha256(one.object)
    assert one.toolchain == toolchain.build
    assert one.usage.scratch_bytes == one.usage.scratch_ops == 0
    assert one.usage.figure("kernarg_bytes") == 32
    assert one.key != two.key
    artifact.check(composed())
    artifact.check(composed(), toolchain=toolchain)


def test_a_process_compiles_a_kernel_once_whatever_asks(toolchain):
    plan, arch = planned(FillSpec(value=31), FillSpec(value=32), FillSpec(value=31)), StubPlugin()
    before = len(toolchain.compiled)
    threads = [
        threading.Thread(target=lambda: compile(plan, composition=composed(arch), toolchain=toolchain))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(toolchain.compiled[before:]) == sorted({FillSpec(value=value).symbol() for value in (31, 32)})
    assert set(arch.lowered) == {22}


def test_a_failed_compilation_is_not_remembered(toolchain):
    class Broken(CountingToolchain):
        def compile(self, job: Any) -> Any:
            raise ToolError("compiling failed")

    plan, broken = planned(FillSpec(value=41)), Broken()
    with pytest.raises(ToolError, match="compiling failed"):
        compile(plan, composition=composed(), toolchain=broken)
    broken.close()
    compile(plan, composition=composed(), toolchain=toolchain).check(composed())


def test_a_swapped_binary_is_refused(artifact):
    other = artifact.kernels[1]
    with pytest.raises(ArtifactError, match="exchanged"):
        changed(artifact, object=other.object).check(composed())


def test_a_swapped_binary_with_its_digest_is_refused_by_its_symbol(artifact):
    other = artifact.kernels[1]
    with pytest.raises(ToolError, match=f"holds no kernel {artifact.kernels[0].symbol}; it holds {other.symbol}"):
        changed(artifact, object=other.object, object_sha256=other.object_sha256).check(composed())


def forged(toolchain: LlvmliteToolchain, arch: StubPlugin, spec: FillSpec) -> dict[str, Any]:
    """Object and digest of a kernel of the right symbol, from another lowering."""
    module = arch.lower(FillPlugin().kinfolk_emit_ir(spec, composed().arch), composed().arch, spec, 22)
    code = toolchain.compile(compile_job(module)).object
    return {"object": code, "object_sha256": sha256(code)}


@pytest.mark.parametrize(
    "arch, error, says",
    [
        (StubPlugin(SIGNATURE.replace("i32 %count", "i64 %count")), ArtifactError, "reads count as a value of 8 bytes"),
        (StubPlugin(SIGNATURE.replace("i64 %step", "i32 %step")), ArtifactError, "reads step as a value of 4 bytes at"),
        (
            StubPlugin(SIGNATURE.replace("i64 %step", "ptr addrspace(1) %step")),
            ArtifactError,
            "reads step as a pointer",
        ),
        (StubPlugin(SIGNATURE + ", i32 %more"), ArtifactError, "takes 5 arguments, its spec declares 4"),
        (StubPlugin(attributes='"amdgpu-flat-work-group-size"="64,64"'), ArtifactError, "takes arguments that nobody"),
        (StubPlugin(cpu="gfx950"), ArtifactError, "code for gfx950, not gfx942"),
        (StubPlugin(attributes=ATTRIBUTES.replace("64,64", "128,128")), ArtifactError, "recorded is"),
        (StubPlugin(body=SPILL), ArtifactError, "the object has scratch_bytes 2"),
        (StubPlugin(), None, ""),
    ],
    ids=["wider", "narrower", "kind", "one more", "hidden", "other target", "figures", "scratch", "control: the same"],
)
def test_a_wrong_binary_of_the_right_symbol_is_refused(artifact, toolchain, arch, error, says):
    swapped = changed(artifact, **forged(toolchain, arch, FillSpec(value=1)))
    if error is None:
        swapped.check(composed())
        return
    with pytest.raises(error, match=says):
        swapped.check(composed())


def test_a_forgery_complete_with_figures_meets_the_gate_or_the_compiler(artifact, toolchain):
    spilling = forged(toolchain, StubPlugin(body=SPILL), FillSpec(value=1))
    usage = usage_from_object(spilling["object"], FillSpec(value=1).symbol(), LIMITS, ("gfx942",))
    with pytest.raises(Refused, match="scratch_bytes == 0") as caught:
        changed(artifact, usage=usage, **spilling).check(composed())
    assert {refusal.field for refusal in caught.value.refusals} == {"scratch_bytes", "scratch_ops"}
    harmless = forged(toolchain, StubPlugin(body="  store volatile i32 3, ptr addrspace(1) %out\n"), FillSpec(value=1))
    usage = usage_from_object(harmless["object"], FillSpec(value=1).symbol(), LIMITS, ("gfx942",))
    with pytest.raises(ArtifactError, match="compiling its LLVM IR again gives another object"):
        changed(artifact, usage=usage, **harmless).check(composed(), toolchain=toolchain)


def test_other_llvm_ir_target_or_build_is_another_key(artifact):
    one = artifact.kernels[0]
    for stale in (
        {"module": attrs.evolve(one.module, text=one.module.text + "\n")},
        {"module": attrs.evolve(one.module, features="+xnack")},
        {"module": attrs.evolve(one.module, options={"some-option": "1"})},
        {"toolchain": "llvmlite-0/llvm-0"},
    ):
        with pytest.raises(ArtifactError, match="its key is"):
            changed(artifact, **stale).check(composed())
    key = artifact_key(one.module, arch="stub", flavor="llvm22", toolchain=one.toolchain)
    assert key == one.key
    assert len({key, *(artifact_key(one.module, **{**KEY, field: "x"}) for field in KEY)}) == 1 + len(KEY)


KEY = {"arch": "stub", "flavor": "llvm22", "toolchain": "build"}


def test_kernels_of_another_plan_are_refused(artifact, toolchain):
    one, two = artifact.kernels
    with pytest.raises(ArtifactError, match="the plan launches fill_"):
        attrs.evolve(artifact, kernels=(two, one)).check(composed())
    with pytest.raises(ArtifactError, match="1 kernels for 2 launches"):
        attrs.evolve(artifact, kernels=(one,)).check(composed())
    with pytest.raises(ArtifactError, match="on stub, llvm20; the kernel is of"):
        attrs.evolve(artifact, plan=planned(FillSpec(value=1), FillSpec(value=2), flavor="llvm20")).check(composed())
    wide = attrs.evolve(one.kernel, block=128)
    with pytest.raises(ArtifactError, match="with 64 threads, it is built for 128"):
        changed(artifact, kernel=wide).check(composed())


def test_a_changed_emitter_or_lowering_shows_when_compiled_again(artifact, toolchain):
    lowering = composed(StubPlugin(body="  store volatile i32 3, ptr addrspace(1) %out\n"))
    artifact.check(lowering)
    with pytest.raises(ArtifactError, match="other LLVM IR"):
        artifact.check(lowering, toolchain=toolchain)


def test_scratch_in_the_compiled_code_is_refused_with_kernel_and_figures(toolchain):
    spec = FillSpec(value=7, spills=True)
    with pytest.raises(Refused, match=f"the compiled code of {spec.symbol()} is refused.*scratch_ops [1-9]") as caught:
        compile(planned(spec), composition=composed(), toolchain=toolchain)
    assert [refusal.field for refusal in caught.value.refusals] == ["scratch_bytes", "scratch_ops"]
    compiled = compile_spec(spec, "llvm22", composition=composed(), toolchain=toolchain, gated=False)
    assert compiled.usage.scratch_ops > 0


def test_a_gate_of_the_family_is_asked_too(toolchain):
    family = FillPlugin()
    composition = composed(StubPlugin(body='  call void asm sideeffect "", "~{v200}"()\n'), family)
    with pytest.raises(Refused, match="vgpr is 201, supported: vgpr <= 128"):
        compile(planned(FillSpec(value=8)), composition=composition, toolchain=toolchain)


def test_what_contradicts_its_spec_is_our_fault_and_named(toolchain):
    renamed, fewer = FillPlugin(), FillPlugin()
    renamed.name, fewer.parameters = "other", PARAMETERS[:3]
    with pytest.raises(InternalError, match="its kernel is named other"):
        compile(planned(FillSpec(value=9)), composition=composed(family=renamed), toolchain=toolchain)
    with pytest.raises(
        InternalError, match=r"takes \(count, out, scale\), its spec declares \(count, out, scale, step\)"
    ):
        compile(planned(FillSpec(value=9)), composition=composed(family=fewer), toolchain=toolchain)
    wide = StubPlugin(SIGNATURE.replace("i32 %count", "i64 %count"))
    with pytest.raises(ArtifactError, match="reads count as a value of 8 bytes"):
        compile(planned(FillSpec(value=9)), composition=composed(wide), toolchain=toolchain)
    with pytest.raises(InternalError, match="names no arch"):
        compile(planned(FillSpec(value=9), arch=""), composition=composed(), toolchain=toolchain)


def test_a_flavor_of_another_generation_is_an_error_not_another_selection(toolchain):
    with pytest.raises(ToolError, match="compiles llvm22, not llvm20"):
        compile(planned(FillSpec(value=9), flavor="llvm20"), composition=composed(), toolchain=toolchain)


def test_several_specs_in_order(toolchain):
    specs = [FillSpec(value=value) for value in range(50, 58)]
    kernels = compile_specs(specs, "llvm22", composition=composed(), toolchain=toolchain)
    assert [kernel.spec for kernel in kernels] == specs
    assert compile_specs((), "llvm22", composition=composed(), toolchain=toolchain) == ()


def test_arguments_are_laid_out_as_llvm_lays_them_out(artifact):
    """The oracle is the note of a compiled object: i32, pointer, f32, i64 at 0, 8, 16, 24."""
    assert [(each.offset, each.size) for each in argument_layout(PARAMETERS)] == [(0, 4), (8, 8), (16, 4), (24, 8)]
    assert artifact.kernels[0].usage.arguments == argument_layout(PARAMETERS)


class IdlePlugin(FillPlugin):
    """Its kernel reads one parameter less than it takes."""

    @hookimpl
    def kinfolk_emit_ir(self, spec: Spec, arch: Arch) -> Kernel:
        def body(count: Value, out: Value, scale: Value, step: Value) -> None:
            memory.store(memory.offset(out, count), scale)

        return build_kernel(spec.symbol(), self.parameters, arch=arch, block=64, body=body)


def test_a_kernel_that_an_analysis_holds_something_against_is_refused_by_name(toolchain):
    """Before anything is compiled, with the parameter, the check and what to do; its twin compiles."""
    arch, plan = StubPlugin(), planned(FillSpec(value=51))
    with pytest.raises(DefectiveKernel, match=rf"kernel {FillSpec(value=51).symbol()} .*, stub\)") as caught:
        compile(plan, composition=composed(arch, IdlePlugin()), toolchain=toolchain)
    [defect] = caught.value.defects
    assert (defect.check, defect.where) == ("dead_parameter", "FillSpec, parameter step")
    assert str(defect) in str(caught.value)
    assert compile(plan, composition=composed(arch), toolchain=toolchain).kernels
