"""How far gradients may err: what the roundings on the way to them come to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Self

import attrs
import numpy as np
import numpy.typing as npt

from kinfolk.check import DEVIATIONS, unit_roundoff

if TYPE_CHECKING:
    from kinfolk_attention_bwd.reference import Head
    from kinfolk_attention_bwd.request import AttentionBwdRequest

Floats = npt.NDArray[np.float64]
SCORE_ROUNDINGS: Final = 9
"""Roundings from a product to its weight: scale, that times log2 e, LSE times log2 e, multiply-add, exp2, hardware."""
LARGEST_ERROR: Final = 40.0
"""Of a score, in powers of e, beyond which nothing is expected of its weight."""
SMALLEST_STEP: Final = {"bf16": 2.0**-126, "f16": 2.0**-25}
"""What rounding may lose of a number too small for its type to be normal."""


@attrs.frozen(eq=False)
class Error:
    """Of each element of a gradient: what errs one way in all likelihood, and the sum of squares of what errs as
    chance has it.
    """

    drift: Floats
    squares: Floats


@attrs.frozen(eq=False)
class Bounds:
    """The errors of a gradient's elements, heads added up.

    With u the unit roundoff of the type, and u_f32: a score errs by e = (head_size + 9) u_f32 scale sum|q k| and 4
    roundings of the size of LSE, so a weight P by e P; a product of dout and a value by (head_size_v + 2) u_f32
    sum|dout v|, and D, a row's sum of o * dout, likewise, which with P and its error makes that of dS = P (dP - D).
    P and dS are rounded to the type: by u / sqrt(3) of themselves, as of what is uniform within u, 5 deviations of
    which are allowed, times the other factor. Of a sum over n rows f32 takes n u_f32 of its magnitudes. The result is
    rounded once. No row that nothing reaches may err.
    """

    dtype: str
    drift: Floats
    squares: Floats

    @classmethod
    def zeros(cls, shape: tuple[int, ...], dtype: str) -> Self:
        """Begin."""
        return cls(dtype, np.zeros(shape), np.zeros(shape))

    @staticmethod
    def of_head(request: AttentionBwdRequest, head: Head) -> dict[str, Error]:
        """Return the errors of a head's part of each gradient."""
        unit, rough = unit_roundoff("f32"), unit_roundoff(request.dtype)
        scale, lost = float(np.float32(request.scale)), SMALLEST_STEP.get(request.dtype, 0.0)
        query, keys, values, dout = (np.abs(each) for each in (head.query, head.keys, head.values, head.dout))
        sizes = scale * (query @ keys.T)
        score = (request.head_size + SCORE_ROUNDINGS) * unit * sizes + 4 * unit * (np.abs(head.lse)[:, None] + 1)
        weight = np.expm1(np.minimum(score, LARGEST_ERROR))
        product = (request.head_size_v + 2) * unit * (dout @ values.T)
        product += (request.head_size_v + 2) * unit * (np.abs(head.output) * dout).sum(axis=1)[:, None]
        sure = np.abs(head.gradients) * (weight + 2 * unit) + head.weights * product * (1 + weight)
        of_gradients = np.where(head.seen, sure + lost, 0.0)
        of_weights = np.where(head.seen, head.weights * weight + lost, 0.0)

        def error(first: Floats, errs: Floats, second: Floats, factor: float) -> Error:
            summed = errs @ second + unit * len(second) * (np.abs(first) @ second)
            return Error(factor * summed, (factor * rough) ** 2 / 3.0 * (first**2 @ second**2))

        return {
            "dq": error(head.gradients, of_gradients, keys, scale),
            "dk": error(head.gradients.T, of_gradients.T, query, scale),
            "dv": error(head.weights.T, of_weights.T, dout, 1.0),
        }

    def add(self, at: Any, error: Error) -> None:
        """Add a head's part to rows `at`."""
        self.drift[at] += error.drift
        self.squares[at] += error.squares

    def of(self, value: Floats) -> Floats:
        """Return how far each element may err."""
        summed = self.drift + DEVIATIONS * np.sqrt(self.squares)
        return summed + unit_roundoff(self.dtype) * (np.abs(value) + summed) + self._lost * (summed > 0.0)

    @property
    def _lost(self) -> float:
        return SMALLEST_STEP.get(self.dtype, 0.0)
