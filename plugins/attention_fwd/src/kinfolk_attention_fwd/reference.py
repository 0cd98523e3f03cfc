"""Forward attention by definition, in fp64: one head of one sequence after the other, every query against every key."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np
import numpy.typing as npt

from kinfolk.check import Expected, Finding, SparseArray, Tolerance
from kinfolk_attention_fwd.tolerance import Bounds

if TYPE_CHECKING:
    from kinfolk_attention_fwd.request import AttentionFwdRequest

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]


@attrs.frozen(eq=False)
class Sequence:
    """A sequence: `query` [tokens, heads, columns], and of the keys that exist, by their `positions`, `keys` and
    `values` [keys, heads, columns], in fp64: what their elements stand for. `length` counts the keys that do not exist
    too, whose page ids lie outside the cache: `refused` of them, but for pages that lie before the window of every
    query whole, and are not looked at. `place` says where the queries are in `out`.
    """

    place: Any
    query: Floats
    keys: Floats
    values: Floats
    positions: npt.NDArray[np.int64]
    length: int
    refused: int = 0


def sequences(request: AttentionFwdRequest, inputs: Mapping[str, Array]) -> Iterator[Sequence]:
    """Yield the sequences of a batch that have a query."""
    by_layout = {"dense": _alike, "varlen": _of_rows, "paged": _of_pages}
    return by_layout[request.layout](request, inputs)


def _alike(request: AttentionFwdRequest, inputs: Mapping[str, Array]) -> Iterator[Sequence]:
    key_unit, value_unit = _units(request)
    for number in range(request.num_seqs if request.max_seqlen_q else 0):
        query, keys, values = (inputs[name][number].astype(np.float64) for name in ("q", "k", "v"))
        positions = np.arange(request.max_seqlen_k, dtype=np.int64)
        place = (number, slice(None))
        yield Sequence(place, query, keys * key_unit, values * value_unit, positions, request.max_seqlen_k)


def _rows_between(offsets: Array, number: int, total: int, most: int) -> slice:
    """Return the rows of a sequence, none where offsets fall or name rows past the last of all."""
    first, last = (int(offset) for offset in offsets[number : number + 2])
    return slice(first, min(last, first + most)) if 0 <= first <= last <= total else slice(0, 0)


def _taken(tensor: Array | SparseArray, rows: slice) -> Array:
    if isinstance(tensor, SparseArray):
        return np.stack([tensor[row] for row in range(rows.start, rows.stop)])
    return tensor[rows]


def _of_rows(request: AttentionFwdRequest, inputs: Mapping[str, Array]) -> Iterator[Sequence]:
    """Yield them in order: queries and keys between the offsets of each, as `_rows_between` says."""
    key_unit, value_unit = _units(request)
    for number in range(request.num_seqs):
        tokens = _rows_between(inputs["cu_seqlens_q"], number, request.total_q, request.max_seqlen_q)
        rows = _rows_between(inputs["cu_seqlens_k"], number, request.total_k, request.max_seqlen_k)
        if tokens.start == tokens.stop:
            continue
        query, keys, values = (
            _taken(inputs[name], where).astype(np.float64) for name, where in (("q", tokens), ("k", rows), ("v", rows))
        )
        positions = np.arange(len(keys), dtype=np.int64)
        yield Sequence((tokens,), query, keys * key_unit, values * value_unit, positions, len(keys))


def _of_pages(request: AttentionFwdRequest, inputs: Mapping[str, Array]) -> Iterator[Sequence]:
    """Yield them in order; offsets that fall, or name rows past the last, make a sequence without queries, a length
    below 0 or above the most is the nearest that there may be, and keys of an id outside the cache do not exist.
    """
    units, page = _units(request), request.page_size
    for number in range(request.num_seqs):
        tokens = _rows_between(inputs["cu_seqlens_q"], number, request.total_q, request.max_seqlen_q)
        if tokens.start == tokens.stop:
            continue
        length = min(max(int(inputs["seqused_k"][number]), 0), request.max_seqlen_k)
        slots = inputs["block_table"][number][: -(-length // page)].astype(np.int64)
        known = (slots >= 0) & (slots < request.num_pages)
        positions = np.arange(length, dtype=np.int64)
        positions = positions[known[positions // page]]
        at = slots[positions // page], positions % page
        keys, values = (
            inputs[name][at].astype(np.float64) * unit for name, unit in zip(("k", "v"), units, strict=True)
        )
        query = inputs["q"][tokens].astype(np.float64)
        begin = max(length - len(query) - request.window_left, 0) // page if request.window_left >= 0 else 0
        refused = int(np.count_nonzero(~known[begin:]))
        yield Sequence((tokens,), query, keys, values, positions, length, refused)


def _units(request: AttentionFwdRequest) -> tuple[float, float]:
    """Return what an element of keys and of values counts for, as a kernel is passed it: an f32."""
    return float(np.float32(request.k_scale)), float(np.float32(request.v_scale))


def seen_keys(request: AttentionFwdRequest, sequence: Sequence) -> npt.NDArray[np.bool_]:
    """Return [tokens, keys]: which of the keys that exist each query sees."""
    own = sequence.length - len(sequence.query) + np.arange(len(sequence.query))[:, None]
    keys = sequence.positions[None, :]
    seen = keys <= own if request.causal else np.ones((len(own), len(sequence.positions)), bool)
    return seen & (keys >= own - request.window_left) if request.window_left >= 0 else seen


@attrs.frozen(eq=False)
class Head:
    """One head of a sequence: `out` [tokens, columns] and `lse` [tokens]; `weights` [tokens, keys] of those `seen`.

    `slope` is the head's, `places` [keys] what it is multiplied by, `sink` its logit; None and None where it has none.
    """

    query: Floats
    keys: Floats
    values: Floats
    seen: npt.NDArray[np.bool_]
    scores: Floats
    weights: Floats
    out: Floats
    lse: Floats
    slope: float | None
    places: npt.NDArray[np.int64]
    sink: float | None

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
        places = sequence.positions - (sequence.length - len(query))
        if slope is not None:
            scores = scores + slope * places[None, :]
        scores = np.where(seen, scores, -np.inf)
        logits = scores if sink is None else np.concatenate([scores, np.full((len(query), 1), sink)], axis=1)
        highest = logits.max(axis=1, initial=-np.inf)
        highest = np.where(np.isfinite(highest), highest, 0.0)
        powers = np.exp(logits - highest[:, None])
        total = powers.sum(axis=1)
        with np.errstate(divide="ignore"):
            lse = highest + np.log(total)
        weights = powers[:, : len(keys)] / np.where(total > 0.0, total, 1.0)[:, None]
        return cls(query, keys, values, seen, scores, weights, weights @ values, lse, slope, places, sink)


def heads(request: AttentionFwdRequest, inputs: Mapping[str, Array]) -> Iterator[tuple[Sequence, int, Head]]:
    """Yield every head of every sequence that has a query."""
    for sequence in sequences(request, inputs):
        for head in range(request.num_heads):
            slope = float(inputs["alibi_slopes"][head]) if request.alibi else None
            sink = float(inputs["sink"][head]) if request.sinks else None
            yield sequence, head, Head.of(request, sequence, head, slope, sink)


def reference(request: AttentionFwdRequest, inputs: Mapping[str, Array]) -> dict[str, Any]:
    """Return `out` and `lse` as Expected: of equal sequences [sequences, queries, heads, columns] and [sequences,
    heads, queries], of others [tokens, heads, columns] and [heads, tokens]; of pages also `status`, how many page ids
    in use lie outside the cache.

    Inputs are those of the plan's bindings, by name. `scale` and `softcap` are the f32 that a kernel is passed.
    """
    rows = (request.num_seqs, request.max_seqlen_q) if request.layout == "dense" else (request.total_q,)
    shape = (*rows, request.num_heads)
    out, lse = np.zeros((*shape, request.head_size_v)), np.full(shape, -np.inf)
    out_bound, lse_bound = np.zeros_like(out), np.zeros(shape)
    for sequence, head, found in heads(request, inputs):
        bounds = Bounds.of(request, found)
        out[*sequence.place, head], out_bound[*sequence.place, head] = found.out, bounds.out()
        lse[*sequence.place, head], lse_bound[*sequence.place, head] = found.lse, bounds.lse()
    expected: dict[str, Any] = {"out": Expected(out, Tolerance(out_bound))}
    if request.return_lse:
        expected["lse"] = Expected(np.swapaxes(lse, -1, -2), Tolerance(np.swapaxes(lse_bound, -1, -2)))
    if request.layout == "paged":
        expected["status"] = np.array([sum(each.refused for each in sequences(request, inputs))], np.int64)
    return expected


def useful_flops(request: AttentionFwdRequest, inputs: Mapping[str, Array]) -> int:
    """Return the operations of both products over the pairs of a query and a key that it sees."""
    pairs = sum(int(seen_keys(request, sequence).sum()) for sequence in sequences(request, inputs))
    return 2 * pairs * request.num_heads * (request.head_size + request.head_size_v)


def findings(
    request: AttentionFwdRequest, outputs: Mapping[str, Array], expected: Mapping[str, Any]
) -> Iterator[Finding]:
    """Yield a finding for rows of queries that see no key and are not exactly 0, with an LSE of -inf, and where the
    status word does not count the refused page ids.
    """
    if "status" in expected:
        counted, refused = int(outputs["status"][0]), int(expected["status"][0])
        if counted != refused:
            yield Finding("page_ids", "status", f"counts {counted} page ids outside the cache, there are {refused}")
    if not request.return_lse:
        return
    sums: Expected = expected["lse"]
    empty = np.isneginf(sums.value)
    nonzero = (outputs["out"].astype(np.float64) != 0.0).any(axis=-1)
    for name, wrong, what in (
        ("out", np.swapaxes(nonzero, -1, -2), "0"),
        ("lse", ~np.isneginf(outputs["lse"]), "-inf"),
    ):
        if count := int(np.count_nonzero(wrong & empty)):
            yield Finding("empty", name, f"{count} of {int(np.count_nonzero(empty))} rows without keys are not {what}")
