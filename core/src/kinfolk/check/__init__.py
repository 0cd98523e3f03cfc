"""What "it works" means: poisoned memory, fp64 references with derived tolerances, findings, the report of a run."""

from __future__ import annotations

from kinfolk.check.compare import Comparison, Finding, compare
from kinfolk.check.element import numpy_dtype
from kinfolk.check.poison import is_poison, poison
from kinfolk.check.report import KernelReport, OutputReport, Report, ScenarioReport
from kinfolk.check.scenario import Scenario
from kinfolk.check.sparse import SparseArray
from kinfolk.check.tolerance import DEVIATIONS, Expected, Tolerance, unit_roundoff

__all__ = [
    "DEVIATIONS",
    "Comparison",
    "Expected",
    "Finding",
    "KernelReport",
    "OutputReport",
    "Report",
    "Scenario",
    "ScenarioReport",
    "SparseArray",
    "Tolerance",
    "compare",
    "is_poison",
    "numpy_dtype",
    "poison",
    "unit_roundoff",
]
