"""Prefill by definition, in fp64, for both of its contracts: every query of a sequence at once, one head after another.

*Projected*: per-head queries of nope + rope columns and the up-projection of the cache, from which every key and value
of every head is formed. *Absorbed*: queries as wide as a key row, the latent rows themselves are the values. Query i of
a sequence with n queries and k keys sees keys 0 to i + k - n where attention is causal: the last query sees all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np
import numpy.typing as npt

from kinfolk.check import Expected, Tolerance
from kinfolk_mla.absorbed.limits import is_over_latent_rows
from kinfolk_mla.absorbed.tolerance import Absorbed
from kinfolk_mla.bias import Bias
from kinfolk_mla.prefill_tolerance import Rounded
from kinfolk_mla.reference import Array, Floats, Keys, gated, gathered, useful_flops

if TYPE_CHECKING:
    from kinfolk_mla.request import MlaRequest


@attrs.frozen(eq=False)
class Head:
    """One head's queries, keys and values of a sequence; `seen` [tokens, keys] says which keys a query sees."""

    query: Floats
    keys: Floats
    values: Floats
    seen: npt.NDArray[np.bool_]

    def attend(self, scale: float) -> tuple[Floats, Floats, Floats]:
        """Return `out` [tokens, columns], `lse` [tokens] and the weights [tokens, keys]; no keys give 0 and -inf."""
        tokens = len(self.query)
        if not len(self.keys):
            return np.zeros((tokens, self.values.shape[1])), np.full(tokens, -np.inf), np.zeros((tokens, 0))
        scores = np.where(self.seen, scale * (self.query @ self.keys.T), -np.inf)
        highest = np.where(self.seen.any(axis=1), scores.max(axis=1), 0.0)
        powers = np.exp(scores - highest[:, None])
        total = powers.sum(axis=1)
        with np.errstate(divide="ignore"):
            lse = highest + np.log(total)
        weights = powers / np.where(total > 0.0, total, 1.0)[:, None]
        return weights @ self.values, lse, weights


def seen_keys(request: MlaRequest, tokens: int, keys: Keys) -> npt.NDArray[np.bool_]:
    """Return [tokens, keys]: which of the keys that exist each of a sequence's queries sees."""
    last = keys.length - tokens if request.causal else keys.length
    limit = last + np.arange(tokens) if request.causal else np.full(tokens, last)
    return keys.positions[None, :] <= limit[:, None]


def sequences(request: MlaRequest, inputs: Mapping[str, Array]) -> Iterator[tuple[slice, Keys]]:
    """Yield, per sequence with a query, where its queries lie among all, and its keys.

    One whose offsets name rows that the query does not have has none.
    """
    for sequence in range(request.num_seqs):
        begin, end = (int(offset) for offset in inputs["cu_seqlens_q"][sequence : sequence + 2])
        if 0 <= begin < end <= request.total_q:
            yield slice(begin, end), gathered(request, inputs, sequence)


def absorbed_prefill(request: MlaRequest, inputs: Mapping[str, Array]) -> tuple[Floats, Floats]:
    """Return `out` [tokens, heads, latent] and `lse` [tokens, heads] of absorbed queries `qa`; inputs as for decode."""
    heads = request.num_heads
    out = np.zeros((request.total_q, heads, request.kv_lora_rank))
    lse = np.full((request.total_q, heads), -np.inf)
    for place, keys in sequences(request, inputs):
        seen = seen_keys(request, place.stop - place.start, keys)
        for head in range(heads):
            query = inputs["qa"][place, head].astype(np.float64)
            one = Head(query, keys.rows, keys.latent, seen)
            out[place, head], lse[place, head], _ = one.attend(float(np.float32(request.scale)))
    return out, lse


def projected_prefill(request: MlaRequest, inputs: Mapping[str, Array]) -> tuple[Floats, Floats]:
    """Return `out` [tokens, heads, v] and `lse` [tokens, heads] of projected queries.

    Inputs are those of decode, with `q` [tokens, heads, nope + rope] for `qa`, and `w_ukv` [heads, latent, nope + v]:
    a head's keys but for their rotated part, and its values, are the latent rows times the first and the last columns.
    """
    out = np.zeros((request.total_q, request.num_heads, request.v_dim))
    lse = np.full(out.shape[:2], -np.inf)
    for place, keys in sequences(request, inputs):
        seen = seen_keys(request, place.stop - place.start, keys)
        for head in range(request.num_heads):
            one = _projected(request, inputs, place, keys, head, seen)
            out[place, head], lse[place, head], _ = one.attend(float(np.float32(request.scale)))
    return out, lse


