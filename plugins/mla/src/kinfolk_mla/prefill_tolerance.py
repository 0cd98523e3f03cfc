"""How far prefill of projected queries may err: what rounding expanded keys and values, and sums in f32, come to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import numpy as np

from kinfolk.check import DEVIATIONS, Tolerance, unit_roundoff
from kinfolk_mla.bias import Bias, leverage
from kinfolk_mla.near_ties import FIRST_ORDER, farthest
from kinfolk_mla.reference import LSE_GATE, SCORE_ROUNDINGS, Floats, Keys, summed_terms

if TYPE_CHECKING:
    from kinfolk_mla.prefill_reference import Head
    from kinfolk_mla.request import MlaRequest


@attrs.frozen(kw_only=True, eq=False)
class Expanded:
    """What the keys and values of a head may err in f32, before they are rounded: `key` and `value` [keys, columns].

    Every one is a sum of `latent` products: it errs by at most latent u_f32 sum|c w|.
    """

    key: Floats
    value: Floats

    @classmethod
    def of(cls, request: MlaRequest, keys: Keys, up: Floats) -> Expanded:
        """Return it for the keys of a sequence and a head's up-projection [latent, nope + v]."""
        error = request.kv_lora_rank * unit_roundoff("f32") * (np.abs(keys.latent) @ np.abs(up))
        key, value = np.split(error, [request.nope_dim], axis=1)
        return cls(key=key, value=value)


@attrs.frozen(kw_only=True, eq=False)
class Attended:
    """One head's results for the queries of a sequence, in fp64, by which a kernel's errors are bounded."""

    request: MlaRequest
    head: Head
    out: Floats
    lse: Floats
    weights: Floats

    @property
    def unit(self) -> float:
        """The roundoff of the type of queries, and of whatever else is rounded to it."""
        return unit_roundoff(self.request.dtype)

    @property
    def scale(self) -> float:
        """The scale as a kernel is passed it."""
        return float(np.float32(self.request.scale))

    @property
    def terms(self) -> Floats:
        """What f32 errs, relatively, of each query's normalisation and accumulator."""
        counts = self.head.seen.sum(axis=1)
        return unit_roundoff("f32") * np.array([summed_terms(self.request, int(count)) for count in counts], float)

    @property
    def magnitude(self) -> Floats:
        """The sum of |weight * value| behind each element of `out`."""
        return self.weights @ np.abs(self.head.values)

    def largest(self, products: Floats) -> Floats:
        """Return per query the largest product with a key that it sees; 0 without keys."""
        return np.where(self.head.seen, products, 0.0).max(axis=1, initial=0.0)

    def beyond_first_order(self, error: Floats) -> Floats:
        """Return how far `out` may move where scores err by more than a nat, by `error`; 0 elsewhere."""
        moved = np.zeros_like(self.out)
        for token in np.flatnonzero(error > FIRST_ORDER):
            seen = self.head.seen[token]
            scores = self.scale * (self.head.keys[seen] @ self.head.query[token])
            distances = np.abs(self.head.values[seen] - self.out[token])
            moved[token] = farthest(scores - self.lse[token], float(error[token]), distances)
        return moved


