"""The spec space of a family on an arch: every kernel that its candidates can produce, compiled and gated."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import attrs

from kinfolk.check import KernelReport
from kinfolk.errors import KinfolkError
from kinfolk.flavor import flavor_named
from kinfolk.refusal import Refusal
from kinfolk.spec import Spec
from kinfolk_runtime.artifact import CompiledKernel
from kinfolk_runtime.compilation import compile_spec
from kinfolk_runtime.toolchains.base import Toolchain
from kinfolk_runtime.toolchains.host import toolchain_for
from kinfolk_runtime.verify import kernel_reports

if TYPE_CHECKING:
    from kinfolk.plugins.composition import Composition

EVERYDAY_SPECS: Final = 64
"""The most specs of one family on one arch that are compiled in everyday checks; a sweep takes all."""


def spec_space(composition: Composition, flavor: str) -> tuple[Spec, ...]:
    """Return every spec that a candidate of the composition can produce for a flavor, each once, in their order."""
    rank = flavor_named(flavor).rank
    offered = [candidate for candidate in composition.candidates() if candidate.min_llvm <= rank]
    specs = [spec for candidate in offered for spec in candidate.spec_space(composition.arch, flavor)]
    return tuple({spec.identity(): spec for spec in specs}.values())


def sampled(specs: tuple[Spec, ...], most: int = EVERYDAY_SPECS) -> tuple[Spec, ...]:
    """Return the first of the specs and others spread over their order, at most so many.

    The order is cut into parts of equal length, and each gives the spec of the smallest digest: fields that
    alternate in the order are not passed over together.
    """
    if len(specs) <= most:
        return specs
    edges = [i * len(specs) // most for i in range(most + 1)]
    parts = [specs[start:end] for start, end in pairwise(edges)]
    return (specs[0], *(min(part, key=lambda spec: spec.digest()) for part in parts[1:]))


@attrs.frozen(kw_only=True)
class Gated:
    """What became of one spec: its compiled kernel with every refusal of the gate, or the error that left none."""

    spec: Spec
    kernel: CompiledKernel | None = None
    refusals: tuple[Refusal, ...] = ()
    error: KinfolkError | None = None

    @property
    def passed(self) -> bool:
        """Whether there is a kernel and nobody refuses it."""
        return self.kernel is not None and not self.refusals

    @property
    def figures(self) -> KernelReport | None:
        """The kernel's row of a report; None where there is no kernel."""
        if self.kernel is None:
            return None
        [report] = kernel_reports((self.kernel,))
        return report


def gated(
    specs: Iterable[Spec], flavor: str, *, composition: Composition, toolchain: Toolchain | None = None
) -> Iterator[Gated]:
    """Yield each spec, in order, compiled and gated on all workers of the toolchain; a failure is that spec's alone.

    Raises ToolError where no toolchain of this host takes the flavor.
    """
    chosen = toolchain or toolchain_for(flavor)

    def judged(spec: Spec) -> Gated:
        try:
            refusals = composition.validate_spec(spec)
            if refusals:
                return Gated(spec=spec, refusals=refusals)
            kernel = compile_spec(spec, flavor, composition=composition, toolchain=chosen, gated=False)
            return Gated(spec=spec, kernel=kernel, refusals=composition.gate(kernel.usage, spec))
        except KinfolkError as error:
            return Gated(spec=spec, error=error)

    with ThreadPoolExecutor(os.cpu_count() or 1) as threads:
        yield from threads.map(judged, specs)
