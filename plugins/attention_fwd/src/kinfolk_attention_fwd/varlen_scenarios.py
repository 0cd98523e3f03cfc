"""The inputs on which attention over rows of sequences of any lengths is run, one sequence after the other.

Nothing but its offsets parts a sequence from the next. Where one has no queries its keys are NaN: nobody reads them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import attrs
import numpy as np
import numpy.typing as npt

from kinfolk.check import Scenario, SparseArray, numpy_dtype
from kinfolk_attention_fwd.drawn import (
    Change,
    Rows,
    climbing,
    drawn,
    extreme,
    high_sinks,
    low_sinks,
    nothing,
    one_sign,
    steep,
)
from kinfolk_attention_fwd.scenarios import LONG, QUERIES, alike_scenario, few_heads

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kinfolk_attention_fwd.request import AttentionFwdRequest

Array = npt.NDArray[Any]
Wanted = Sequence[tuple[int, int]]
"""How many queries and keys each sequence has."""
Spoil = Callable[[dict[str, Array]], None]
RAGGED: Final = ((0, 20), (QUERIES, 33), (0, 70), (1, 32), (5, 0), (30, 17), (33, 65), (20, 290), (0, 9), (1, 129))
FAR_EDGES: Final = (2**31, 2**32, 2**33)
FAR_QUERIES, FAR_KEYS = 20, 200
STRANGE: Final = ((20, 30), (2, 40), (1, 33), (2, 10))


def varlen_scenarios(request: AttentionFwdRequest) -> tuple[Scenario, ...]:
    """Return the scenarios of a request over rows by offsets. Kernels that have no offsets are the same: a request
    over sequences that are all alike has one here too.
    """
    if request.layout == "dense":
        return (_ragged(few_heads(request), "varlen"),)
    return tuple(_scenarios(request)) if request.layout == "varlen" else ()


def _scenarios(request: AttentionFwdRequest) -> Iterator[Scenario]:
    whole = ((request.max_seqlen_q, request.max_seqlen_k),)
    yield _scenario(request, "whole", "one sequence, as many queries and keys as are asked for", whole)
    few = few_heads(request)
    yield _ragged(few, "ragged")
    yield _scenario(few, "chunks", "more queries than a workgroup has, behind other sequences", ((33, 65), (300, 400)))
    yield _scenario(few, "no_keys", "no sequence has keys", ((QUERIES, 0), (0, 0), (2, 0)))
    yield _scenario(few, "no_queries", "no sequence has queries", ((0, 20), (0, 0)))
    yield _scenario(
        few, "climb", "one key of a tile lifts half of the maxima by far", ((1, 9), (QUERIES, LONG)), climbing
    )
    yield _scenario(few, "extreme", "finite scores of 1e30 and 1e38 of both signs", ((70, 80), (1, 33)), extreme)
    yield _scenario(few, "one_sign", "values of one sign a column, weights of many sizes", ((70, 190),), one_sign)
    about = "offsets that fall, name rows past the last, or are further apart than the longest sequence"
    yield _scenario(few, "strange_numbers", about, STRANGE, spoil=_strange, stray=True)
    if request.alibi:
        yield _scenario(few, "steep", "scores climb from key to key, or fall", ((1, 9), (QUERIES, LONG)), steep)
    if request.sinks:
        both = ((QUERIES, LONG), (70, 50))
        yield _scenario(few, "high_sinks", "next to all weight is the sinks', or all", both, high_sinks)
        yield _scenario(few, "low_sinks", "sinks of no weight, or -inf; some rows have no key", both, low_sinks)
    if request.window_left >= 0:
        yield from _windows(few)
    yield _far(few)
    yield alike_scenario(request)


def _windows(request: AttentionFwdRequest) -> Iterator[Scenario]:
    """Yield scenarios with windows of their own."""

    def of(window: int, name: str, about: str, wanted: Wanted) -> Scenario:
        return _scenario(attrs.evolve(request, window_left=window), name, about, wanted)

    yield of(0, "own_key", "each query sees its own key, or none before it", ((70, 130), (3, 2), (1, 65)))
    yield of(20, "late", "many rows have their first key behind the first tile", ((300, 330), (1, 200)))
    yield of(250, "both_edges", "whole tiles between those where a window begins and ends", ((3, 9), (QUERIES, LONG)))


def _ragged(request: AttentionFwdRequest, name: str) -> Scenario:
    about = "sequences of any lengths: prefixes, one query, none, no keys, fewer keys than queries"
    return _scenario(request, name, about, RAGGED, _not_read)


def _scenario(
    request: AttentionFwdRequest,
    name: str,
    about: str,
    wanted: Wanted,
    change: Change = nothing,
    spoil: Spoil | None = None,
    *,
    stray: bool = False,
) -> Scenario:
    """Return a scenario of sequences of `wanted`. Where `stray`, the rows of the last one's queries do not exist."""
    queries, lengths = [count for count, _ in wanted], [length for _, length in wanted]
    exist = queries[:-1] if stray else queries
    own = attrs.evolve(
        request,
        layout="varlen",
        num_seqs=len(wanted),
        total_q=sum(exist),
        max_seqlen_q=max(exist),
        total_k=sum(lengths),
        max_seqlen_k=max(lengths),
    )

    def build(generator: np.random.Generator) -> dict[str, Array]:
        rows = drawn(own, generator, queries, lengths)
        change(rows)
        inputs = packed(own, rows)
        if spoil is not None:
            spoil(inputs)
        return inputs

    return Scenario(name=name, about=about, request=own, build=build)


