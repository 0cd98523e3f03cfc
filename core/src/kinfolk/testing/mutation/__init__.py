"""Mutation of kernels: the IR with one mistake in it, which the checks of a family must notice."""

from __future__ import annotations

from kinfolk.testing.mutation.cold import always_taken
from kinfolk.testing.mutation.mutant import Mutant, MutantClass, Site, mutant_classes, sample
from kinfolk.testing.mutation.operators import OPERATORS, Change, Operator
from kinfolk.testing.mutation.rewrite import Edit, Place, rewritten

__all__ = [
    "OPERATORS",
    "Change",
    "Edit",
    "Mutant",
    "MutantClass",
    "Operator",
    "Place",
    "Site",
    "always_taken",
    "mutant_classes",
    "rewritten",
    "sample",
]
