"""The inputs on which attention over pages is run: each a situation that some plausible mistake gets wrong.

Whatever a kernel must not read is poisoned: rows of the cache that no sequence owns and the tails of last pages are
NaN, slots past a sequence's pages name the largest page there could be. The table is a slice of a wider one, so that
its stride is not its width. No sequence has more queries than the request allows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import attrs
import numpy as np
import numpy.typing as npt

from kinfolk.check import Scenario, numpy_dtype, poison
from kinfolk_attention_fwd.drawn import (
    Change,
    Rows,
    climbing,
    constant,
    drawn,
    extreme,
    high_sinks,
    low_sinks,
    nothing,
    one_sign,
    steep,
    steepest,
)
from kinfolk_attention_fwd.page_addresses import address_scenarios
from kinfolk_attention_fwd.paged.limits import CODE as PAGED
from kinfolk_attention_fwd.paged.spec import AttentionPagedSpec
from kinfolk_attention_fwd.scenarios import LONG, QUERIES, few_heads
from kinfolk_attention_fwd.segmented.limits import CODE as SEGMENTED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kinfolk_attention_fwd.request import AttentionFwdRequest

Array = npt.NDArray[Any]
DEAD: Final = 0x7FFFFFFF
"""What stands in slots past a sequence's last page."""
SPARE_SLOTS: Final = 3
MANY: Final = 2**31 - 1
"""As many queries as the request allows."""
RAGGED: Final = ((0, 20), (QUERIES, 33), (1, 32), (5, 0), (30, 17), (33, 65), (20, 290), (1, 129))
LENGTHS: Final = (17, 1000, 64, 250, 31, 777)
MANY_KEYS: Final = 33_000
"""Keys in more than 2,048 pages of 16 rows: as many as a workgroup looks at a time."""
SHORT: Final = ((70, 80), (1, 33))

Spoil = Callable[[dict[str, Array], Sequence[int], int], None]
"""Changes the inputs in place; it is told how many slots each sequence uses, and how many pages there are."""


def paged_scenarios(request: AttentionFwdRequest) -> tuple[Scenario, ...]:
    """Return the scenarios of a request over pages; none of another."""
    return tuple(_scenarios(request)) if request.layout == "paged" else ()


def _scenarios(request: AttentionFwdRequest) -> Iterator[Scenario]:
    few = few_heads(request)
    whole = ((MANY, request.max_seqlen_k),)
    yield _scenario(request, "whole", "one sequence, as many queries and keys as are asked for", whole)
    yield _scenario(few, "ragged", "prefixes, one query, none, no keys, fewer keys than queries", RAGGED)
    about = "last tokens behind 17 to 1,000 keys, and a table that is wide for most"
    yield _scenario(few, "lengths", about, tuple((1, length) for length in LENGTHS))
    yield _scenario(
        few, "chunk", "more queries than a workgroup has, in the midst of a sequence", ((270, 400), (1, 64))
    )
    yield _scenario(few, "empty", "no sequence has keys", ((QUERIES, 0), (2, 0)))
    about = (
        "page ids are asked for several times, one of them strange, and a first query sees a key less of whole tiles"
    )
    yield _scenario(attrs.evolve(few, num_seg=1), "long", about, ((1, 4700), (2, 9008)), spoil=_misnamed_far)
    if request.candidate == PAGED and request.page_size == AttentionPagedSpec.part:
        about = "so many pages that threads look at ids a second time, where the last is strange"
        yield _scenario(attrs.evolve(few, num_seg=1), "slots", about, ((1, MANY_KEYS),), spoil=_misnamed_last)
    about = "eighty segments, of which short sequences leave most empty"
    divided = tuple((2, length) for length in (0, 1, 40, 65, 450, 4700))
    if request.candidate in (None, SEGMENTED):
        yield _scenario(attrs.evolve(request, num_seg=80), "segments", about, divided)
    yield _scenario(few, "climb", "one key of a tile lifts half of the maxima by far", ((QUERIES, LONG),), climbing)
    yield _scenario(few, "extreme", "finite scores of 1e30 and 1e38 of both signs", SHORT, extreme)
    yield _scenario(few, "constant", "all keys of a sequence alike", ((20, 150),), constant)
    yield _scenario(few, "one_sign", "values of one sign a column, weights of many sizes", ((70, 190),), one_sign)
    about = "page ids of -1, num_pages and more in slots in use"
    yield _scenario(few, "bad_pages", about, ((QUERIES, LONG), (17, 80), (1, 200), (1, 60)), spoil=_misnamed)
    about = "offsets of queries that name rows past the last, lengths below 0 and above the most"
    yield _scenario(few, "strange_numbers", about, ((20, 30), (2, 40), (1, 33), (2, 10)), spoil=_strange, stray=True)
    if request.alibi:
        yield _scenario(few, "steep", "scores climb from key to key, or fall", ((QUERIES, LONG), (1, 192)), steep)
        yield _scenario(few, "steepest", "slopes of 1e33 of both signs", SHORT, steepest)
    if request.sinks:
        about = "next to all weight is the sinks', or all"
        yield _scenario(few, "high_sinks", about, ((QUERIES, LONG), (1, 200)), high_sinks)
        about = "sinks of no weight, or -inf; some rows have no key"
        yield _scenario(few, "low_sinks", about, ((60, 40), (2, 0)), low_sinks)
    if request.window_left >= 0:
        yield from _windows(few)
    yield from address_scenarios(few)


