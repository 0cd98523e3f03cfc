"""Forward attention by definition, in fp64: one head of one sequence after the other, every query against every key."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np
import numpy.typing as npt

from kinfolk.check import Expected, Finding, Tolerance
from kinfolk_attention_fwd.tolerance import Bounds

if TYPE_CHECKING:
    from kinfolk_attention_fwd.request import AttentionFwdRequest

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]


@attrs.frozen(eq=False)
class Sequence:
    """A sequence: `query` [tokens, heads, columns], and of the keys that exist, by their `positions`, `keys` and
    `values` [keys, heads, columns], in fp64: what their elements stand for. `length` counts the keys that do not exist
    too, `place` says where the queries are in `out`, and `lse_place` where they are in `lse` for all heads.
    """

    place: Any
    lse_place: Any
    query: Floats
    keys: Floats
    values: Floats
    positions: npt.NDArray[np.int64]
    length: int


def sequences(request: AttentionFwdRequest, inputs: Mapping[str, Array]) -> Iterator[Sequence]:
    """Yield the sequences of a batch that have a query."""
    key_unit, value_unit = (float(np.float32(unit)) for unit in (request.k_scale, request.v_scale))
    for number in range(request.num_seqs if request.max_seqlen_q else 0):
        query, keys, values = (inputs[name][number].astype(np.float64) for name in ("q", "k", "v"))
        positions = np.arange(request.max_seqlen_k, dtype=np.int64)
        place = (number, slice(None))
        yield Sequence(place, number, query, keys * key_unit, values * value_unit, positions, request.max_seqlen_k)


def seen_keys(request: AttentionFwdRequest, sequence: Sequence) -> npt.NDArray[np.bool_]:
    """Return [tokens, keys]: which of the keys that exist each query sees."""
    own = sequence.length - len(sequence.query) + np.arange(len(sequence.query))[:, None]
    keys = sequence.positions[None, :]
    seen = keys <= own if request.causal else np.ones((len(own), len(sequence.positions)), bool)
    return seen & (keys >= own - request.window_left) if request.window_left >= 0 else seen


@attrs.frozen(eq=False)
class Head:
    """One head of a sequence: `out` [tokens, columns] and `lse` [tokens]; `weights` [tokens, keys] of those `seen`.

    `products` [tokens, keys] are scale sum |q k|, the size of what a score is made of before it is capped.
    """

    query: Floats
    keys: Floats
    values: Floats
    seen: npt.NDArray[np.bool_]
    scores: Floats
    weights: Floats
    out: Floats
    lse: Floats

    @classmethod
    def of(
        cls, request: AttentionFwdRequest, sequence: Sequence, head: int, slope: float | None, sink: float | None
    ) -> Head:
        """Attend, in the order that the request says; no keys give 0 and -inf, or the sink."""
        kv_head = head // (request.num_heads // request.num_kv_heads)
        query, keys, values = sequence.query[:, head], sequence.keys[:, kv_head], sequence.values[:, kv_head]
        seen = seen_keys(request, sequence)
        scores = float(np.float32(request.scale)) * (query @ keys.T)
        if request.softcap > 0.0:
            cap = float(np.float32(request.softcap))
            scores = cap * np.tanh(scores / cap)
        if slope is not None:
            scores = scores + slope * (sequence.positions[None, :] - (sequence.length - len(query)))
        scores = np.where(seen, scores, -np.inf)
        logits = scores if sink is None else np.concatenate([scores, np.full((len(query), 1), sink)], axis=1)
        highest = logits.max(axis=1, initial=-np.inf)
        highest = np.where(np.isfinite(highest), highest, 0.0)
        powers = np.exp(logits - highest[:, None])
        total = powers.sum(axis=1)
        with np.errstate(divide="ignore"):
            lse = highest + np.log(total)
        weights = powers[:, : len(keys)] / np.where(total > 0.0, total, 1.0)[:, None]
        return cls(query, keys, values, seen, scores, weights, weights @ values, lse)


def heads(request: AttentionFwdRequest, inputs: Mapping[str, Array]) -> Iterator[tuple[Sequence, int, Head]]:
    """Yield every head of every sequence that has a query."""
    for sequence in sequences(request, inputs):
        for head in range(request.num_heads):
            slope = float(inputs["alibi_slopes"][head]) if request.alibi else None
            sink = float(inputs["sink"][head]) if request.sinks else None
            yield sequence, head, Head.of(request, sequence, head, slope, sink)


def reference(request: AttentionFwdRequest, inputs: Mapping[str, Array]) -> dict[str, Any]:
    """Return `out` and `lse` as Expected: [sequences, queries, heads, columns] and [sequences, heads, queries].

    Inputs are those of the plan's bindings, by name. `scale` and `softcap` are the f32 that a kernel is passed.
    """
    shape = (request.num_seqs, request.max_seqlen_q, request.num_heads)
    out, lse = np.zeros((*shape, request.head_size_v)), np.full((shape[0], shape[2], shape[1]), -np.inf)
    out_bound, lse_bound = np.zeros_like(out), np.zeros_like(lse)
    for sequence, head, found in heads(request, inputs):
        bounds = Bounds.of(request, found)
        out[*sequence.place, head], out_bound[*sequence.place, head] = found.out, bounds.out()
        lse[sequence.lse_place, head], lse_bound[sequence.lse_place, head] = found.lse, bounds.lse()
    expected = {"out": Expected(out, Tolerance(out_bound))}
    return expected | ({"lse": Expected(lse, Tolerance(lse_bound))} if request.return_lse else {})


def useful_flops(request: AttentionFwdRequest, inputs: Mapping[str, Array]) -> int:
    """Return the operations of both products over the pairs of a query and a key that it sees."""
    pairs = sum(int(seen_keys(request, sequence).sum()) for sequence in sequences(request, inputs))
    return 2 * pairs * request.num_heads * (request.head_size + request.head_size_v)


def findings(
    request: AttentionFwdRequest, outputs: Mapping[str, Array], expected: Mapping[str, Any]
) -> Iterator[Finding]:
    """Yield a finding for rows of queries that see no key and are not exactly 0, with an LSE of -inf."""
    if not request.return_lse:
        return
    sums: Expected = expected["lse"]
    empty = np.isneginf(sums.value)
    nonzero = (outputs["out"].astype(np.float64) != 0.0).any(axis=-1)
    for name, wrong, what in (
        ("out", np.swapaxes(nonzero, 1, 2), "0"),
        ("lse", ~np.isneginf(outputs["lse"]), "-inf"),
    ):
        if count := int(np.count_nonzero(wrong & empty)):
            yield Finding("empty", name, f"{count} of {int(np.count_nonzero(empty))} rows without keys are not {what}")
