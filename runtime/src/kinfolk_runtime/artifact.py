"""A plan with the machine code of its launches, and the proof that they belong together."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import attrs

from kinfolk.arch import LoweredModule
from kinfolk.errors import InternalError, KinfolkError
from kinfolk.flavor import flavor_named
from kinfolk.ir.value import Kernel
from kinfolk.parameters import Parameter
from kinfolk.plan import Plan
from kinfolk.refusal import Refusal
from kinfolk.spec import Spec
from kinfolk.usage import KernelArgument, Usage
from kinfolk_runtime.toolchains.base import CompileJob, Toolchain

if TYPE_CHECKING:
    from kinfolk.plugins.composition import Composition


class ArtifactError(KinfolkError):
    """The parts of an artifact do not belong together: a damaged or exchanged binary, or a stale one."""


def argument_layout(parameters: Iterable[Parameter]) -> tuple[KernelArgument, ...]:
    """Return where each declared parameter lies in the argument block: in order, each aligned to its own size."""
    layout: list[KernelArgument] = []
    end = 0
    for parameter in parameters:
        offset = -(-end // parameter.bytes) * parameter.bytes
        kind = "pointer" if parameter.is_pointer else "value"
        layout.append(KernelArgument(offset=offset, size=parameter.bytes, kind=kind))
        end = offset + parameter.bytes
    return tuple(layout)


def compile_job(module: LoweredModule, *, assembly: bool = False) -> CompileJob:
    """Return the toolchain's job for a lowered kernel."""
    return CompileJob(
        kernel=module.symbol,
        llvm_ir=module.text,
        triple=module.triple,
        cpu=module.cpu,
        features=module.features,
        options=tuple(f"-{name}={value}" if value else f"-{name}" for name, value in sorted(module.options.items())),
        assembly=assembly,
        code=module.code,
    )


def artifact_key(module: LoweredModule, *, arch: str, flavor: str, toolchain: str) -> str:
    """Return the sha256 over all that decides the object's bytes: LLVM IR, target and options, arch, flavor, build."""
    job = compile_job(module)
    target = [job.triple, job.cpu, job.features, job.opt_level, *job.options]
    return sha256(json.dumps([job.llvm_ir, target, arch, flavor, toolchain]).encode())


def sha256(data: bytes) -> str:
    """Return the digest in hex."""
    return hashlib.sha256(data).hexdigest()


def lower_spec(
    composition: Composition, spec: Spec, flavor: str, kernel: Kernel | None = None
) -> tuple[Kernel, LoweredModule]:
    """Return the kernel of a spec, emitted unless it is given, and its LLVM IR.

    Raises InternalError where they disagree with the spec's declarations.
    """
    kernel = kernel or composition.emit(spec)
    module = composition.arch.lower(kernel, spec, flavor_named(flavor).rank)
    if not kernel.name == module.symbol == spec.symbol():
        raise InternalError(
            f"the symbol of {type(spec).__name__} is {spec.symbol()}, its kernel is named {kernel.name}, "
            f"its LLVM IR defines {module.symbol}"
        )
    if tuple(kernel.parameters) != spec.parameters():
        taken = ", ".join(parameter.name for parameter in kernel.parameters)
        declared = ", ".join(parameter.name for parameter in spec.parameters())
        raise InternalError(f"kernel {kernel.name} takes ({taken}), its spec declares ({declared})")
    return kernel, module


def expect_no_defect(composition: Composition, spec: Spec, kernel: Kernel) -> None:
    """Raise DefectiveKernel, with source lines, where a static analysis holds something against a spec's kernel."""
    from kinfolk.analysis import analyse
    from kinfolk.errors import DefectiveKernel

    if defects := analyse(kernel, arch=composition.arch, spec=spec):
        told = "".join(f"\n  {defect}" for defect in defects)
        raise DefectiveKernel(f"kernel {spec.symbol()} ({spec.digest()}, {composition.arch.name}):{told}", defects)


@attrs.frozen(kw_only=True)
class CompiledKernel:
    """One spec's kernel: IR, LLVM IR with its target, object, and the figures read from that object.

    `toolchain` is the build that compiled it. `key` is `artifact_key`: equal keys, equal bytes.
    """

    spec: Spec
    arch: str
    flavor: str
    _kernel: Kernel | Callable[[], Kernel] = attrs.field(repr=False, eq=False, alias="kernel")
    module: LoweredModule = attrs.field(repr=False)
    object: bytes = attrs.field(repr=False)
    object_sha256: str
    usage: Usage
    toolchain: str
    key: str
    _claimed: list[str] = attrs.field(factory=list[str], init=False, repr=False, eq=False)

    @property
    def kernel(self) -> Kernel:
        """The kernel's IR; emitted when it is first asked for where the LLVM IR was in the cache."""
        return self._kernel if isinstance(self._kernel, Kernel) else self._kernel()

    @property
    def symbol(self) -> str:
        """The kernel's name in the object."""
        return self.module.symbol

    @property
    def llvm_ir(self) -> str:
        """The text that was compiled."""
        return self.module.text

    def check_claims(self) -> None:
        """Compare the object's digest, the symbol, the key and the arguments with what is recorded.

        Raises ArtifactError at the first that fails. The object is not read: `check` does that as well. What held once
        is not computed again: none of it can change.
        """
        if self._claimed:
            return
        if sha256(self.object) != self.object_sha256:
            raise self._error(
                f"the object has sha256 {sha256(self.object)}, not {self.object_sha256}: it was exchanged"
            )
        if self.symbol != self.spec.symbol():
            raise self._error(f"it is compiled from LLVM IR of {self.symbol}")
        key = artifact_key(self.module, arch=self.arch, flavor=self.flavor, toolchain=self.toolchain)
        if key != self.key:
            raise self._error(f"its key is {self.key}, LLVM IR, target and toolchain give {key}")
        check_arguments(self.usage, self.spec)
        self._claimed.append(key)

    def check(self, composition: Composition) -> None:
        """Read the object again and compare it with every claim about it; raise ArtifactError at the first that fails.

        Raises ToolError for an object that cannot be read and Refused for one outside the resource gate.
        """
        self.check_claims()
        usage = composition.arch.usage(self.object, self.symbol)
        check_arguments(usage, self.spec)
        if usage.target.partition(":")[0] != self.module.cpu:
            raise self._error(f"the object is code for {usage.target}, not {self.module.cpu}")
        if usage != self.usage:
            raise self._error(f"the object has {figures_text(usage)}; recorded is {figures_text(self.usage)}")
        refuse(self.symbol, usage, composition.gate(usage, self.spec))

    def check_from_source(self, composition: Composition, toolchain: Toolchain) -> None:
        """Emit, lower and compile again; raise ArtifactError unless text and object are the same, byte for byte."""
        _, module = lower_spec(composition, self.spec, self.flavor)
        if module != self.module:
            raise self._error("the spec gives other LLVM IR, or another target, today")
        if toolchain.build != self.toolchain:
            raise self._error(f"it was compiled by {self.toolchain}, not {toolchain.build}")
        if toolchain.compile(compile_job(module)).object != self.object:
            raise self._error("compiling its LLVM IR again gives another object")

    def _error(self, what: str) -> ArtifactError:
        return ArtifactError(f"kernel {self.spec.symbol()} ({self.spec.digest()}, {self.arch}, {self.flavor}): {what}")