def _windows(request: AttentionFwdRequest) -> Iterator[Scenario]:
    """Yield scenarios with windows of their own."""

    def of(window: int, name: str, about: str, wanted: Sequence[tuple[int, int]], change: Change = nothing) -> Scenario:
        return _scenario(attrs.evolve(request, window_left=window), name, about, wanted, change)

    yield of(0, "own_key", "each query sees its own key, or none before it", ((70, 130), (1, 65)))
    yield of(20, "late", "many rows have their first key behind the first tile", ((300, 330), (1, 200)))
    yield of(20, "late_extreme", "such rows begin with scores of 1e38 of both signs", ((140, 150),), extreme)
    yield of(250, "both_edges", "whole tiles between those where a window begins and ends", ((QUERIES, LONG),))
    yield of(2**31 - 1, "endless", "a window longer than any sequence", ((QUERIES, 200),))


def _scenario(
    request: AttentionFwdRequest,
    name: str,
    about: str,
    wanted: Sequence[tuple[int, int]],
    change: Change = nothing,
    spoil: Spoil | None = None,
    *,
    stray: bool = False,
) -> Scenario:
    """Return a scenario of sequences of `wanted` (queries, keys). Where `stray`, the rows of the last one's queries do
    not exist.
    """
    queries = [min(count, request.max_seqlen_q) for count, _ in wanted]
    lengths = [length for _, length in wanted]
    pages = sum(-(-length // request.page_size) for length in lengths) + 1
    own = attrs.evolve(
        request,
        num_seqs=len(wanted),
        total_q=sum(queries[:-1] if stray else queries),
        max_seqlen_q=max(queries[:-1] if stray else queries),
        max_seqlen_k=max(lengths),
        num_pages=max(pages, min(request.num_pages, 2 * pages)),
    )

    def build(generator: np.random.Generator) -> dict[str, Array]:
        rows = drawn(own, generator, queries, lengths)
        change(rows)
        inputs = paged(own, generator, rows)
        if spoil is not None:
            spoil(inputs, [-(-length // own.page_size) for length in lengths], own.num_pages)
        return inputs

    return Scenario(name=name, about=about, request=own, build=build)


def paged(request: AttentionFwdRequest, generator: np.random.Generator, rows: Rows) -> dict[str, Array]:
    """Round a batch and put its keys and values in pages, in no order; return the plan's inputs by binding."""
    page, dtype = request.page_size, numpy_dtype(request.kv_dtype)
    lengths = [len(keys) for keys in rows.keys]
    slots = [-(-length // page) for length in lengths]
    order = generator.choice(request.num_pages, sum(slots), replace=False)
    width = -(-request.max_seqlen_k // page)
    table = np.full((request.num_seqs, width + SPARE_SLOTS), DEAD, np.int32)
    shape = (request.num_pages, page, request.num_kv_heads)
    cache = {
        name: poison(request.kv_dtype, (*shape, columns))
        for name, columns in (("k", request.head_size), ("v", request.head_size_v))
    }
    for sequence, owned in enumerate(np.split(order, np.cumsum(slots)[:-1])):
        table[sequence, : len(owned)] = owned
        for name, tensor in (("k", rows.keys[sequence]), ("v", rows.values[sequence])):
            for slot, identifier in enumerate(owned):
                held = tensor[slot * page : (slot + 1) * page]
                cache[name][identifier, : len(held)] = held.astype(dtype)
    queries = np.concatenate(rows.query)[: request.total_q]
    return {
        "q": queries.astype(numpy_dtype(request.dtype)),
        **cache,
        **rows.tensors_of_heads(),
        "cu_seqlens_q": np.cumsum([0, *map(len, rows.query)]).astype(np.int32),
        "seqused_k": np.array(lengths, np.int32),
        "block_table": table[:, :width],
    }


def _misnamed(inputs: dict[str, Array], slots: Sequence[int], num_pages: int) -> None:
    """Spoil a few slots and the last of even sequences, one of them far from the others and one a little before the
    last, and all of every fourth from the second.
    """
    strange = (-1, num_pages, DEAD, -(2**31))
    for sequence, count in enumerate(slots):
        if sequence % 2 == 0:
            spoiled = sorted({slot for slot in (1, 3, count // 2 | 1, count * 7 // 8, count - 1) if 0 <= slot < count})
        else:
            spoiled = list(range(count)) if sequence % 4 == 1 else []
        for slot in spoiled:
            inputs["block_table"][sequence, slot] = strange[(sequence + slot) % len(strange)]


def _misnamed_far(inputs: dict[str, Array], slots: Sequence[int], num_pages: int) -> None:
    """Spoil a slot behind the middle of every sequence."""
    for sequence, count in enumerate(slots):
        inputs["block_table"][sequence, count - count // 16 - 1] = num_pages


def _misnamed_last(inputs: dict[str, Array], slots: Sequence[int], num_pages: int) -> None:
    """Spoil the last slot of every sequence."""
    for sequence, count in enumerate(slots):
        inputs["block_table"][sequence, count - 1] = num_pages


def _strange(inputs: dict[str, Array], slots: Sequence[int], num_pages: int) -> None:
    """Give the first sequence a length below 0, and the longest one of which the product with anything wraps."""
    inputs["seqused_k"][0] = -5
    inputs["seqused_k"][1] = 2**31 - 1
