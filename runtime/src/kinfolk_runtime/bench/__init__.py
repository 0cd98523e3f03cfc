"""Shapes of models as data, and what becomes of each: resolved, built, verified or timed (`kinfolk bench`)."""

from kinfolk_runtime.bench.run import MODES, Bench, Row, bench
from kinfolk_runtime.bench.shapes import Shapes, ShapesError, schema

__all__ = ["MODES", "Bench", "Row", "Shapes", "ShapesError", "bench", "schema"]
