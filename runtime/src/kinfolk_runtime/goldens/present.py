"""What a family's kernels are on an arch now: emitted for a flavor, and compiled by a toolchain."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs

from kinfolk.arch import LoweredModule
from kinfolk.ir.text import print_kernel
from kinfolk.ir.value import Kernel
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


def emitted(composition: Composition, spaces: Mapping[str, Sequence[Spec]]) -> dict[str, Present]:
    """Return, by flavor, the digests of every kernel's IR and LLVM IR, or the refusals of its spec.

    `spaces` has the specs of each flavor. A kernel is emitted once and lowered for each flavor that has its spec.
    """
    everyday = {flavor: sampled(tuple(space)) for flavor, space in spaces.items()}
    wanted: dict[str, list[str]] = {}
    for flavor, specs in everyday.items():
        for spec in specs:
            wanted.setdefault(spec.identity(), []).append(flavor)
    specs = {spec.identity(): spec for each in everyday.values() for spec in each}
    found = {
        (identity, flavor): came
        for identity, named in wanted.items()
        for flavor, came in _digests(composition, specs[identity], named).items()
    }
    return {
        flavor: Present(
            section=Section.of(
                [spec.digest() for spec in space],
                [row for spec in everyday[flavor] if isinstance(row := found[spec.identity(), flavor], Row)],
            ),
            faults=tuple(
                fault for spec in everyday[flavor] if isinstance(fault := found[spec.identity(), flavor], Fault)
            ),
        )
        for flavor, space in spaces.items()
    }


def _digests(composition: Composition, spec: Spec, named: Sequence[str]) -> dict[str, Row | Fault]:
    """Return a spec's row, or its fault, in each of the flavors."""
    found: dict[str, Row | Fault] = {}
    kernel: Kernel | None = None
    ir = ""
    for flavor in named:
        try:
            if refusals := composition.validate_spec(spec):
                told = [{"code": refusal.code, "text": str(refusal)} for refusal in refusals]
                found[flavor] = _row(spec, {"refusals": told})
                continue
            kernel, module = lower_spec(composition, spec, flavor, kernel)
            ir = ir or text_digest(print_kernel(kernel))
            found[flavor] = _row(spec, {"ir": ir, "llvm": llvm_digest(module)})
        except Exception as error:  # noqa: BLE001 - whatever one spec raises is that spec's fault
            found[flavor] = Fault(spec=spec, why=f"{type(error).__name__}: {error}")
    return found


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
