"""Inputs at the limits of addresses: caches of gigabytes of which only the rows that a sequence owns exist."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import attrs
import numpy as np
import numpy.typing as npt

from kinfolk.check import Scenario, SparseArray, numpy_dtype
from kinfolk.page_addresses import GIB, SEQUENCES, AddressCase, CacheShape, address_cases
from kinfolk_attention_fwd.drawn import drawn_of_heads, tensors_of_heads

if TYPE_CHECKING:
    from kinfolk_attention_fwd.request import AttentionFwdRequest

Array = npt.NDArray[Any]
OFFSET_EDGES: Final = (0x7FFF0000, 2**31, 2**32)
"""The first is the most that kernels elsewhere give one view of a cache."""
MOST_QUERIES: Final = 20


def address_scenarios(request: AttentionFwdRequest) -> tuple[Scenario, ...]:
    """Return the scenarios of a request over pages that are about addresses; none where no sequence has a query."""
    if not request.max_seqlen_q:
        return ()
    cases = address_cases(shape_of(request), "keys", under_wide_table=2 * GIB)
    return tuple(_scenario(request, case) for case in cases)


def shape_of(request: AttentionFwdRequest) -> CacheShape:
    """Return what keys and values of a page take."""
    rows = request.page_size * request.num_kv_heads
    return CacheShape(
        page_size=request.page_size,
        elements=tuple(rows * width for width in (request.head_size, request.head_size_v)),
        element_bytes=numpy_dtype(request.kv_dtype).itemsize,
        offset_edges=OFFSET_EDGES,
    )


def _scenario(request: AttentionFwdRequest, case: AddressCase) -> Scenario:
    queries = [min(request.max_seqlen_q, MOST_QUERIES), *[1] * (SEQUENCES - 1)]
    asked = attrs.evolve(
        request,
        num_seqs=SEQUENCES,
        total_q=sum(queries),
        max_seqlen_q=max(queries),
        max_seqlen_k=max(case.lengths),
        num_pages=case.num_pages,
    )

    def build(generator: np.random.Generator) -> dict[str, Any]:
        owned = case.owned(generator)
        return _drawn(asked, generator, queries, case.lengths, owned) | {"block_table": case.table(owned)}

    sparse = frozenset(("k", "v", *(["block_table"] if case.wide else [])))
    return Scenario(name=case.name, about=case.about, request=asked, build=build, sparse=sparse)


def _drawn(
    request: AttentionFwdRequest,
    generator: np.random.Generator,
    queries: Sequence[int],
    lengths: Sequence[int],
    owned: Sequence[Array],
) -> dict[str, Any]:
    """Draw queries and the rows of each sequence's pages; of a last page, those that are used."""
    dtype, heads = numpy_dtype(request.kv_dtype), request.num_kv_heads
    widths = {"k": request.head_size, "v": request.head_size_v}
    held: dict[str, dict[int, Array]] = {name: {} for name in widths}
    for length, pages in zip(lengths, owned, strict=True):
        for slot, page in enumerate(pages):
            rows = min(request.page_size, length - slot * request.page_size)
            for name, width in widths.items():
                held[name][int(page)] = generator.standard_normal((rows, heads, width), np.float32).astype(dtype)
    query = generator.standard_normal((request.total_q, request.num_heads, request.head_size), np.float32)
    return {
        "q": query.astype(numpy_dtype(request.dtype)),
        **{
            name: SparseArray(shape=(request.num_pages, request.page_size, heads, width), dtype=dtype, held=held[name])
            for name, width in widths.items()
        },
        "cu_seqlens_q": np.cumsum([0, *queries]).astype(np.int32),
        "seqused_k": np.array(lengths, np.int32),
        **tensors_of_heads(request, drawn_of_heads(request, generator)),
    }
