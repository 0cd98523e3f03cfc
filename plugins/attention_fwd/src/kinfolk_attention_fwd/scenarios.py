"""The inputs on which attention over equal sequences in rows is run, each of which some plausible mistake gets wrong.

Scenarios have lengths of their own, few heads, and more sequences than one where that is what they are about.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import attrs
import numpy as np
import numpy.typing as npt

from kinfolk.check import Scenario, numpy_dtype
from kinfolk_attention_fwd.drawn import (
    Change,
    Rows,
    climbing,
    constant,
    drawn_of_heads,
    extreme,
    high_sinks,
    low_sinks,
    nothing,
    one_sign,
    steep,
    steepest,
)
from kinfolk_attention_fwd.request import AttentionFwdRequest

if TYPE_CHECKING:
    from collections.abc import Iterator

Array = npt.NDArray[Any]
LONG: Final = 330
"""Keys of which four tiles need no mask, whatever the queries, as far as these are few."""
QUERIES: Final = 40
FEW_SEQUENCES: Final = 2


def dense_scenarios(request: AttentionFwdRequest) -> tuple[Scenario, ...]:
    """Return the scenarios of a request over whole rows; none of another."""
    return tuple(_scenarios(request)) if request.layout == "dense" else ()


def _scenarios(request: AttentionFwdRequest) -> Iterator[Scenario]:
    most_q, most_k = request.max_seqlen_q, request.max_seqlen_k
    yield _scenario(request, "whole", "as many queries and keys as are asked for", most_q, most_k, sequences=1)
    few = few_heads(request)
    yield _scenario(few, "prefix", "many keys before the first query", QUERIES, LONG)
    yield _scenario(few, "one_query", "a last token behind many keys", 1, 200)
    yield _scenario(few, "more_queries", "the first queries see no key", 300, 97)
    yield _scenario(few, "no_keys", "nothing is seen", 20, 0)
    yield _scenario(few, "whole_tiles", "no tile has a key too many", 64, 128)
    yield _scenario(few, "tile_plus_one", "a last tile of one key", 33, 129)
    yield _scenario(few, "climb", "one key of a tile lifts half of the maxima by far", QUERIES, LONG, climbing)
    yield _scenario(few, "extreme", "finite scores of 1e30 and 1e38 of both signs", 70, 80, extreme)
    yield _scenario(few, "constant", "all keys alike", 20, 150, constant)
    yield _scenario(few, "one_sign", "values of one sign a column, weights of many sizes", 70, 190, one_sign)
    if request.alibi:
        yield _scenario(few, "steep", "scores climb from key to key, or fall", QUERIES, LONG, steep)
        yield _scenario(few, "steepest", "slopes of 1e33 of both signs", 70, 80, steepest)
    if request.sinks:
        yield _scenario(few, "high_sinks", "next to all weight is the sinks', or all", QUERIES, LONG, high_sinks)
        yield _scenario(few, "low_sinks", "sinks of no weight, or -inf; some rows have no key", 140, 100, low_sinks)
    if request.window_left >= 0:
        yield from _windows(few)


def _windows(request: AttentionFwdRequest) -> Iterator[Scenario]:
    """Yield scenarios with windows of their own."""

    def of(
        window: int, name: str, about: str, queries: int, keys: int, change: Change = nothing, sequences: int = 1
    ) -> Scenario:
        return _scenario(attrs.evolve(request, window_left=window), name, about, queries, keys, change, sequences)

    yield of(0, "own_key", "each query sees its own key, or none before it", 70, 130)
    yield of(20, "late", "many rows have their first key behind the first tile", 300, 330, sequences=FEW_SEQUENCES)
    yield of(20, "late_extreme", "such rows begin with scores of 1e38 of both signs", 140, 150, extreme)
    yield of(64, "late_climb", "the window is one tile, and maxima rise in it", QUERIES, LONG, climbing)
    yield of(250, "both_edges", "whole tiles between those where a window begins and ends", QUERIES, LONG)
    yield of(2**31 - 1, "endless", "a window longer than any sequence", QUERIES, 200)


def mutation_requests() -> tuple[AttentionFwdRequest, ...]:
    """Return small requests, in whose scenarios mutants are run."""
    plain = AttentionFwdRequest(
        layout="dense",
        num_seqs=2,
        total_q=540,
        max_seqlen_q=270,
        max_seqlen_k=LONG,
        num_heads=4,
        num_kv_heads=2,
        head_size=128,
        head_size_v=128,
        dtype="bf16",
        kv_dtype="bf16",
        causal=True,
        return_lse=True,
        scale=128**-0.5,
        candidate="attention_fwd.dense",
    )
    windowed = attrs.evolve(plain, window_left=70, sinks=True, head_size=64, head_size_v=64, scale=64**-0.5)
    return (
        plain,
        attrs.evolve(plain, causal=False, softcap=20.0, alibi=True, max_seqlen_q=40, total_q=80),
        attrs.evolve(windowed, layout="varlen", total_q=300, total_k=400),
    )


def alike_scenario(request: AttentionFwdRequest) -> Scenario:
    """Return one of sequences that are all alike, of a request whose kernels have those too."""
    each = attrs.evolve(request, layout="dense", total_q=request.num_seqs * request.max_seqlen_q, total_k=0)
    return _scenario(few_heads(each), "alike", "as many queries and keys in each sequence, without offsets", 33, 129)


def few_heads(request: AttentionFwdRequest) -> AttentionFwdRequest:
    """Return the request with the heads of keys that the first two, or the first, head of keys is for."""
    shared = request.num_heads // request.num_kv_heads
    kept = min(request.num_kv_heads, 2 if shared == 1 else 1)
    return attrs.evolve(request, num_kv_heads=kept, num_heads=kept * min(shared, 2))


def _scenario(
    request: AttentionFwdRequest,
    name: str,
    about: str,
    queries: int,
    keys: int,
    change: Change = nothing,
    sequences: int = FEW_SEQUENCES,
) -> Scenario:
    own = attrs.evolve(
        request, num_seqs=sequences, max_seqlen_q=queries, total_q=sequences * queries, max_seqlen_k=keys
    )

    def build(generator: np.random.Generator) -> dict[str, Array]:
        drawn_queries, drawn_keys, drawn_values = _drawn(own, generator)
        of_heads = drawn_of_heads(own, generator)
        rows = Rows(own, tuple(drawn_queries), tuple(drawn_keys), tuple(drawn_values), of_heads)
        change(rows)
        dtype, kv_dtype = numpy_dtype(own.dtype), numpy_dtype(own.kv_dtype)
        return {
            "q": drawn_queries.astype(dtype),
            "k": drawn_keys.astype(kv_dtype),
            "v": drawn_values.astype(kv_dtype),
            **rows.tensors_of_heads(),
        }

    return Scenario(name=name, about=about, request=own, build=build)


def _drawn(request: AttentionFwdRequest, generator: np.random.Generator) -> tuple[Array, Array, Array]:
    """Draw queries, keys and values of unit scale, in the shapes of the bindings."""
    sequences, width, value_width = request.num_seqs, request.head_size, request.head_size_v
    keys = (sequences, request.max_seqlen_k, request.num_kv_heads)
    return (
        generator.standard_normal((sequences, request.max_seqlen_q, request.num_heads, width), np.float32),
        generator.standard_normal((*keys, width), np.float32),
        generator.standard_normal((*keys, value_width), np.float32),
    )
