"""MLA with absorbed queries by definition, in fp64: gather a sequence's keys, softmax over all that a query sees, weigh
the latent rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import attrs
import numpy as np
import numpy.typing as npt

from kinfolk.check import DEVIATIONS, Expected, Finding, Tolerance, unit_roundoff
from kinfolk_mla.bias import Bias, leverage
from kinfolk_mla.near_ties import moved

if TYPE_CHECKING:
    from kinfolk_mla.request import MlaRequest

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]

ABSOLUTE_GATE, RELATIVE_GATE, PEAK_GATE, LSE_GATE = 4e-2, 2e-2, 2e-2, 1.7e-2
"""No tolerance is wider: |err| <= 4e-2 k_scale + 2e-2 |ref| per element and 2e-2 of a token's largest |ref|; LSE
1.7e-2, beside what f32 takes of huge scores (`tolerances`).
"""

TILE_KEYS: Final = 16
"""An accumulator is rescaled once for so many keys at most."""

LEAST_WEIGHT: Final = 2.0**-118
"""Weights below the smallest normal of f32, 2^-126, become 0; those of a segment are up to 2^8 before they are."""

SCORE_ROUNDINGS: Final = 9
"""Roundings from a raw score to its weight: scale, scale * k_scale, that times log2 e, difference, product, exp2,
hardware errors.
"""


@attrs.frozen(eq=False)
class Keys:
    """The keys of one sequence that exist, by their `positions` in it, in fp64: what their elements stand for.

    `latent` [keys, latent], `rope` [keys, rope]. `refused` counts the slots that name no page of the cache, `length`
    the keys with theirs.
    """

    positions: npt.NDArray[np.int64]
    latent: Floats
    rope: Floats
    refused: int
    length: int

    def before(self, limit: int) -> Keys:
        """Return the keys at positions below `limit`."""
        seen = self.positions < limit
        return Keys(self.positions[seen], self.latent[seen], self.rope[seen], self.refused, self.length)

    @property
    def rows(self) -> Floats:
        """Whole key rows, latent then rope."""
        return np.concatenate([self.latent, self.rope], axis=1)


def gathered(request: MlaRequest, inputs: Mapping[str, Array], sequence: int) -> Keys:
    """Return the keys of a sequence in order; the keys of a slot whose id lies outside the cache are left out."""
    page = request.page_size
    slots, known, positions, length = _slots(request, inputs, sequence)
    at = slots[positions // page], positions % page
    latent, rope = (inputs[name][at].astype(np.float64) * key_unit(request) for name in ("c_kv", "k_rope"))
    return Keys(positions, latent, rope, int(np.count_nonzero(~known)), length)


def key_unit(request: MlaRequest) -> float:
    """Return what an element of the cache counts for, as a kernel is passed it: `k_scale` as an f32."""
    return float(np.float32(request.k_scale))


def _slots(request: MlaRequest, inputs: Mapping[str, Array], sequence: int) -> tuple[Array, Array, Array, int]:
    """Return the page ids of a sequence, which of them the cache has, the positions of keys there, and its length."""
    length, page = _length(request, inputs, sequence), request.page_size
    slots = inputs["block_table"][sequence][: -(-length // page)].astype(np.int64)
    known = (slots >= 0) & (slots < request.num_pages)
    positions = np.arange(length, dtype=np.int64)
    return slots, known, positions[known[positions // page]], length


def _length(request: MlaRequest, inputs: Mapping[str, Array], sequence: int) -> int:
    """Return how many keys a sequence has: none where offsets fall, or lie further apart than an i32 says."""
    first, last = (int(offset) for offset in inputs["cu_seqlens_k"][sequence : sequence + 2])
    return min(last - first, request.max_seqlen_k) if 0 <= last - first < 2**31 else 0


def _tokens(request: MlaRequest, inputs: Mapping[str, Array], sequence: int) -> range:
    """Return the rows of a sequence's queries: none where its offsets name rows that there are not."""
    first, last = (int(offset) for offset in inputs["cu_seqlens_q"][sequence : sequence + 2])
    return range(first, min(last, first + request.max_seqlen_q)) if 0 <= first < last <= request.total_q else range(0)


def useful_flops(request: MlaRequest, inputs: Mapping[str, Array]) -> int:
    """Return the operations of both products over the keys that each token sees: q.k over a whole key row, and the
    weighted sum of latent rows.
    """
    seen = 0
    for sequence in range(request.num_seqs):
        _, _, positions, length = _slots(request, inputs, sequence)
        for behind in range(len(_tokens(request, inputs, sequence))):
            seen += int(np.count_nonzero(positions < length - (behind if request.causal else 0)))
    return seen * request.num_heads * 2 * (2 * request.kv_lora_rank + request.rope_dim)


