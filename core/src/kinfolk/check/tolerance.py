"""How far a result may lie from the fp64 reference: derived from its types, its length and what was added up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Self

import attrs
import numpy as np
import numpy.typing as npt

from kinfolk.check.element import Array, Floats

_SIGNIFICAND: Final[dict[str, int]] = {
    "f64": 53,
    "f32": 24,
    "f16": 11,
    "bf16": 8,
    "f8E4M3FN": 4,
    "f8E4M3FNUZ": 4,
    "f8E5M2": 3,
    "f8E5M2FNUZ": 3,
}

DEVIATIONS: Final = 5.0
"""n roundings in a sum exceed 5 sqrt(n) u times the sum of magnitudes with a chance below 2 exp(-5^2 / 2) = 8e-6, by
Hoeffding's inequality."""


def unit_roundoff(dtype: str) -> float:
    """Return the largest relative error of rounding to nearest in a float type: 2^-24 for f32, 2^-8 for bf16."""
    return 2.0 ** -_SIGNIFICAND[dtype]


def _bounds(value: npt.ArrayLike) -> Floats:
    return np.asarray(value, dtype=np.float64)


@attrs.frozen(eq=False)
class Tolerance:
    """The largest error of each element that rounding explains; 0 demands the exact value."""

    bound: Floats = attrs.field(converter=_bounds)

    def __attrs_post_init__(self) -> None:
        wrong = ~(np.isfinite(self.bound) & (self.bound >= 0.0))
        if bool(wrong.any()):
            at = tuple(int(axis) for axis in np.unravel_index(int(np.argmax(wrong)), wrong.shape))
            raise ValueError(
                f"a tolerance is finite and 0 or more everywhere, it is {self.bound[at]} at {at} and not so in "
                f"{int(np.count_nonzero(wrong))} of {wrong.size} elements"
            )

    @classmethod
    def exact(cls, shape: Sequence[int]) -> Self:
        """Return the tolerance that takes no error."""
        return cls(np.zeros(tuple(shape)))

    @classmethod
    def weighted_sum(
        cls,
        value: Floats,
        *,
        magnitude: Floats,
        terms: int,
        weight_dtype: str,
        result_dtype: str,
        weight_error: float | Floats = 0.0,
        accumulator: str = "f32",
    ) -> Self:
        """Return the tolerance of y = sum over `terms` of w_j x_j, with `value` = y and `magnitude` = sum of |w_j x_j|.

        Derivation (Higham, Accuracy and Stability of Numerical Algorithms, 2002, sections 2.2 and 3.1; u is the unit
        roundoff of a type). Each weight carries a relative error of at most e = `weight_error` and is rounded to
        `weight_dtype`: a factor 1 + e + u_w. A product of two short floats is exact in the accumulator, n terms added
        in any order pick up n u_a. So the sum errs by at most s = (e + u_w + n u_a) * magnitude to first order. The
        result is rounded once to `result_dtype`, which adds u_r (|y| + s). Nothing here is fitted to a kernel.
        """
        relative = weight_error + unit_roundoff(weight_dtype) + terms * unit_roundoff(accumulator)
        summed = relative * magnitude
        return cls(summed + unit_roundoff(result_dtype) * (np.abs(value) + summed))

    def at_most(self, gate: npt.ArrayLike) -> Self:
        """Return this tolerance, nowhere wider than `gate`."""
        return type(self)(np.minimum(self.bound, gate))

    def margins(self, error: Floats) -> Floats:
        """Return error / tolerance per element, pass at 1: 0 where none is made, infinite where none is allowed."""
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            ratio = error / np.broadcast_to(self.bound, error.shape)
        return np.where(error == 0.0, 0.0, ratio)


def _wide(value: Array) -> Floats:
    return np.asarray(value, dtype=np.float64)


@attrs.frozen(eq=False)
class Expected:
    """An output by definition: fp64 values, and how far each element may lie from them."""

    value: Floats = attrs.field(converter=_wide)
    tolerance: Tolerance

    def __attrs_post_init__(self) -> None:
        if self.tolerance.bound.shape != self.value.shape:
            raise ValueError(f"a tolerance of shape {self.tolerance.bound.shape} for values of {self.value.shape}")

    def __array__(self, dtype: Any = None, copy: Any = None) -> Array:
        return np.array(self.value, dtype=dtype)
