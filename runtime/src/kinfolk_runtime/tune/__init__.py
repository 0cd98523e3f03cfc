"""The search for schedules: points of a candidate's schedule space, compiled and scored from their code alone."""

from kinfolk_runtime.tune.run import Instance, Tuned, instances, tune
from kinfolk_runtime.tune.score import Scored, score
from kinfolk_runtime.tune.search import Choice, Grid, search

__all__ = ["Choice", "Grid", "Instance", "Scored", "Tuned", "instances", "score", "search", "tune"]