@attrs.frozen(eq=False)
class Attention:
    """One token's result, and the magnitudes that its rounding errors scale with.

    `out` [heads, latent] and `lse` [heads]; `magnitude` is the sum of |weight * latent| behind each element of `out`,
    `spread` the largest scale * sum of |q k| behind a score of each head, `leverage` what the weights of each head
    can do to the length of its output (`bias.leverage`), `lost` [latent] what becomes 0 of weights too small for f32.
    `logarithms` [heads, keys] are those of the weights, `latent` [keys, latent] the rows that they are of. A head is
    `exact` where its scores are single products, which f32 has.
    """

    out: Floats
    lse: Floats
    magnitude: Floats
    spread: Floats
    leverage: Floats
    logarithms: Floats
    latent: Floats
    exact: npt.NDArray[np.bool_]
    lost: Floats | float = 0.0


def attend(query: Floats, keys: Keys, scale: float) -> Attention:
    """Attend with a token's queries [heads, latent + rope]; no keys give 0 and -inf."""
    exact = np.count_nonzero(query, axis=1) <= 1
    if not len(keys.latent):
        zeros = np.zeros((len(query), keys.latent.shape[1]))
        heads, scores_of_none = np.zeros(len(query)), np.zeros((len(query), 0))
        return Attention(zeros, heads - np.inf, zeros, heads, heads, scores_of_none, keys.latent, exact)
    scores = scale * (query @ keys.rows.T)
    highest = scores.max(axis=1, keepdims=True)
    powers = np.exp(scores - highest)
    total = powers.sum(axis=1, keepdims=True)
    weights = powers / total
    out = weights @ keys.latent
    return Attention(
        out=out,
        lse=(highest + np.log(total))[:, 0],
        magnitude=weights @ np.abs(keys.latent),
        spread=scale * (np.abs(query) @ np.abs(keys.rows).T).max(axis=1),
        leverage=leverage(scores, weights * (out @ keys.latent.T)),
        logarithms=scores - highest - np.log(total),
        latent=keys.latent,
        exact=exact,
        lost=LEAST_WEIGHT * np.abs(keys.latent).sum(axis=0),
    )


def decode_reference(request: MlaRequest, inputs: Mapping[str, Array]) -> dict[str, Any]:
    """Return `out` and `lse` as Expected, `status`, how many slots in use name no page, in sequences with a query, and
    `bias`, how far `out` may lean as a whole.

    Inputs are those of the plan's bindings, by name. The scale is the f32 that a kernel is passed. A token that no
    sequence owns does not exist: `cu_seqlens_q` covers all.
    """
    heads, width = request.num_heads, request.kv_lora_rank
    out, lse = np.zeros((request.total_q, heads, width)), np.full((request.total_q, heads), -np.inf)
    out_bound, lse_bound = np.zeros_like(out), np.zeros_like(lse)
    refused, bias = 0, Bias.of(request)
    for sequence in range(request.num_seqs):
        tokens = _tokens(request, inputs, sequence)
        if not tokens:
            continue
        keys = gathered(request, inputs, sequence)
        refused += keys.refused
        for token in tokens:
            seen = keys.before(keys.length - (tokens[-1] - token if request.causal else 0))
            found = attend(inputs["qa"][token].astype(np.float64), seen, float(np.float32(request.scale)))
            out[token], lse[token] = found.out, found.lse
            out_bound[token], lse_bound[token] = tolerances(request, found, len(seen.latent))
            drift = 2.0 * score_error(request, found) + summed_terms(request, len(seen.latent)) * unit_roundoff("f32")
            bias = bias.with_token(found.out, found.magnitude, drift, found.leverage)
    return {
        "out": Expected(out, Tolerance(out_bound)),
        "lse": Expected(lse, Tolerance(lse_bound)),
        "status": np.array([refused], dtype=np.int64),
        "bias": bias,
    }


def score_error(request: MlaRequest, found: Attention) -> Floats:
    """Return e of `tolerances` for each head."""
    width = request.kv_lora_rank + request.rope_dim
    return (width + SCORE_ROUNDINGS) * unit_roundoff("f32") * found.spread