@attrs.frozen(kw_only=True)
class Artifact:
    """A plan and, per launch in order, its compiled kernel."""

    plan: Plan
    kernels: tuple[CompiledKernel, ...]

    def check(self, composition: Composition | None = None, *, toolchain: Toolchain | None = None) -> None:
        """Derive every claim anew from the objects: digests, keys, symbols, argument offsets, figures, the gate.

        With a `toolchain`, also emit, lower and compile again and compare bytes. Raises ArtifactError, ToolError or
        Refused, each naming the kernel.
        """
        composition = composition or composition_of(self.plan)
        self._check_launches()
        for compiled in self.kernels:
            compiled.check(composition)
            if toolchain is not None:
                compiled.check_from_source(composition, toolchain)

    def check_claims(self) -> None:
        """Compare every kernel with its launch and with what is recorded of it; objects are not read.

        Raises ArtifactError naming the kernel.
        """
        self._check_launches()
        for compiled in self.kernels:
            compiled.check_claims()

    def _check_launches(self) -> None:
        if len(self.kernels) != len(self.plan.launches):
            raise ArtifactError(f"{len(self.kernels)} kernels for {len(self.plan.launches)} launches")
        for launch, compiled in zip(self.plan.launches, self.kernels, strict=True):
            wanted = (launch.spec.identity(), self.plan.arch, self.plan.flavor)
            if (compiled.spec.identity(), compiled.arch, compiled.flavor) != wanted:
                raise ArtifactError(
                    f"the plan launches {launch.spec.symbol()} ({launch.spec.digest()}) on {self.plan.arch}, "
                    f"{self.plan.flavor}; the kernel is of {compiled.symbol} ({compiled.spec.digest()}) on "
                    f"{compiled.arch}, {compiled.flavor}"
                )
            if launch.block != compiled.kernel.block:
                raise ArtifactError(
                    f"the plan launches {compiled.symbol} with {launch.block} threads, it is built for "
                    f"{compiled.kernel.block}"
                )


def composition_of(plan: Plan) -> Composition:
    """Return the composition that a plan was dispatched through."""
    from kinfolk.plugins.composition import compose

    return compose(plan.request.family, plan.arch)


def check_arguments(usage: Usage, spec: Spec) -> None:
    """Raise ArtifactError unless the object reads the parameters that the spec declares, and no others."""
    declared = spec.parameters()
    if usage.hidden:
        kinds = ", ".join(argument.kind for argument in usage.hidden)
        raise ArtifactError(f"the object of {usage.symbol} takes arguments that nobody passes: {kinds}")
    if len(usage.arguments) != len(declared):
        raise ArtifactError(
            f"the object of {usage.symbol} takes {len(usage.arguments)} arguments, its spec declares {len(declared)}"
        )
    for parameter, wanted, found in zip(declared, argument_layout(declared), usage.arguments, strict=True):
        if wanted != found:
            raise ArtifactError(
                f"the object of {usage.symbol} reads {parameter.name} as {_argument_text(found)}, "
                f"declared is {_argument_text(wanted)}"
            )


def refuse(symbol: str, usage: Usage, refusals: Sequence[Refusal]) -> None:
    """Raise Refused with the kernel, its figures and every reason, if there is one."""
    from kinfolk.errors import Refused

    if refusals:
        reasons = "".join(f"\n  {refusal}" for refusal in refusals)
        raise Refused(f"the compiled code of {symbol} is refused, it has {figures_text(usage)}:{reasons}", refusals)


def figures_text(usage: Usage) -> str:
    """Return all figures in a line: `scratch_bytes 0, scratch_ops 0, vgpr 96`."""
    figures = {"scratch_bytes": usage.scratch_bytes, "scratch_ops": usage.scratch_ops, **usage.figures}
    return ", ".join(f"{name} {count}" for name, count in figures.items())


def _argument_text(argument: KernelArgument) -> str:
    return f"a {argument.kind} of {argument.size} bytes at offset {argument.offset}"
