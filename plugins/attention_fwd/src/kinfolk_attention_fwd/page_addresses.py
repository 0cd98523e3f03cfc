"""Inputs at the limits of addresses: caches of gigabytes of which only the rows that a sequence owns exist.

An address is page * rows * heads * columns * bytes, past 2^31 and 2^32 in caches that models use. Pages are taken on
both sides of each place where that product, the same in elements, or the id itself outgrows a narrower integer.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import attrs
import numpy as np
import numpy.typing as npt

from kinfolk.check import Scenario, SparseArray, numpy_dtype

if TYPE_CHECKING:
    from kinfolk_attention_fwd.request import AttentionFwdRequest

Array = npt.NDArray[Any]
ID_EDGES: Final = (2**15, 2**16, 2**23, 2**24)
"""Where an id of 16 and of 24 bits (the narrow multiplier of many GPUs) turns its sign, and where it ends."""
OFFSET_EDGES: Final = (0x7FFF0000, 2**31, 2**32)
"""The first is the most that kernels elsewhere give one view of a cache."""
GIB: Final = 2**30
LARGEST: Final = 768 * GIB
"""No cache of one layer is larger; where pages are, ids end below the last edge."""
SEQUENCES: Final = 5
SPARE_SLOTS: Final = 2
WIDEST: Final = 2**30
"""Columns of a table whose later rows begin past 2^31 and 2^32 elements."""
DEAD_SLOTS: Final = 7

Spoil = Callable[["Batch"], None]


@attrs.frozen(eq=False)
class Batch:
    """The table of a scenario, which spoilers change in place: `table` [sequences, slots] names a page that exists in
    each of the first `slots[s]` of row s; the last sequence has none. `vacant` are pages that do not exist.
    """

    request: AttentionFwdRequest
    table: npt.NDArray[np.int32]
    slots: Sequence[int]
    vacant: Sequence[int]

    def strange_ids(self) -> tuple[int, ...]:
        """Return ids outside the cache: on both sides of it, at both ends of an i32, and one as many pages after one
        that exists as elements make 2^32.
        """
        wrapping = int(self.table[0, 0]) + 2**32 // _page_elements(self.request)
        known = (-1, self.request.num_pages, 2**31 - 1, -(2**31))
        return (*known, wrapping) if self.request.num_pages <= wrapping < 2**31 else known


def address_scenarios(request: AttentionFwdRequest) -> tuple[Scenario, ...]:
    """Return the scenarios of a request over pages that are about addresses; none where no sequence has a query."""
    if not request.max_seqlen_q:
        return ()
    small, large = _pages_of(request, 2 * GIB), _pages_of(request, 5 * GIB)
    ids = min(max(ID_EDGES) + 1, _pages_of(request, LARGEST))
    offsets = "on both sides of 0x7FFF0000 bytes, 2 GiB, 4 GiB and as many elements"
    return (
        _scenario(request, "address_2gib", f"keys of 2 GiB, pages {offsets}", small),
        _scenario(request, "address_5gib", f"keys of 5 GiB, pages {offsets}", large),
        _scenario(request, "address_ids", "page ids on both sides of 2^15, 2^16, 2^23 and 2^24", ids),
        _scenario(request, "address_dead_slots", "ids of all kinds past a sequence's pages", large, _kill, DEAD_SLOTS),
        _scenario(request, "address_bad_ids", "ids outside a large cache in slots in use", large, _misname),
        _scenario(
            request,
            "address_table",
            "a table of rows of 4 GiB, whose slots past a sequence's pages do not exist",
            small,
        ),
    )


def edge_pages(request: AttentionFwdRequest, num_pages: int) -> tuple[int, ...]:
    """Return the pages of a cache before, at and after each edge of an id and of a product, and the last one.

    A page is at an edge where it is the first that begins at or past it.
    """
    element = numpy_dtype(request.kv_dtype).itemsize
    rows = request.page_size * request.num_kv_heads
    units = {rows * width * size for width in (request.head_size, request.head_size_v) for size in (1, element)}
    edges = {*ID_EDGES, *(-(-edge // unit) for edge in OFFSET_EDGES for unit in units)}
    near = {edge + step for edge in edges for step in (-1, 0, 1)}
    return tuple(sorted({page for page in near if 0 <= page < num_pages} | {num_pages - 1}))


def _page_elements(request: AttentionFwdRequest) -> int:
    return request.page_size * request.num_kv_heads * request.head_size


def _pages_of(request: AttentionFwdRequest, key_bytes: int) -> int:
    """Return how many pages a cache has whose keys have that many bytes, and two pages more."""
    return key_bytes // (_page_elements(request) * numpy_dtype(request.kv_dtype).itemsize) + 2


def _nothing(batch: Batch) -> None:
    return None


def _scenario(
    request: AttentionFwdRequest, name: str, about: str, num_pages: int, spoil: Spoil = _nothing, dead_slots: int = 0
) -> Scenario:
    """Return a scenario of its own batch: lengths that end with a page, after one key of one and one short of one."""
    pages, page = edge_pages(request, num_pages), request.page_size
    slots = [len(pages[sequence :: SEQUENCES - 1]) for sequence in range(SEQUENCES - 1)]
    unused = (0, page - 1, min(1, page - 1), page // 2)
    lengths = [max(0, count * page - rest) for count, rest in zip(slots, unused, strict=True)] + [0]
    wide = name == "address_table"
    queries = [min(request.max_seqlen_q, 20), *[1] * (SEQUENCES - 1)]
    asked = attrs.evolve(
        request,
        num_seqs=SEQUENCES,
        total_q=sum(queries),
        max_seqlen_q=max(queries),
        max_seqlen_k=max(lengths),
        num_pages=num_pages,
    )

    def build(generator: np.random.Generator) -> dict[str, Any]:
        shuffled = generator.permutation(np.array(pages))
        owned = [shuffled[sequence :: SEQUENCES - 1] for sequence in range(SEQUENCES - 1)] + [shuffled[:0]]
        inputs = _drawn(asked, generator, queries, lengths, owned)
        columns = max(slots) + dead_slots
        table = np.full((SEQUENCES, columns + SPARE_SLOTS), -1, np.int32)[:, :columns]
        for row, ids in zip(table, owned, strict=True):
            row[: len(ids)] = ids
        spoil(Batch(asked, table, [*slots, 0], [each - 2 for each in pages if each - 2 not in pages and each > 1]))
        if wide:
            used = {sequence: table[sequence, :count] for sequence, count in enumerate(slots)}
            return inputs | {"block_table": SparseArray(shape=(SEQUENCES, WIDEST), dtype=table.dtype, held=used)}
        return inputs | {"block_table": table}

    sparse = frozenset(("k", "v", "block_table") if wide else ("k", "v"))
    return Scenario(name=name, about=about, request=asked, build=build, sparse=sparse)


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