def summed_terms(request: MlaRequest, num_keys: int) -> int:
    """Return how many roundings of f32 a weight's normalisation and its accumulator take, at most."""
    return 2 * num_keys + 3 * -(-num_keys // TILE_KEYS) + 5


def tolerances(request: MlaRequest, found: Attention, num_keys: int) -> tuple[Floats, Floats]:
    """Return how far `out` and `lse` of a token may lie from the reference.

    An element of the cache is exact in the type of the query: one of 8 bits is widened to it, one of that type is it.
    What it stands for is defined by the product with `k_scale`, as a number, so that this cache is not one that errs:
    the tolerance is that of any other, with `k_scale` multiplied in twice, once with the scale and once with the sum of
    weights. How far the cache is from what was rounded to it is no matter of the kernel's.

    A raw score is a sum of latent + rope exact products in f32, and a few roundings more on its way to a weight: it
    errs by e = (latent + rope + 9) u_f32 * spread, in natural-log units, and so does each weight, relatively; to first
    order LSE errs by e as well. A weight's normalisation errs by 2 e + n u_f32 with n keys summed; an accumulator takes
    one rescale per tile at most, 3 roundings each; what is left is multiplied by `k_scale` over the sum of weights. LSE
    adds n roundings of the sum, and is itself rounded at its own size. The sum is one of weights before they are
    rounded to the query's type, in which products are, a rounding that LSE has no room for. Where a column is 0 in the
    rows that count, as a short type makes it, what weights of almost 0 give is all there is, and may be lost.

    A large scale makes scores, and what f32 rounds off them, larger than any fixed gate of LSE. Beside the gate are
    taken 4 roundings of an f32 of the LSE's own size, and of the score what its roundings come to at most in all
    likelihood, 5 sqrt(latent + rope + 9) u_f32 * spread (Higham and Mary, A new approach to probabilistic rounding
    error analysis, 2019, theorem 3.1): a fifth of e. It stays below the gate's half up to a spread of 1100 nats.

    Where a score errs by more than a nat, weights move beyond first order: another key's that is near may take all
    (`near_ties`). `out` may move as far as e comes to before the gates, and as far as the fifth does beside them.
    """
    unit = unit_roundoff("f32")
    score = score_error(request, found)
    out = Tolerance.weighted_sum(
        found.out,
        magnitude=found.magnitude,
        terms=summed_terms(request, num_keys),
        weight_dtype=request.dtype,
        result_dtype=request.dtype,
        weight_error=np.minimum(2.0 * score, 1.0)[:, None],
    )
    width = request.kv_lora_rank + request.rope_dim
    likely = DEVIATIONS * np.sqrt(width + SCORE_ROUNDINGS) * unit * found.spread
    out = Tolerance(out.bound + moved(found.logarithms, score, found.latent, found.out, found.exact))
    size = np.abs(found.out)
    out = gated(request, out, size, size.max(initial=0.0))
    out = Tolerance(out.bound + found.lost + moved(found.logarithms, likely, found.latent, found.out, found.exact))
    if not num_keys:
        return out.bound, np.zeros_like(found.lse)
    own = 4.0 * unit * np.abs(found.lse)
    lse = Tolerance(score + (num_keys + SCORE_ROUNDINGS) * unit).at_most(LSE_GATE + likely)
    return out.bound, lse.bound + own


def gated(request: MlaRequest, tolerance: Tolerance, size: Floats, peak: Floats | float) -> Tolerance:
    """Return a tolerance of `out`, nowhere wider than the gates for an element of `size` in a token of `peak`."""
    absolute = ABSOLUTE_GATE * key_unit(request)  # of caches of unit scale, as they are stored
    return tolerance.at_most(absolute + RELATIVE_GATE * size).at_most(PEAK_GATE * peak)


def decode_findings(outputs: Mapping[str, Array], expected: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield a finding where the status word does not count the refused page ids, where `out` leans one way, and for
    rows that must be empty.

    A row without keys is exactly 0 with an LSE of -inf.
    """
    bias: Bias = expected["bias"]
    yield from bias.findings(outputs["out"], expected["out"])
    counted, refused = int(outputs["status"][0]), int(expected["status"][0])
    if counted != refused:
        yield Finding("page_ids", "status", f"counts {counted} page ids outside the cache, there are {refused}")
    reference: Expected = expected["lse"]
    empty = np.isneginf(reference.value)
    for name, wrong in (
        ("out", (outputs["out"].astype(np.float64) != 0.0).any(axis=-1)),
        ("lse", ~np.isneginf(outputs["lse"])),
    ):
        if count := int(np.count_nonzero(wrong & empty)):
            what = "0" if name == "out" else "-inf"
            yield Finding("empty", name, f"{count} of {int(np.count_nonzero(empty))} rows without keys are not {what}")
