"""How far weights move where scores err by more than a nat: beyond first order, a near tie may go the other way."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

FIRST_ORDER: Final = 1.0
"""Nats of a score's error up to which tolerances of first order hold."""

LEAST_LOGARITHM: Final = -746.0
"""Below this an exponential is 0 as an f64."""


def farthest(logarithms: Floats, error: float, distances: Floats) -> Floats:
    """Return how far a sum of values weighted to 1 may move, per column, where each score errs by up to `error` nats.

    `logarithms` [keys] are those of the weights, which may be too small for an f64: a weight w becomes at most
    exp(2 e) w, and 1. `distances` [keys, columns] are those of the values from the sum. It is little where one key has
    all weight and no other's score is near, however large the scale; where one is, it may take all of the weight.
    """
    most = np.exp(np.minimum(logarithms + 2.0 * error, 0.0))
    return np.minimum(most @ distances, distances[most > 0.0].max(axis=0, initial=0.0))


def moved(logarithms: Floats, errors: Floats, values: Floats, out: Floats, exact: npt.NDArray[np.bool_]) -> Floats:
    """Return `farthest` for rows of weights over the same `values` [keys, columns], whose sums are `out`.

    `logarithms` [rows, keys] are those of the weights, `errors` [rows] what scores err by, in nats, and `out` is
    [rows, columns]; 0 where errors are within first order. Of rows that are `exact`, whose scores before the scale are
    not rounded, equal ones stay equal: what moves them is alike. There only a tie that is near and none counts.
    """
    found = np.zeros_like(out)
    for row in np.flatnonzero(errors > FIRST_ORDER):
        gaps = logarithms[row].max() - logarithms[row]
        if exact[row] and not ((gaps > 0.0) & (gaps < 2.0 * errors[row] - LEAST_LOGARITHM)).any():
            continue
        found[row] = farthest(logarithms[row], float(errors[row]), np.abs(values - out[row]))
    return found
