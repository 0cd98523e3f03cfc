"""How far forward attention may err: what its roundings come to, and the gates that no tolerance is wider than."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import attrs
import numpy as np
import numpy.typing as npt

from kinfolk.check import DEVIATIONS, Tolerance, unit_roundoff

if TYPE_CHECKING:
    from kinfolk_attention_fwd.reference import Head
    from kinfolk_attention_fwd.request import AttentionFwdRequest

Floats = npt.NDArray[np.float64]
ABSOLUTE_GATE, RELATIVE_GATE, LSE_GATE = 2e-3, 2.0**-8, 2e-3
"""|err| <= 2e-3 + 2^-8 |ref| for values of unit scale, and 2e-3 of LSE: see `Bounds`."""
SCORE_ROUNDINGS: Final = 9
"""Roundings from a product to its weight: scale, that times log2 e, difference, product, exp2, hardware errors."""
CAP_ROUNDINGS: Final = 8
"""Roundings of a capped score, each of the size of the cap: factor, product, exp2, sum, reciprocal, product, sum."""
SLOPE_ROUNDINGS: Final = 3
"""Roundings of what a slope adds, of the size of that of a tile's first key: key, product, multiply-add."""
SLOPED_ROUNDINGS: Final = 4
"""Roundings of a score with a slope, of its size: sum, factor, log2 e, difference."""
TILE_KEYS: Final = 128
"""No tile has more keys."""
SINK_ROUNDINGS: Final = 8
"""Roundings of the factor of a row with a sink: difference, product, exp2, sum, reciprocal, product, errors of two."""
LARGE_ERROR: Final = 0.5
"""Of a weight, in powers of e, from which on it matters that no weight is more than 1."""
RESCALED_KEYS: Final = 32
"""An accumulator is rescaled once for so many keys at most."""
SMALLEST_STEP: Final = {"bf16": 2.0**-118, "f16": 2.0**-25}
"""What weights may lose below the smallest number of their type, and a result: the largest weight is at least 1 before
it is divided, a result may be next to nothing beside a sink.
"""


