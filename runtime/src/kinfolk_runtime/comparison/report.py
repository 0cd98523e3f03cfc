"""What a comparison says, schema `kinfolk.compare/1`: both sides, and how far their outputs lie apart."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import attrs
import numpy as np

from kinfolk.check import Comparison, Expected, Finding, Tolerance, compare, is_poison
from kinfolk.check.element import Array, bits
from kinfolk_runtime.comparison.sides import Side

SCHEMA: Final = "kinfolk.compare/1"


@attrs.frozen(kw_only=True)
class OutputDifference:
    """One output: how many elements have other bits, and how far the values of A lie from those of B."""

    dtype: str
    differing: int
    comparison: Comparison

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON row."""
        found = self.comparison
        return {
            "output": found.name,
            "status": "pass" if found.passed else "fail",
            "dtype": self.dtype,
            "elements": found.elements,
            "differing": self.differing,
            "largest_difference": found.max_abs_err,
            "difference_there": found.error_there,
            "tolerance_there": found.tolerance,
            "margin": found.margin,
            "findings": [finding.to_dict() for finding in found.findings],
        }


@attrs.frozen(kw_only=True)
class Compared:
    """Two sides on one problem."""

    arch: str
    problem: str
    a: Side
    b: Side
    outputs: tuple[OutputDifference, ...]

    @property
    def passed(self) -> bool:
        """Whether both ran without a fault, kept to the reference where there is one, and agree."""
        return not (self.a.findings or self.b.findings) and all(each.comparison.passed for each in self.outputs)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON document."""
        return {
            "schema": SCHEMA,
            "status": "pass" if self.passed else "fail",
            "arch": self.arch,
            "problem": self.problem,
            "a": self.a.to_dict(),
            "b": self.b.to_dict(),
            "outputs": [each.to_dict() for each in self.outputs],
            "refusals": [],
        }


def differences(
    a: Side, b: Side, dtypes: Mapping[str, str], tolerances: Mapping[str, Tolerance]
) -> tuple[OutputDifference, ...]:
    """Return how the outputs of two sides that ran differ; nothing where one did not."""
    return tuple(
        _difference(name, dtypes[name], a.outputs[name], b.outputs[name], tolerances[name])
        for name in dtypes
        if name in a.outputs and name in b.outputs
    )


def _difference(name: str, dtype: str, a: Array, b: Array, tolerance: Tolerance) -> OutputDifference:
    found = compare(name, dtype, a, Expected(b.astype(np.float64), tolerance))
    if left := int(np.count_nonzero(is_poison(dtype, b))):
        message = f"B never wrote {left} of {b.size} elements"
        found = attrs.evolve(found, findings=(*found.findings, Finding("untouched", name, message)))
    differing = int(np.count_nonzero(bits(a) != bits(b))) if a.shape == b.shape else a.size
    return OutputDifference(dtype=dtype, differing=differing, comparison=found)