@attrs.frozen(kw_only=True, eq=False)
class Rounded(Attended):
    """One head's results for the queries of a sequence, and how far each may err.

    With u the unit roundoff of the type of queries, to which expanded elements are rounded once: an element x errs by
    at most dx = latent u_f32 sum|c w| + u |x|. A score then errs by e = scale ((nope + rope + 9) u_f32 sum|q k| +
    sum|q| dk) in nats, and a weight, relatively, by 2 e (`reference.tolerances`); `out` adds the weighted sum of dv.
    LSE errs by the mean of what scores err, by weights w: the roundings of keys come to 5 u scale sqrt(sum (w q k)^2)
    there in all likelihood. Where that alone is more than the gate of LSE, as with all weight on one key and a large
    query, it takes the gate's place; so does what they come to in `out` there, 5 u scale sqrt(sum (w (v - out))^2
    (q k)^2), beyond first order where a score itself may err by much, as with a large scale.
    """

    expanded: Expanded

    @classmethod
    def of(cls, request: MlaRequest, head: Head, keys: Keys, up: Floats) -> Rounded:
        """Return it for the up-projection of the head, [latent, nope + v]."""
        out, lse, weights = head.attend(float(np.float32(request.scale)))
        expanded = Expanded.of(request, keys, up)
        return cls(request=request, head=head, out=out, lse=lse, weights=weights, expanded=expanded)

    @property
    def query(self) -> Floats:
        """The queries' columns that are not rotated, whose keys are expanded."""
        return self.head.query[:, : self.request.nope_dim]

    @property
    def keys(self) -> Floats:
        """The keys' columns that are expanded."""
        return self.head.keys[:, : self.request.nope_dim]

    @property
    def spread(self) -> Floats:
        """The largest scale * sum of |q k| behind a score of each query."""
        return self.scale * self.largest(np.abs(self.head.query) @ np.abs(self.head.keys).T)

    @property
    def summed(self) -> Floats:
        """What sums in f32 err of a score of each query."""
        width = self.request.nope_dim + self.request.rope_dim
        inside = self.scale * self.largest(np.abs(self.query) @ self.expanded.key.T)
        return (width + SCORE_ROUNDINGS) * unit_roundoff("f32") * self.spread + inside

    @property
    def moved(self) -> Floats:
        """What the roundings of keys err of a score of each query, at most."""
        return self.unit * self.scale * self.largest(np.abs(self.query) @ np.abs(self.keys).T)

    def out_bound(self) -> Floats:
        """Return how far `out` may err, before the gates."""
        weights = np.minimum(2.0 * (self.summed + self.moved), 1.0) + self.unit + self.terms
        error = weights[:, None] * self.magnitude
        error += self.beyond_first_order(self.summed + self.moved)
        error += self.unit * self.magnitude + self.weights @ self.expanded.value
        return error + self.unit * (np.abs(self.out) + error)

    def out_likely(self) -> Floats:
        """Return what the roundings of keys come to in `out` in all likelihood, which no gate may be below.

        A score errs by at most e = 5 u scale sqrt(sum (q k)^2) then, and each weight by a factor between exp(-e) and
        exp(e). Up to e = 1 first order and exp(2 e) cover that; where it is more, see `out_moved`.
        """
        squares, error = self.query**2 @ (self.keys**2).T, self.likely_error
        share = self.weights**2 * squares
        values, out = self.head.values, self.out
        moved = share @ values**2 - 2.0 * out * (share @ values) + out**2 * share.sum(axis=1, keepdims=True)
        likely = DEVIATIONS * self.unit * self.scale * np.sqrt(np.maximum(moved, 0.0))
        likely *= np.exp(2.0 * np.minimum(error, 1.0))[:, None]
        return np.where(error[:, None] > 1.0, 0.0, likely)

    @property
    def likely_error(self) -> Floats:
        """What the roundings of keys err of a score of each query in all likelihood."""
        return DEVIATIONS * self.unit * self.scale * np.sqrt(self.largest(self.query**2 @ (self.keys**2).T))

    def out_moved(self) -> Floats:
        """Return how far scores that err by more than a nat move `out`, in all likelihood and beside the gates."""
        return self.beyond_first_order(self.likely_error)

    def lse_bound(self) -> Floats:
        """Return how far `lse` may err; 0 for a query without keys."""
        unit, counts = unit_roundoff("f32"), self.head.seen.sum(axis=1)
        squares = (self.query**2 * (self.weights**2 @ self.keys**2)).sum(axis=1)
        rounded = np.minimum(self.moved, DEVIATIONS * self.unit * self.scale * np.sqrt(squares))
        width = self.request.nope_dim + self.request.rope_dim
        likely = DEVIATIONS * np.sqrt(width + SCORE_ROUNDINGS) * unit * self.spread
        bound = Tolerance(self.summed + rounded + (counts + SCORE_ROUNDINGS) * unit)
        bound = bound.at_most(np.maximum(LSE_GATE, rounded) + likely).bound
        return np.where(counts > 0, bound + 4.0 * unit * np.abs(self.lse), 0.0)

    def added_to(self, bias: Bias) -> Bias:
        """Return a bias with the tokens of this head.

        The rounding of a key's or value's element is one for all queries: what it moves sum(d y) by is added over them
        before it is squared. With w the weights, y the outputs and v the values, an element of v moves it by
        sum_t w y, one of k by scale * sum_t w (v.y - y.y) q.
        """
        if not self.weights.size:
            return bias
        pulled = self.out @ self.head.values.T
        scores = np.where(self.head.seen, self.scale * (self.head.query @ self.head.keys.T), -np.inf)
        pull = leverage(scores, self.weights * pulled)
        of_values = self.head.values * (self.weights.T @ self.out)
        lever = self.weights * (pulled - (self.out**2).sum(axis=1, keepdims=True))
        of_keys = self.scale * self.keys * (lever.T @ self.query)
        shared = np.array([(of_values**2).sum() + (of_keys**2).sum()])
        inside = self.weights @ self.expanded.value  # stands beside the products' own error, per element of out
        drift = (2.0 * self.summed + self.terms)[:, None] * self.magnitude + inside
        return bias.with_token(self.out, drift, np.ones(len(self.out)), np.concatenate([pull, shared]))