@attrs.frozen(eq=False)
class Bounds:
    """Of one head, with u the unit roundoff of the type of queries, and u_f32.

    A raw score, a sum of head_size exact products, and a few roundings on its way to a weight err by e = (head_size +
    9) u_f32 scale sum|q k| in natural-log units, a capped one by 8 u_f32 softcap more, and one with a slope by 4 u_f32
    of its own size and 3 of the size of what is added to any key of its tile, LSE by e too. A row with a sink is
    multiplied by 1 / (1 + exp(sink - LSE)), LSE without the sink, which errs as that difference does, by f. So a
    divided weight w lies within w exp(+-(2 e + f)), and is 1 at most: where scores are so large that 2 e is too, keys
    that are as far apart, or less, may have any weights of that sum, which move a result by sum w|v| and the largest
    |v| of these keys at most. Of n keys summed f32 takes n roundings; an accumulator takes one rescale for 32 keys at
    most, 3 each. Weights are rounded to the type of queries, and so is the result.

    No tolerance of `out` is wider than the gates, but where the roundings of weights alone come to more in all
    likelihood, as with few keys: 5 deviations, one of them u / sqrt(3) as of what is uniform within u, times
    sqrt(sum (w v)^2). Neither is one of LSE, beside what f32 takes of huge scores.
    """

    request: AttentionFwdRequest
    head: Head
    counts: npt.NDArray[Any]
    spread: Floats

    @classmethod
    def of(cls, request: AttentionFwdRequest, head: Head) -> Bounds:
        """Return the bounds of a head."""
        sizes = float(np.float32(request.scale)) * (np.abs(head.query) @ np.abs(head.keys).T)
        spread = np.where(head.seen, sizes, 0.0).max(axis=1, initial=0.0)
        return cls(request, head, head.seen.sum(axis=1), spread)

    @property
    def _score(self) -> Floats:
        """e of each query."""
        unit = unit_roundoff("f32")
        error = (self.request.head_size + SCORE_ROUNDINGS) * unit * self.spread
        if self.request.softcap > 0.0:
            error = error + CAP_ROUNDINGS * unit * self.request.softcap
        if self.request.alibi:
            places = np.abs(self.head.places) + TILE_KEYS
            added = abs(self.head.slope or 0.0) * np.where(self.head.seen, places, 0).max(axis=1, initial=0)
            sizes = np.abs(np.where(self.head.seen, self.head.scores, 0.0)).max(axis=1, initial=0.0)
            error = error + unit * (SLOPED_ROUNDINGS * sizes + SLOPE_ROUNDINGS * added)
        return error

    def out(self) -> Floats:
        """Return how far `out` may err; 0 for a query that sees no key."""
        unit, size = unit_roundoff(self.request.dtype), np.abs(self.head.out)
        magnitude = self.head.weights @ np.abs(self.head.values)
        moved = self._moved(magnitude)
        terms = 2 * self.counts + 3 * -(-self.counts // RESCALED_KEYS) + 5
        drift = moved + (unit_roundoff("f32") * terms)[:, None] * (magnitude + moved)
        sure = drift + unit * (magnitude + moved)
        sure += unit * (size + sure)
        deviation = np.sqrt(self.head.weights**2 @ self.head.values**2) + moved
        likely = drift + DEVIATIONS * (unit / 3.0**0.5) * deviation + unit * (size + drift)
        gate = np.maximum(ABSOLUTE_GATE + RELATIVE_GATE * size, likely)
        steps = np.where(self.counts[:, None], self.head.seen @ np.abs(self.head.values) + 1.0, 0.0)
        lost = SMALLEST_STEP.get(self.request.dtype, 0.0) * steps
        return np.minimum(sure + lost, gate)

    def _moved(self, magnitude: Floats) -> Floats:
        """Return how far errors of scores, and of the factor of a sink, may move a result: `Bounds` says why."""
        error = 2.0 * self._score + self._joining()
        moved = np.expm1(np.minimum(error, LARGE_ERROR))[:, None] * magnitude
        for row in np.flatnonzero((error > LARGE_ERROR) & np.isfinite(self.head.lse)):
            seen = self.head.seen[row]
            sizes, weights = np.abs(self.head.values[seen]), self.head.weights[row, seen]
            powers = self.head.scores[row, seen] - self.head.lse[row]
            most, least = np.exp(np.minimum(powers + error[row], 0.0)), np.exp(powers - error[row])
            apart = np.maximum(most - weights, weights - least) @ sizes
            moved[row] = np.minimum(apart, magnitude[row] + sizes[most > 0.0].max(axis=0, initial=0.0))
        return moved

    def _joining(self) -> Floats:
        """Return how far, relatively, the factor of a row with a sink may err; 0 where there is none."""
        sink = self.head.sink
        if sink is None or not np.isfinite(sink):
            return np.zeros(len(self.head.query))
        alone = np.logaddexp.reduce(self.head.scores, axis=1, initial=-np.inf)
        sizes = np.abs(np.where(np.isfinite(alone), alone, 0.0)) + abs(sink) + 1.0
        unit = unit_roundoff("f32")
        return self._score + (self.counts + SCORE_ROUNDINGS) * unit + SINK_ROUNDINGS * unit * sizes

    def lse(self) -> Floats:
        """Return how far `lse` may err; 0 for a query that sees no key, but for its sink's rounding."""
        unit = unit_roundoff("f32")
        own = 4.0 * unit * np.abs(np.where(np.isfinite(self.head.lse), self.head.lse, 0.0))
        likely = DEVIATIONS * np.sqrt(self.request.head_size + SCORE_ROUNDINGS) * unit * self.spread
        bound = Tolerance(self._score + (self.counts + SCORE_ROUNDINGS) * unit).at_most(LSE_GATE + likely).bound
        return np.where(np.isfinite(self.head.lse), bound + own, 0.0)
