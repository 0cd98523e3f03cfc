"""Kernels of two code objects, or of a family and an object, run as machine code on one problem and compared."""

from __future__ import annotations

from kinfolk_runtime.comparison.problem import Problem, ProblemError, read_problem
from kinfolk_runtime.comparison.report import SCHEMA, Compared
from kinfolk_runtime.comparison.running import FamilySide, ObjectSide, compare_objects, compare_on_family

__all__ = [
    "SCHEMA",
    "Compared",
    "FamilySide",
    "ObjectSide",
    "Problem",
    "ProblemError",
    "compare_objects",
    "compare_on_family",
    "read_problem",
]
