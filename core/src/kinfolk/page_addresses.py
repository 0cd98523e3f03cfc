"""Caches of pages at the limits of addresses: gigabytes, of which only the pages that sequences own exist.

An address is page * elements of a page * bytes, past 2^31 and 2^32 in caches that models use. Pages are taken on both
sides of each place where that product, the same in elements, or the id itself outgrows a narrower integer. A family
says what its cache is (`CacheShape`), and draws queries and rows for the cases of `address_cases`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, Final

import attrs
import numpy as np
import numpy.typing as npt

from kinfolk.check import SparseArray

Array = npt.NDArray[Any]
Table = npt.NDArray[np.int32]

ID_EDGES: Final = (2**15, 2**16, 2**23, 2**24)
"""Where an id of 16 and of 24 bits (the narrow multiplier of many GPUs) turns its sign, and where it ends."""
GIB: Final = 2**30
LARGEST: Final = 768 * GIB
"""No cache of one layer is larger; where pages are, ids end below the last edge."""
SEQUENCES: Final = 5
"""Sequences of a case; the last one has no keys."""
SPARE_SLOTS: Final = 2
"""Columns between the rows of a table, which are no part of it."""
WIDEST: Final = 2**30
"""Columns of a table whose later rows begin past 2^31 and 2^32 elements."""
DEAD_SLOTS: Final = 7
"""Columns of a table past those that the longest sequence uses."""


@attrs.frozen(kw_only=True)
class CacheShape:
    """A cache of pages of `page_size` rows, which have so many `elements` in each of its tensors, of `element_bytes`
    each; the size of the first tensor is that of the cache. `offset_edges` are the offsets that outgrow something.
    """

    page_size: int
    elements: tuple[int, ...]
    element_bytes: int
    offset_edges: tuple[int, ...] = (2**31, 2**32)

    def pages_of(self, size: int) -> int:
        """Return how many pages a cache of `size` bytes has, and two pages more."""
        return size // (self.elements[0] * self.element_bytes) + 2

    def edge_pages(self, num_pages: int) -> tuple[int, ...]:
        """Return the pages of a cache before, at and after each edge of an id and of a product, and the last one.

        A page is at an edge where it is the first that begins at or past it.
        """
        units = {count * size for count in self.elements for size in (1, self.element_bytes)}
        edges = {*ID_EDGES, *(-(-edge // unit) for edge in self.offset_edges for unit in units)}
        near = {edge + step for edge in edges for step in (-1, 0, 1)}
        return tuple(sorted({page for page in near if 0 <= page < num_pages} | {num_pages - 1}))


@attrs.frozen(eq=False)
class Batch:
    """The table of a case, which spoilers change in place: `table` [sequences, slots] names a page that exists in each
    of the first `slots[s]` of row s. `vacant` are pages of the cache, of `num_pages`, that do not exist.
    """

    shape: CacheShape
    num_pages: int
    table: Table
    slots: Sequence[int]
    vacant: Sequence[int]

    def strange_ids(self) -> tuple[int, ...]:
        """Return ids outside the cache: on both sides of it, at both ends of an i32, and one that 32 bits bring back.

        The last is as many pages after one that exists as elements of the first tensor make 2^32.
        """
        wrapping = int(self.table[0, 0]) + 2**32 // self.shape.elements[0]
        known = (-1, self.num_pages, 2**31 - 1, -(2**31))
        return (*known, wrapping) if self.num_pages <= wrapping < 2**31 else known


def _nothing(batch: Batch) -> None:
    return None


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


@attrs.frozen(eq=False, kw_only=True)
class AddressCase:
    """A batch over a cache of `num_pages`: sequences share the pages at edges. `spoil` changes the table, which has
    `dead_slots` columns that none uses; a `wide` one has rows of 4 GiB, of which the slots in use exist.
    """

    name: str
    about: str
    shape: CacheShape
    num_pages: int
    spoil: Callable[[Batch], None] = _nothing
    dead_slots: int = 0
    wide: bool = False

    @property
    def pages(self) -> tuple[int, ...]:
        """The pages that exist."""
        return self.shape.edge_pages(self.num_pages)

    @property
    def slots(self) -> list[int]:
        """How many pages each sequence has."""
        return [*(len(self.pages[sequence :: SEQUENCES - 1]) for sequence in range(SEQUENCES - 1)), 0]

    @property
    def lengths(self) -> list[int]:
        """How many keys each sequence has: up to the end of a page, after one key of one and one short of one."""
        page = self.shape.page_size
        unused = (0, page - 1, min(1, page - 1), page // 2, 0)
        return [max(0, count * page - rest) for count, rest in zip(self.slots, unused, strict=True)]

    def owned(self, generator: np.random.Generator) -> list[Array]:
        """Draw which pages each sequence has, in the order of its keys."""
        shuffled = generator.permutation(np.array(self.pages))
        return [*(shuffled[sequence :: SEQUENCES - 1] for sequence in range(SEQUENCES - 1)), shuffled[:0]]

    def table(self, owned: Sequence[Array]) -> Table | SparseArray:
        """Return the page table [sequences, slots] of sequences that own these pages."""
        slots, pages = self.slots, self.pages
        columns = max(slots) + self.dead_slots
        table = np.full((SEQUENCES, columns + SPARE_SLOTS), -1, np.int32)[:, :columns]
        for row, ids in zip(table, owned, strict=True):
            row[: len(ids)] = ids
        vacant = [each - 2 for each in pages if each - 2 not in pages and each > 1]
        self.spoil(Batch(self.shape, self.num_pages, table, slots, vacant))
        if not self.wide:
            return table
        used = {sequence: table[sequence, :count] for sequence, count in enumerate(slots[:-1])}
        return SparseArray(shape=(SEQUENCES, WIDEST), dtype=table.dtype, held=used)


def address_cases(shape: CacheShape, cache: str, *, under_wide_table: int) -> tuple[AddressCase, ...]:
    """Return the cases of a cache, which is called `cache`; under the wide table it has so many bytes."""
    small, large = shape.pages_of(2 * GIB), shape.pages_of(5 * GIB)
    ids = min(max(ID_EDGES) + 1, shape.pages_of(LARGEST))
    reached = ", ".join(f"2^{edge.bit_length() - 1}" for edge in ID_EDGES if edge < ids)
    sides = f"pages on both sides of {', '.join(map(_named, shape.offset_edges))} bytes and as many elements"

    def case(name: str, about: str, num_pages: int, **more: Any) -> AddressCase:
        return AddressCase(name=f"address_{name}", about=about, shape=shape, num_pages=num_pages, **more)

    behind = "ids of all kinds past a sequence's pages"
    wide = "a table of rows of 4 GiB, whose slots past a sequence's pages do not exist"
    return (
        case("2gib", f"{cache} of 2 GiB, {sides}", small),
        case("5gib", f"{cache} of 5 GiB, {sides}", large),
        case("ids", f"page ids on both sides of {reached}", ids),
        case("dead_slots", behind, large, spoil=_kill, dead_slots=DEAD_SLOTS),
        case("bad_ids", "ids outside a large cache in slots in use", large, spoil=_misname),
        case("table", wide, shape.pages_of(under_wide_table), wide=True),
    )


def _named(edge: int) -> str:
    return f"2^{edge.bit_length() - 1}" if edge & (edge - 1) == 0 else f"{edge:#x}"
