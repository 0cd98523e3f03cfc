"""Whether errors lean one way: what no single element shows, being within the tolerance of each.

Rounding to nearest errs up as often as down; cutting digits off errs towards 0 by half a unit in the last place on
average, which is less than one rounding to nearest may err. Over thousands of elements the first cancels, the second
does not.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np
import numpy.typing as npt

from kinfolk.check import DEVIATIONS, Expected, Finding, unit_roundoff

if TYPE_CHECKING:
    from kinfolk_mla.request import MlaRequest

Floats = npt.NDArray[np.float64]


@attrs.frozen
class Bias:
    """The part of the outputs' own size by which they may be too large or too small as a whole.

    For y the reference and d the errors, that part is sum(d y) / sum(y y): -1/400 where every output is 1/400 too
    small, about 0 where errors do not know the sign of y.

    Derivation (Higham and Mary, A new approach to probabilistic rounding error analysis, 2019: roundings are as
    independent terms with mean 0). With u_w and u_r the unit roundoffs of weights and result, the rounding of weight
    w_j moves sum(d y) by at most u_w |c_j|, c_j = w_j (v_j . y), that of an output by at most u_r y^2. Keys of one
    score share their weight and its rounding: their c are added first. Independent terms of at most a_i exceed t |a|,
    |a| the norm of a, with a chance of at most 2 exp(-t^2 / 2). What f32 arithmetic errs, as in the tolerance, may lean
    as it likes and is added in full: `drift`.

    `weight` and `result` are u_w and u_r; `size` is sum(y y), `drift` sum(relative error * magnitude * |y|), `weights`
    sum(c c) and `results` sum(y^4).
    """

    weight: float
    result: float
    size: float = 0.0
    drift: float = 0.0
    weights: float = 0.0
    results: float = 0.0

    @classmethod
    def of(cls, request: MlaRequest) -> Bias:
        """Return that of no token; weights are rounded to the query's type, in which products are."""
        return cls(unit_roundoff(request.dtype), unit_roundoff(request.dtype))

    def with_token(self, out: Floats, magnitude: Floats, relative: Floats, leverage: Floats) -> Bias:
        """Return this with a token added: `out` and `magnitude` [heads, latent], `relative` error of f32 [heads] and
        `leverage` [heads], the sum of c c of each head.
        """
        return attrs.evolve(
            self,
            size=self.size + float((out**2).sum()),
            drift=self.drift + float((relative[:, None] * magnitude * np.abs(out)).sum()),
            weights=self.weights + float(leverage.sum()),
            results=self.results + float((out**4).sum()),
        )

    @property
    def bound(self) -> float:
        """The largest bias that rounding to nearest explains; 0 where all outputs are 0."""
        if self.size == 0.0:
            return 0.0
        rounding = self.weight * self.weights**0.5 + self.result * self.results**0.5
        return (self.drift + DEVIATIONS * rounding) / self.size

    def measured(self, found: npt.NDArray[Any], expected: Expected) -> float:
        """Return the bias of outputs; NaN where one is not finite."""
        error = found.astype(np.float64) - expected.value
        return float((error * expected.value).sum()) / self.size

    def findings(self, found: npt.NDArray[Any], expected: Expected) -> Iterator[Finding]:
        """Yield a finding where the outputs lean further than rounding to nearest explains."""
        if self.size == 0.0 or found.shape != expected.value.shape:
            return
        with np.errstate(invalid="ignore", over="ignore"):
            bias = self.measured(found, expected)
        if np.isfinite(bias) and abs(bias) > self.bound:
            yield Finding(
                "bias",
                "out",
                f"is {abs(bias):.3g} of its size too {'large' if bias > 0 else 'small'} as a whole, rounding to "
                f"nearest explains {self.bound:.3g}: digits are cut off, or a factor is wrong",
            )


def leverage(scores: Floats, pull: Floats) -> Floats:
    """Return per head the sum of squares of `pull` [heads, keys], those of one score (to f32) added up first."""
    heads, keys = len(scores), int(scores.shape[1])
    if not keys:
        return np.zeros(heads)
    order = np.argsort(scores, axis=1, kind="stable")
    with np.errstate(over="ignore"):  # scores past f32 are one score there
        ordered = np.take_along_axis(scores, order, axis=1).astype(np.float32)
    first = np.ones((heads, keys), bool)
    first[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    starts = np.flatnonzero(first)
    add: Any = np.add
    sums: Floats = add.reduceat(np.take_along_axis(pull, order, axis=1).ravel(), starts)
    return np.bincount(starts // keys, weights=sums**2, minlength=heads).astype(np.float64)
