"""What is known of a kernel from its IR alone, without running it.

Each analysis is a function of a `Subject` that returns defects; `ANALYSES` has them by the name that their defects
bear, and `analyse` runs them all.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from kinfolk.analysis import (
    alignments,
    dead_parameters,
    divergence,
    divisions,
    i32_ranges,
    indirection,
    unused_loads,
)
from kinfolk.analysis.divisions import Division, loop_divisions
from kinfolk.analysis.indirection import Indirection, indirections
from kinfolk.analysis.spec_fields import SpecField, dead_spec_fields, spec_fields
from kinfolk.analysis.subject import Subject

if TYPE_CHECKING:
    from kinfolk.analysis.subject import Analysis
    from kinfolk.arch import Arch
    from kinfolk.check.defect import Defect
    from kinfolk.ir.value import Kernel
    from kinfolk.spec import Spec

ANALYSES: Final[Mapping[str, Analysis]] = MappingProxyType(
    {
        dead_parameters.CHECK: dead_parameters.dead_parameters,
        unused_loads.CHECK: unused_loads.unused_loads,
        divergence.BARRIER: divergence.divergent_barriers,
        divergence.LOOP: divergence.divergent_loops,
        indirection.CHECK: indirection.unchecked_indirections,
        i32_ranges.CHECK: i32_ranges.i32_ranges,
        alignments.CHECK: alignments.alignments,
        divisions.CHECK: divisions.divided_in_loops,
    }
)
"""The analyses that every kernel must pass, by the `check` of their defects."""


def analyse(kernel: Kernel, *, arch: Arch, spec: Spec | None = None) -> tuple[Defect, ...]:
    """Return what all analyses hold against a verified kernel that was built for `arch`; empty means it passes.

    `spec`, where given, is named in messages. What one source line does wrong many times over is told once.
    """
    subject = Subject(kernel=kernel, arch=arch, spec=spec)
    return tuple(dict.fromkeys(defect for analysis in ANALYSES.values() for defect in analysis(subject)))


__all__ = [
    "ANALYSES",
    "Division",
    "Indirection",
    "SpecField",
    "Subject",
    "analyse",
    "dead_spec_fields",
    "indirections",
    "loop_divisions",
    "spec_fields",
]
