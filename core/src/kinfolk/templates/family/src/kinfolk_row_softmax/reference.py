"""Row softmax by definition, in fp64, and how far a kernel's rounding may take it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from kinfolk.check import Expected, Finding, Tolerance, unit_roundoff

if TYPE_CHECKING:
    from kinfolk_row_softmax.request import RowSoftmaxRequest

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]

UNIT: Final = unit_roundoff("f32")
LEAST_LANES: Final = 128
"""So many lanes or more share a row, each adding up its own part."""
TINY: Final[Mapping[str, float]] = {"f32": 2.0**-126, "bf16": 2.0**-126, "f16": 2.0**-25 + 2.0**-126}
"""What is lost at the least: weights below 2^-126 are 0, and f16 is spaced by 2^-24 near 0."""


def row_softmax_reference(request: RowSoftmaxRequest, inputs: Mapping[str, Array]) -> dict[str, Expected]:
    """Return `y` and `lse` of inputs `x` [rows, columns]; the scale is the f32 that a kernel is passed."""
    rows = [inputs["x"][row].astype(np.float64) for row in range(request.rows)]
    scores = float(np.float32(request.scale)) * np.reshape(rows, (request.rows, request.columns))
    highest = scores.max(axis=1, keepdims=True)
    empty = highest == -np.inf
    below = scores - np.where(empty, 0.0, highest)
    weights = np.exp(below)
    total = weights.sum(axis=1, keepdims=True)
    y = weights / np.where(empty, 1.0, total)
    lse = np.where(empty, -np.inf, highest + np.log(np.where(empty, 1.0, total)))[:, 0]
    y_bound, lse_bound = tolerances(request, y, lse, below)
    return {"y": Expected(y, Tolerance(y_bound)), "lse": Expected(lse, Tolerance(lse_bound))}


def tolerances(request: RowSoftmaxRequest, y: Floats, lse: Floats, below: Floats) -> tuple[Floats, Floats]:
    """Return how far `y` and `lse` may lie from the reference, `below` being each scaled score less its row's largest.

    A weight exp2((x - m) c) has four roundings before the power, c = scale * log2 e among them, so an exponent of a
    natural units errs by 4 u |a|, u = 2^-24, and the power by 1 ulp = 2 u more. The maximum m that a kernel holds may
    lie 8 in log2 units, below 6 natural ones, under the row's: weight j errs relatively by e_j = (4 (|a_j| + 6) + 2) u.
    Their sum errs by the mean of e_j, an addition for each of a lane's columns, and 32 u for lanes, waves and raises of
    m, which shrink what they add errors to. y takes the reciprocal, 2 u, a product, and its own rounding. lse takes the
    logarithm, within 1e-6, two products, and its own rounding. A row without a score is exact.
    """
    used = y > 0.0
    weight = np.where(used, 4.0 * (np.abs(np.where(used, below, 0.0)) + 6.0) + 2.0, 0.0) * UNIT
    additions = -(-request.columns // LEAST_LANES) + 32
    total = (y * weight).sum(axis=1) + additions * UNIT
    own = unit_roundoff(request.dtype)
    relative = weight + total[:, None] + 3.0 * UNIT
    scored = np.isfinite(lse)
    y_bound = np.where(below == -np.inf, 0.0, y * (relative + own * (1.0 + relative)) + TINY[request.dtype])
    size = np.where(scored, np.abs(lse), 0.0) + np.log(request.columns) + 6.0
    return y_bound, np.where(scored, total + 1e-6 + 4.0 * UNIT * size, 0.0)


def row_softmax_findings(request: RowSoftmaxRequest, outputs: Mapping[str, Array]) -> Iterator[Finding]:
    """Yield a finding where the weights of a row that has a score do not sum to 1, each rounded on its own."""
    sums = outputs["y"].astype(np.float64).sum(axis=1)
    slack = 2.0 * unit_roundoff(request.dtype) + request.columns * TINY[request.dtype] + 1e-4
    wrong = (outputs["lse"] != -np.inf) & ~(np.abs(sums - 1.0) <= slack)
    if count := int(np.count_nonzero(wrong)):
        first = int(np.argmax(wrong))
        yield Finding(
            "sum", "y", f"{count} of {len(sums)} rows do not sum to 1, the first is {first}: {sums[first]:.6g}"
        )
