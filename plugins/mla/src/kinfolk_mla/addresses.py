"""Inputs at the limits of addresses: caches of gigabytes of which only the rows that a sequence owns exist.

An address is page * rows * width * bytes, past 2^31 and 2^32 in caches that models use. Pages are taken on both sides
of each place where that product, the same in elements, or the id itself outgrows a narrower integer.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import attrs
import numpy as np
import numpy.typing as npt

from kinfolk.check import Scenario, SparseArray, numpy_dtype
from kinfolk_mla.scenarios import spread_queries

if TYPE_CHECKING:
    from kinfolk_mla.request import MlaRequest

Array = npt.NDArray[Any]
Table = npt.NDArray[np.int32]

ID_EDGES: Final = (2**15, 2**16, 2**23, 2**24)
"""Where an id of 16 and of 24 bits (the narrow multiplier of many GPUs) turns its sign, and where it ends."""
OFFSET_EDGES: Final = (2**31, 2**32)
GIB: Final = 2**30
LARGEST: Final = 768 * GIB
"""No latent cache is larger; where pages are, ids end below the last edge."""
SEQUENCES: Final = 5
SPARE_SLOTS: Final = 2
"""Columns between the rows of a table, which are no part of it."""
WIDEST: Final = 2**30
"""Columns of a table whose later rows begin past 2^31 and 2^32 elements."""
DEAD_SLOTS: Final = 7
"""Columns of a table past those that the longest sequence uses."""

Spoil = Callable[["Batch"], None]


@attrs.frozen(eq=False)
class Batch:
    """The tables of a scenario, which spoilers change in place.

    `table` [sequences, slots] names a page that exists in each of the first `slots[s]` of row s; the last sequence has
    none. `vacant` are pages of the cache that do not exist.
    """

    request: MlaRequest
    table: Table
    slots: Sequence[int]
    vacant: Sequence[int]

    def strange_ids(self) -> tuple[int, ...]:
        """Return ids outside the cache: on both sides of it, at both ends of an i32, and one that 32 bits bring back.

        The last is as many pages after one that exists as elements of the latent part make 2^32.
        """
        request = self.request
        wrapping = int(self.table[0, 0]) + 2**32 // (request.page_size * request.kv_lora_rank)
        known = (-1, request.num_pages, 2**31 - 1, -(2**31))
        return (*known, wrapping) if request.num_pages <= wrapping < 2**31 else known


def address_scenarios(request: MlaRequest) -> tuple[Scenario, ...]:
    """Return the scenarios of a decode request that are about addresses; none where no sequence has a query."""
    if not request.max_seqlen_q or not request.absorbed_query:
        return ()
    small, large = _pages_of(request, 2 * GIB), _pages_of(request, 5 * GIB)
    ids = min(max(ID_EDGES) + 1, _pages_of(request, LARGEST))
    reached = ", ".join(f"2^{edge.bit_length() - 1}" for edge in ID_EDGES if edge < ids)
    offsets = "on both sides of each multiple of 2 GiB and 2^31 elements"
    return (
        _scenario(request, "address_2gib", f"a latent cache of 2 GiB, pages {offsets}", small),
        _scenario(request, "address_5gib", f"a latent cache of 5 GiB, pages {offsets}", large),
        _scenario(request, "address_ids", f"page ids on both sides of {reached}", ids),
        _scenario(request, "address_dead_slots", "ids of all kinds past a sequence's pages", large, _kill, DEAD_SLOTS),
        _scenario(request, "address_bad_ids", "ids outside a large cache in slots in use", large, _misname),
        _scenario(
            request,
            "address_table",
            "a table of rows of 4 GiB, whose slots past a sequence's pages do not exist",
            large,
        ),
    )


def edge_pages(request: MlaRequest, num_pages: int) -> tuple[int, ...]:
    """Return the pages of a cache before, at and after each edge of an id and of a product, and the last one.

    A page is at an edge where it is the first that begins at or past it.
    """
    rows, element = request.page_size, numpy_dtype(request.kv_dtype).itemsize
    units = [rows * width * size for width in (request.kv_lora_rank, request.rope_dim) for size in (1, element)]
    edges = {*ID_EDGES, *(-(-edge // unit) for edge in OFFSET_EDGES for unit in units)}
    near = {edge + step for edge in edges for step in (-1, 0, 1)}
    return tuple(sorted({page for page in near if 0 <= page < num_pages} | {num_pages - 1}))


def _pages_of(request: MlaRequest, latent_bytes: int) -> int:
    """Return how many pages a cache has whose latent part has that many bytes, and two pages more."""
    return latent_bytes // (request.page_size * request.kv_lora_rank * numpy_dtype(request.kv_dtype).itemsize) + 2


def _nothing(batch: Batch) -> None:
    return None


def _scenario(
    request: MlaRequest, name: str, about: str, num_pages: int, spoil: Spoil = _nothing, dead_slots: int = 0
) -> Scenario:
    """Return a scenario of its own batch: lengths that end with a page, after one key of one and one short of one."""
    pages, page = edge_pages(request, num_pages), request.page_size
    slots = [len(pages[sequence :: SEQUENCES - 1]) for sequence in range(SEQUENCES - 1)]
    unused = (0, page - 1, min(1, page - 1), page // 2)
    lengths = [max(0, count * page - rest) for count, rest in zip(slots, unused, strict=True)] + [0]
    width = WIDEST if name == "address_table" else max(slots) + dead_slots
    asked = attrs.evolve(
        request,
        num_seqs=SEQUENCES,
        total_q=request.max_seqlen_q + SEQUENCES - 1,
        max_seqlen_k=max(lengths),
        num_pages=num_pages,
    )
    sparse = frozenset(("c_kv", "k_rope", "block_table") if name == "address_table" else ("c_kv", "k_rope"))

    def build(generator: np.random.Generator) -> dict[str, Any]:
        shuffled = generator.permutation(np.array(pages))
        owned = [shuffled[sequence :: SEQUENCES - 1] for sequence in range(SEQUENCES - 1)] + [shuffled[:0]]
        inputs = _drawn(asked, generator, lengths, owned)
        columns = max(slots) + dead_slots
        table = np.full((SEQUENCES, columns + SPARE_SLOTS), -1, np.int32)[:, :columns]
        for row, ids in zip(table, owned, strict=True):
            row[: len(ids)] = ids
        spoil(Batch(asked, table, [*slots, 0], [each - 2 for each in pages if each - 2 not in pages and each > 1]))
        if "block_table" in sparse:
            used = {sequence: table[sequence, :count] for sequence, count in enumerate(slots)}
            return inputs | {"block_table": SparseArray(shape=(SEQUENCES, width), dtype=table.dtype, held=used)}
        return inputs | {"block_table": table}

    return Scenario(name=name, about=about, request=asked, build=build, sparse=sparse)


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


def _kill(batch: Batch) -> None:
    """Fill the slots behind each sequence's with ids outside the cache, of pages that do not exist, and of others'."""
    kinds = itertools.cycle((*batch.strange_ids(), batch.vacant[0], int(batch.table[0, 0])))
    for sequence, count in enumerate(batch.slots):
        for slot in range(count, batch.table.shape[1]):
            batch.table[sequence, slot] = next(kinds)


def _misname(batch: Batch) -> None:
    """Give every second slot in use an id outside the cache, of each kind in turn, and the third sequence no other."""
    kinds = itertools.cycle(batch.strange_ids())
    for sequence, count in enumerate(batch.slots):
        for slot in range(count) if sequence == 2 else range(sequence % 2, count, 2):
            batch.table[sequence, slot] = next(kinds)
