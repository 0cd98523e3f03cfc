"""Mutants of a family's kernels, run against its own scenarios: what notices each, and what nothing notices."""

from __future__ import annotations

from kinfolk_runtime.mutation.bench import Bench, with_kernel
from kinfolk_runtime.mutation.outcome import Kill, Outcome
from kinfolk_runtime.mutation.report import CandidateReport, MutationReport
from kinfolk_runtime.mutation.run import mutate, own_requests
from kinfolk_runtime.mutation.score import Score, store, stored

__all__ = [
    "Bench",
    "CandidateReport",
    "Kill",
    "MutationReport",
    "Outcome",
    "Score",
    "mutate",
    "own_requests",
    "store",
    "stored",
    "with_kernel",
]