def _far(request: AttentionFwdRequest) -> Scenario:
    """Return a scenario of sequences that read keys on both sides of an edge, each behind one without queries, none of
    whose rows exist.
    """
    row_bytes = request.num_kv_heads * request.head_size * numpy_dtype(request.kv_dtype).itemsize
    first = [edge // row_bytes - FAR_KEYS // 2 for edge in FAR_EDGES]
    before = np.diff([-FAR_KEYS, *first]) - FAR_KEYS
    queries, lengths = [0, FAR_QUERIES] * len(first), [each for gap in before for each in (int(gap), FAR_KEYS)]
    own = attrs.evolve(
        request,
        num_seqs=len(lengths),
        total_q=sum(queries),
        max_seqlen_q=FAR_QUERIES,
        total_k=sum(lengths),
        max_seqlen_k=max(lengths),
    )

    def build(generator: np.random.Generator) -> dict[str, Any]:
        read = drawn(own, generator, [FAR_QUERIES] * len(first), [FAR_KEYS] * len(first))
        inputs = packed(own, read)
        places = [begin + key for begin in first for key in range(FAR_KEYS)]
        sparse = {
            name: SparseArray(
                shape=(own.total_k, *inputs[name].shape[1:]),
                dtype=inputs[name].dtype,
                held=dict(zip(places, inputs[name], strict=True)),
            )
            for name in ("k", "v")
        }
        offsets = {"cu_seqlens_q": queries, "cu_seqlens_k": lengths}
        return inputs | sparse | {name: np.cumsum([0, *counts]).astype(np.int32) for name, counts in offsets.items()}

    about = "keys on both sides of 2^31, 2^32 and 2^33 bytes"
    return Scenario(name="far", about=about, request=own, build=build, sparse=frozenset(("k", "v")))


def packed(request: AttentionFwdRequest, rows: Rows) -> dict[str, Array]:
    """Round a batch and put its sequences one after the other; return the plan's inputs by binding."""
    kv_dtype = numpy_dtype(request.kv_dtype)
    return {
        "q": np.concatenate(rows.query)[: request.total_q].astype(numpy_dtype(request.dtype)),
        "k": np.concatenate(rows.keys).astype(kv_dtype),
        "v": np.concatenate(rows.values).astype(kv_dtype),
        **rows.tensors_of_heads(),
        "cu_seqlens_q": np.cumsum([0, *map(len, rows.query)]).astype(np.int32),
        "cu_seqlens_k": np.cumsum([0, *map(len, rows.keys)]).astype(np.int32),
    }


def _not_read(rows: Rows) -> None:
    """Make keys and values NaN where a sequence has no queries."""
    for query, keys, values in zip(rows.query, rows.keys, rows.values, strict=True):
        if not len(query):
            keys[:], values[:] = np.nan, np.nan


def _strange(inputs: dict[str, Array]) -> None:
    """Let the keys of the first sequence end past the last one there is, so that the second one's offsets fall, and the
    third one have more than any may.
    """
    inputs["cu_seqlens_k"][1:3] = 2**31 - 1, 3
