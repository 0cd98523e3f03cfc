"""What a family's kernels are on an arch now: emitted for a flavor, and compiled by a toolchain."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import attrs

from kinfolk.arch import LoweredModule
from kinfolk.ir.text import print_kernel
from kinfolk.refusal import Refusal
from kinfolk.spec import Spec
from kinfolk_runtime.artifact import CompiledKernel, compile_job, lower_spec
from kinfolk_runtime.goldens.document import Row, Section, text_digest
from kinfolk_runtime.spec_space import gated, sampled, spec_space
from kinfolk_runtime.toolchains.base import Toolchain

if TYPE_CHECKING:
    from kinfolk.plugins.composition import Composition


@attrs.frozen(kw_only=True)
class Fault:
    """A spec that came to neither a row nor a refusal of its own, and why."""

    spec: Spec
    why: str


@attrs.frozen(kw_only=True)
class Present:
    """A section as it is now, of the everyday sample of the space; what has a fault has no row."""

    section: Section
    faults: tuple[Fault, ...] = ()


def emitted(composition: Composition, flavor: str) -> Present:
    """Return the digests of every kernel's IR and LLVM IR for a flavor, or the refusals of its spec."""
    space = spec_space(composition, flavor)
    rows: list[Row] = []
    faults: list[Fault] = []
    for spec in sampled(space):
        try:
            rows.append(_row(spec, _digests(composition, spec, flavor)))
        except Exception as error:  # noqa: BLE001 - whatever one spec raises is that spec's fault
            faults.append(Fault(spec=spec, why=f"{type(error).__name__}: {error}"))
    return Present(section=Section.of([spec.digest() for spec in space], rows), faults=tuple(faults))


def _digests(composition: Composition, spec: Spec, flavor: str) -> dict[str, Any]:
    refusals = composition.validate_spec(spec)
    if refusals:
        return {"refusals": [{"code": refusal.code, "text": str(refusal)} for refusal in refusals]}
    kernel, module = lower_spec(composition, spec, flavor)
    return {"ir": text_digest(print_kernel(kernel)), "llvm": llvm_digest(module)}


def llvm_digest(module: LoweredModule) -> str:
    """Return the digest of all that a compiler is given of a kernel: its LLVM IR, and target and options."""
    job = compile_job(module)
    target = [job.triple, job.cpu, job.features, job.opt_level, *job.options]
    return text_digest(f"{json.dumps(target)}\n{module.text}")


def measured(composition: Composition, flavor: str, toolchain: Toolchain) -> Present:
    """Return the figures of every kernel as a toolchain compiles it; one that the gate refuses has a fault."""
    space = spec_space(composition, flavor)
    rows: list[Row] = []
    faults: list[Fault] = []
    for each in gated(sampled(space), flavor, composition=composition, toolchain=toolchain):
        if each.kernel is not None:
            rows.append(figures_row(each.kernel))
            faults += [Fault(spec=each.spec, why=_gate(refusal)) for refusal in each.refusals]
        elif each.error is not None:
            faults.append(Fault(spec=each.spec, why=f"{type(each.error).__name__}: {each.error}"))
    return Present(section=Section.of([spec.digest() for spec in space], rows), faults=tuple(faults))


def figures_row(kernel: CompiledKernel) -> Row:
    """Return a compiled kernel's figures, with the digest of the code that they are of."""
    usage = kernel.usage
    scratch = {"scratch_bytes": usage.scratch_bytes, "scratch_ops": usage.scratch_ops}
    return _row(kernel.spec, {"llvm": llvm_digest(kernel.module), **scratch, **usage.figures})


def _gate(refusal: Refusal) -> str:
    return f"the resource gate refuses its code: {refusal}"


def _row(spec: Spec, values: dict[str, Any]) -> Row:
    return Row(spec=spec.digest(), symbol=spec.symbol(), values=values)
