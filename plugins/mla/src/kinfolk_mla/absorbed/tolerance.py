"""How far projected queries over latent rows may err: what rounding absorbed queries and latent outputs comes to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs
import numpy as np

from kinfolk.check import DEVIATIONS, Tolerance, unit_roundoff
from kinfolk_mla.bias import Bias, leverage
from kinfolk_mla.prefill_tolerance import Attended
from kinfolk_mla.reference import LSE_GATE, SCORE_ROUNDINGS, Floats, Keys

if TYPE_CHECKING:
    from kinfolk_mla.prefill_reference import Head
    from kinfolk_mla.request import MlaRequest

SMALL: Final = 2.0**-5
"""Nats that scores may err by while the gate of `out` has room for it: a few times what unit scale and heads of 128
columns come to.
"""


@attrs.frozen(kw_only=True, eq=False)
class Absorbed(Attended):
    """One head's results for the queries of a sequence, and how far each may err where queries are absorbed.

    With u the unit roundoff of the type of queries, an absorbed element a = sum(q w) errs by at most
    da = nope u_f32 sum|q w| + u |a|. A score then errs by e = scale ((latent + rope + 9) u_f32 sum|a c| + sum da |c|)
    in nats, and a weight, relatively, by 2 e. A latent output o = sum(p c) is rounded once more: `out`, the product of
    o with the up-projection of values, adds u sum|o w|, and what f32 errs of both sums.

    The roundings of a are the same for all keys. By them LSE moves by 5 u scale sqrt(sum (a o)^2) in all likelihood,
    which takes the place of its gate where it is more, as with all weight on one key and a large query. So does, in
    `out`, 5 u scale sqrt(sum_l (a_l g_l)^2), g_l = sum_k p_k c_kl (v_k - out), where scores err by more than `SMALL`;
    beyond a nat as `prefill_tolerance.Rounded` has it.

    `absorbed` [tokens, latent] are the queries, `latent` [keys, latent] the rows, `sums` [tokens, latent] what they
    weigh to, `products` [tokens, latent] the sums of |q w|, `values_up` [latent, v] the up-projection of values.
    """

    absorbed: Floats
    latent: Floats
    sums: Floats
    products: Floats
    values_up: Floats

    @classmethod
    def of(cls, request: MlaRequest, head: Head, keys: Keys, up: Floats) -> Absorbed:
        """Return it for the up-projection of the head, [latent, nope + v]."""
        out, lse, weights = head.attend(float(np.float32(request.scale)))
        of_keys, of_values = np.split(up, [request.nope_dim], axis=1)
        query = head.query[:, : request.nope_dim]
        return cls(
            request=request,
            head=head,
            out=out,
            lse=lse,
            weights=weights,
            absorbed=query @ of_keys.T,
            latent=keys.latent,
            sums=weights @ keys.latent,
            products=np.abs(query) @ np.abs(of_keys).T,
            values_up=of_values,
        )

    @property
    def width(self) -> int:
        """How many products a score sums."""
        return self.request.kv_lora_rank + self.request.rope_dim

    @property
    def spread(self) -> Floats:
        """The largest scale * sum of |a c| behind a score of each query."""
        nope = self.request.nope_dim
        rotated = np.abs(self.head.query[:, nope:]) @ np.abs(self.head.keys[:, nope:]).T
        return self.scale * self.largest(np.abs(self.absorbed) @ np.abs(self.latent).T + rotated)

    @property
    def summed(self) -> Floats:
        """What sums in f32 err of a score of each query."""
        unit = unit_roundoff("f32")
        inside = self.request.nope_dim * unit * self.scale * self.largest(self.products @ np.abs(self.latent).T)
        return (self.width + SCORE_ROUNDINGS) * unit * self.spread + inside

    @property
    def moved(self) -> Floats:
        """What the roundings of absorbed queries err of a score of each query, at most."""
        return self.unit * self.scale * self.largest(np.abs(self.absorbed) @ np.abs(self.latent).T)

    @property
    def drift(self) -> Floats:
        """What f32 errs of each element of `out` in sums over keys and over latent columns."""
        of_keys = self.terms[:, None] * (self.weights @ np.abs(self.latent))
        of_columns = self.request.kv_lora_rank * unit_roundoff("f32") * np.abs(self.sums)
        return (of_keys + of_columns) @ np.abs(self.values_up)

    def out_bound(self) -> Floats:
        """Return how far `out` may err, before the gates."""
        weights = np.minimum(2.0 * (self.summed + self.moved), 1.0) + self.unit
        error = weights[:, None] * self.magnitude + self.beyond_first_order(self.summed + self.moved)
        error += self.drift + self.unit * np.abs(self.sums) @ np.abs(self.values_up)
        return error + self.unit * (np.abs(self.out) + error)

    def out_likely(self) -> Floats:
        """Return what the roundings of queries come to in `out` in all likelihood, which no gate may be below."""
        likely, error = np.zeros_like(self.out), self.likely_error
        for token in np.flatnonzero((error > SMALL) & (error <= 1.0)):
            weighed = self.latent.T * self.weights[token]
            moved = weighed @ self.head.values - self.sums[token][:, None] * self.out[token]
            squares = self.absorbed[token] ** 2 @ moved**2
            first = DEVIATIONS * self.unit * self.scale * np.sqrt(squares)
            likely[token] = first * np.exp(2.0 * error[token])
        return likely

    @property
    def likely_error(self) -> Floats:
        """What the roundings of absorbed queries err of a score of each query in all likelihood."""
        products = self.absorbed**2 @ (self.latent**2).T
        return DEVIATIONS * self.unit * self.scale * np.sqrt(self.largest(products))

    def out_moved(self) -> Floats:
        """Return how far scores that err by more than a nat move `out`, in all likelihood and beside the gates."""
        return self.beyond_first_order(self.likely_error)

    def lse_bound(self) -> Floats:
        """Return how far `lse` may err; 0 for a query without keys."""
        unit, counts = unit_roundoff("f32"), self.head.seen.sum(axis=1)
        squares = ((self.absorbed * self.sums) ** 2).sum(axis=1)
        rounded = np.minimum(self.moved, DEVIATIONS * self.unit * self.scale * np.sqrt(squares))
        likely = DEVIATIONS * np.sqrt(self.width + SCORE_ROUNDINGS) * unit * self.spread
        bound = Tolerance(self.summed + rounded + (counts + SCORE_ROUNDINGS) * unit)
        bound = bound.at_most(np.maximum(LSE_GATE, rounded) + likely).bound
        return np.where(counts > 0, bound + 4.0 * unit * np.abs(self.lse), 0.0)

    def added_to(self, bias: Bias) -> Bias:
        """Return a bias with the tokens of this head.

        With p the weights, y the outputs and v the values, an absorbed element a_l moves sum(d y) by
        scale a_l sum_k p_k c_kl (v_k.y - y.y), a latent output o_l by o_l times w_l.y.
        """
        if not self.weights.size:
            return bias
        pulled = self.out @ self.head.values.T
        scores = np.where(self.head.seen, self.scale * (self.head.query @ self.head.keys.T), -np.inf)
        pull = leverage(scores, self.weights * pulled)
        lever = self.weights * (pulled - (self.out**2).sum(axis=1, keepdims=True))
        of_queries = self.scale * self.absorbed * (lever @ self.latent)
        of_sums = self.sums * (self.out @ self.values_up.T)
        shared = np.array([(of_queries**2).sum() + (of_sums**2).sum()])
        drift = 2.0 * self.summed[:, None] * self.magnitude + self.drift
        return bias.with_token(self.out, drift, np.ones(len(self.out)), np.concatenate([pull, shared]))
