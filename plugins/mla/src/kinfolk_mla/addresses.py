"""Inputs at the limits of addresses: latent caches of gigabytes of which only the rows that a sequence owns exist."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np
import numpy.typing as npt

from kinfolk.check import Scenario, SparseArray, numpy_dtype
from kinfolk.page_addresses import GIB, SEQUENCES, AddressCase, CacheShape, address_cases
from kinfolk_mla.scenarios import spread_queries

if TYPE_CHECKING:
    from kinfolk_mla.request import MlaRequest

Array = npt.NDArray[Any]


def address_scenarios(request: MlaRequest) -> tuple[Scenario, ...]:
    """Return the scenarios of a decode request that are about addresses; none where no sequence has a query."""
    if not request.max_seqlen_q or not request.absorbed_query:
        return ()
    cases = address_cases(shape_of(request), "a latent cache", under_wide_table=5 * GIB)
    return tuple(_scenario(request, case) for case in cases)


def shape_of(request: MlaRequest) -> CacheShape:
    """Return what the latent and the rotated part of a page take."""
    widths = (request.kv_lora_rank, request.rope_dim)
    return CacheShape(
        page_size=request.page_size,
        elements=tuple(request.page_size * width for width in widths),
        element_bytes=numpy_dtype(request.kv_dtype).itemsize,
    )


def _scenario(request: MlaRequest, case: AddressCase) -> Scenario:
    asked = attrs.evolve(
        request,
        num_seqs=SEQUENCES,
        total_q=request.max_seqlen_q + SEQUENCES - 1,
        max_seqlen_k=max(case.lengths),
        num_pages=case.num_pages,
    )

    def build(generator: np.random.Generator) -> dict[str, Any]:
        owned = case.owned(generator)
        return _drawn(asked, generator, case.lengths, owned) | {"block_table": case.table(owned)}

    sparse = frozenset(("c_kv", "k_rope", *(["block_table"] if case.wide else [])))
    return Scenario(name=case.name, about=case.about, request=asked, build=build, sparse=sparse)


def _drawn(
    request: MlaRequest, generator: np.random.Generator, lengths: Sequence[int], owned: Sequence[Array]
) -> dict[str, Any]:
    """Draw queries and the rows of each sequence's pages; of a last page, those that are used."""
    dtype, latent, width = numpy_dtype(request.kv_dtype), request.kv_lora_rank, request.kv_lora_rank + request.rope_dim
    held: dict[str, dict[int, Array]] = {"c_kv": {}, "k_rope": {}}
    for length, pages in zip(lengths, owned, strict=True):
        for slot, page in enumerate(pages):
            rows = min(request.page_size, length - slot * request.page_size)
            keys = generator.standard_normal((rows, width), np.float32).astype(dtype)
            held["c_kv"][int(page)], held["k_rope"][int(page)] = keys[:, :latent], keys[:, latent:]
    query = generator.standard_normal((request.total_q, request.num_heads, width), np.float32)
    return {
        "qa": query.astype(numpy_dtype(request.dtype)),
        **{
            name: SparseArray(shape=(request.num_pages, request.page_size, columns), dtype=dtype, held=held[name])
            for name, columns in (("c_kv", latent), ("k_rope", request.rope_dim))
        },
        "cu_seqlens_q": np.cumsum([0, *spread_queries(request)]).astype(np.int32),
        "cu_seqlens_k": np.cumsum([0, *lengths]).astype(np.int32),
    }
