"""Attention's gradients by definition, in fp64: one head of one sequence after the other, every query and every key."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, Self

import attrs
import numpy as np
import numpy.typing as npt

from kinfolk.check import Expected, Finding, Tolerance
from kinfolk_attention_bwd.tolerance import Bounds

if TYPE_CHECKING:
    from kinfolk_attention_bwd.request import AttentionBwdRequest

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]


QUERIES_AT_ONCE: Final = 256
"""So many are paired with all keys at once where no more is wanted of pairs than a number, or a row's sums."""


def blocks_of_queries(request: AttentionBwdRequest) -> Iterator[slice]:
    """Yield the queries of a sequence, so many at once."""
    for begin in range(0, request.seqlen_q, QUERIES_AT_ONCE):
        yield slice(begin, begin + QUERIES_AT_ONCE)


def seen_keys(request: AttentionBwdRequest, queries: slice = slice(None)) -> npt.NDArray[np.bool_]:
    """Return [queries, keys]: which keys each query of a sequence, or each of some, sees."""
    ahead = request.seqlen_k - request.seqlen_q if request.bottom_right else 0
    behind = np.arange(request.seqlen_k)[None, :] - (np.arange(request.seqlen_q)[queries, None] + ahead)
    seen = behind <= 0 if request.causal else np.ones(behind.shape, bool)
    if request.window_left >= 0:
        seen &= behind >= -request.window_left
    return seen & (behind <= request.window_right) if request.window_right >= 0 else seen


@attrs.frozen(eq=False)
class Head:
    """One head of a sequence: queries, keys, values, what came out and its gradient [rows, columns], and of each pair
    `seen` [queries, keys] the `weights` P, the `products` dP of dout and values, the `sums` D of o * dout [queries],
    and the `gradients` dS = P (dP - D) of scores.
    """

    query: Floats
    keys: Floats
    values: Floats
    output: Floats
    dout: Floats
    seen: npt.NDArray[np.bool_]
    scores: Floats
    lse: Floats
    weights: Floats
    products: Floats
    sums: Floats
    gradients: Floats

    @classmethod
    def of(cls, request: AttentionBwdRequest, inputs: Mapping[str, Array], number: int, head: int) -> Self:
        """Take the head's rows, and form what all gradients are sums of. A row whose LSE is not finite has no weight,
        nor a gradient.
        """
        kv_head = head // (request.num_heads // request.num_kv_heads)
        v_head = head // (request.num_heads // request.num_v_heads)
        query, output, dout = (inputs[name][number, :, head].astype(np.float64) for name in ("q", "o", "dout"))
        keys = inputs["k"][number, :, kv_head].astype(np.float64)
        values = inputs["v"][number, :, v_head].astype(np.float64)
        lse = inputs["lse"][number, head].astype(np.float64)
        seen = seen_keys(request) & np.isfinite(lse)[:, None]
        lse = np.where(np.isfinite(lse), lse, 0.0)
        scores = float(np.float32(request.scale)) * (query @ keys.T)
        weights = np.exp(np.where(seen, scores - lse[:, None], -np.inf))
        products, sums = dout @ values.T, (output * dout).sum(axis=1)
        gradients = np.where(seen, weights * (products - sums[:, None]), 0.0)
        return cls(query, keys, values, output, dout, seen, scores, lse, weights, products, sums, gradients)


def heads(request: AttentionBwdRequest, inputs: Mapping[str, Array]) -> Iterator[tuple[int, int, Head]]:
    """Yield every head of every sequence, with the numbers of both."""
    for number in range(request.batch):
        for head in range(request.num_heads):
            yield number, head, Head.of(request, inputs, number, head)


def reference(request: AttentionBwdRequest, inputs: Mapping[str, Array]) -> dict[str, Any]:
    """Return `dq`, `dk` and `dv` as Expected, each as q, k and v [batch, tokens, heads, columns].

    Inputs are those of the plan's bindings, by name. `scale` is the f32 that a kernel is passed.
    """
    scale = float(np.float32(request.scale))
    found = {name: np.zeros(inputs[of].shape) for name, of in (("dq", "q"), ("dk", "k"), ("dv", "v"))}
    bounds = {name: Bounds.zeros(value.shape, request.dtype) for name, value in found.items()}
    for number, head, each in heads(request, inputs):
        kv_head = head // (request.num_heads // request.num_kv_heads)
        v_head = head // (request.num_heads // request.num_v_heads)
        errors = Bounds.of_head(request, each)
        for name, at, value in (
            ("dq", (number, slice(None), head), scale * each.gradients @ each.keys),
            ("dk", (number, slice(None), kv_head), scale * each.gradients.T @ each.query),
            ("dv", (number, slice(None), v_head), each.weights.T @ each.dout),
        ):
            found[name][at] += value
            bounds[name].add(at, errors[name])
    return {name: Expected(value, Tolerance(bounds[name].of(value))) for name, value in found.items()}


def useful_flops(request: AttentionBwdRequest, inputs: Mapping[str, Array]) -> int:
    """Return the operations of the five products over the pairs of a query and a key that it sees."""
    seen = sum(int(np.count_nonzero(seen_keys(request, queries))) for queries in blocks_of_queries(request))
    pairs = request.batch * request.num_heads * seen
    return 2 * pairs * (3 * request.head_size + 2 * request.head_size_v)


def findings(
    request: AttentionBwdRequest, outputs: Mapping[str, Array], expected: Mapping[str, Any]
) -> Iterator[Finding]:
    """Yield a finding for rows of a gradient that must be exactly 0, as no query sees them or they see nothing."""
    for name in ("dq", "dk", "dv"):
        known: Expected = expected[name]
        empty = (known.tolerance.bound == 0.0).all(axis=-1)
        nonzero = (outputs[name].astype(np.float64) != 0.0).any(axis=-1)
        if count := int(np.count_nonzero(nonzero & empty)):
            yield Finding("empty", name, f"{count} of {int(np.count_nonzero(empty))} rows that meet nothing are not 0")