def _projected(
    request: MlaRequest, inputs: Mapping[str, Array], place: slice, keys: Keys, head: int, seen: npt.NDArray[np.bool_]
) -> Head:
    expanded = keys.latent @ inputs["w_ukv"][head].astype(np.float64)
    nope, values = np.split(expanded, [request.nope_dim], axis=1)
    query = inputs["q"][place, head].astype(np.float64)
    return Head(query, np.concatenate([nope, keys.rope], axis=1), values, seen)


def projected_flops(request: MlaRequest, inputs: Mapping[str, Array]) -> int:
    """Return the operations of projected queries: a key and a value of each head out of each latent row of a sequence
    with a query, and both products over the keys that each query sees.
    """
    expanded = seen = 0
    for place, keys in sequences(request, inputs):
        expanded += len(keys.positions)
        seen += int(seen_keys(request, place.stop - place.start, keys).sum())
    of_key = request.kv_lora_rank * (request.nope_dim + request.v_dim)
    of_pair = request.nope_dim + request.rope_dim + request.v_dim
    return 2 * request.num_heads * (expanded * of_key + seen * of_pair)


def absorbing_flops(request: MlaRequest, inputs: Mapping[str, Array]) -> int:
    """Return the operations of projected queries over latent rows: both products over the keys that each query sees,
    and, of each query that sees one, the product of its first part and that of its latent output with the
    up-projections.
    """
    queries = 0
    for place, keys in sequences(request, inputs):
        queries += int(seen_keys(request, place.stop - place.start, keys).any(axis=1).sum())
    of_query = request.kv_lora_rank * (request.nope_dim + request.v_dim)
    return 2 * request.num_heads * queries * of_query + useful_flops(request, inputs)


def routes(request: MlaRequest) -> tuple[type[Rounded] | type[Absorbed], ...]:
    """Return what may be rounded on the way to an output: that of the candidate that is pinned, else either."""
    if request.candidate == "mla.prefill":
        return (Rounded,)
    return (Absorbed,) if is_over_latent_rows(request.candidate) else (Rounded, Absorbed)


def projected_reference(request: MlaRequest, inputs: Mapping[str, Array]) -> dict[str, Any]:
    """Return what projected queries must give, as `reference.decode_reference` does for absorbed ones.

    Where no candidate is pinned, each output may err as far as by one route or the other.
    """
    found = [_by_route(request, inputs, route) for route in routes(request)]
    first, bias = found[0], max((each["bias"] for each in found), key=lambda each: each.bound)
    merged = {
        name: Expected(first[name].value, Tolerance(np.max([each[name].tolerance.bound for each in found], axis=0)))
        for name in ("out", "lse")
    }
    return first | merged | {"bias": bias}


def _by_route(
    request: MlaRequest, inputs: Mapping[str, Array], route: type[Rounded] | type[Absorbed]
) -> dict[str, Any]:
    shape = (request.total_q, request.num_heads)
    out, lse = np.zeros((*shape, request.v_dim)), np.full(shape, -np.inf)
    out_bound, likely, moved, lse_bound = np.zeros_like(out), np.zeros_like(out), np.zeros_like(out), np.zeros(shape)
    refused, bias = 0, Bias.of(request)
    for place, keys in sequences(request, inputs):
        refused += keys.refused
        seen = seen_keys(request, place.stop - place.start, keys)
        for head in range(request.num_heads):
            one = _projected(request, inputs, place, keys, head, seen)
            found = route.of(request, one, keys, inputs["w_ukv"][head].astype(np.float64))
            out[place, head], lse[place, head] = found.out, found.lse
            out_bound[place, head], lse_bound[place, head] = found.out_bound(), found.lse_bound()
            likely[place, head], moved[place, head] = found.out_likely(), found.out_moved()
            bias = found.added_to(bias)
    size = np.abs(out)
    gate = gated(request, Tolerance(out_bound), size, size.max(axis=(1, 2), initial=0.0)[:, None, None])
    gate = Tolerance(np.minimum(out_bound, np.maximum(gate.bound, likely) + moved))
    return {
        "out": Expected(out, gate),
        "lse": Expected(lse, Tolerance(lse_bound)),
        "status": np.array([refused], dtype=np.int64),
        "bias": bias,
    }
