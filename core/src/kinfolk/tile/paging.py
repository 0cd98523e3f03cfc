"""Rows kept in pages: the page of a tile is looked up, checked, and becomes one bounded view per tensor.

A page of several tiles is the memory of as many small ones in a row: part j of page i is small page i * parts + j.
"""

from __future__ import annotations

import attrs

from kinfolk.ir.builder import constant
from kinfolk.ir.ops import arithmetic, convert, lanes, memory
from kinfolk.ir.types import I1, I32, I64
from kinfolk.ir.value import Value


@attrs.frozen(eq=False)
class Parts:
    """That a tile is a part of a page: a page has 2^`shift` of them (i32), and tile 0 is part `first` of the sequence's
    pages, counted from its first page on (i32), where it is not the first one. Both are equal on all lanes.
    """

    shift: Value
    first: Value | None = None

    def slot(self, tile: Value) -> Value:
        """Return the slot of the page that a tile is a part of."""
        return arithmetic.lshr(self._number(tile), self.shift)

    def slots(self, tiles: Value) -> Value:
        """Return how many slots there are up to the last of so many tiles; none without tiles."""
        end = arithmetic.lshr(self._number(tiles) + self._mask, self.shift)
        return end if self.first is None else arithmetic.select(tiles > 0, end, constant(0, I32))

    def place(self, tile: Value) -> Value:
        """Return which part of its page a tile is."""
        return self._number(tile) & self._mask

    def number(self, page: Value, tile: Value) -> Value:
        """Return the number (i64) of a tile among those of all pages, for the id of its page."""
        return (convert.sext(page, to=I64) << convert.sext(self.shift, to=I64)) | convert.sext(self.place(tile), to=I64)

    def _number(self, tile: Value) -> Value:
        """Return which part of the sequence's pages a tile is."""
        return tile if self.first is None else self.first + tile

    @property
    def _mask(self) -> Value:
        return (constant(1, I32) << self.shift) - 1


@attrs.frozen(eq=False)
class PageTable:
    """The page ids of one sequence: a view of the slots in use, so that none past them is read.

    `tiles` tiles of `page_size` rows are walked: pages, or `parts` of larger ones.
    """

    view: Value
    tiles: Value
    page_size: int
    length: Value
    num_pages: Value
    parts: Parts | None = None

    @classmethod
    def of_sequence(
        cls,
        table: Value,
        stride: Value,
        sequence: Value,
        *,
        length: Value,
        page_size: int,
        num_pages: Value,
        parts: Parts | None = None,
    ) -> PageTable:
        """Return the table of `sequence` (i32): row `sequence` of `table`, whose rows lie `stride` elements apart.

        `length` is the sequence's number of rows, not negative, `num_pages` how many pages the cache has, both i32 and
        equal on all lanes.
        """
        row = convert.sext(sequence, to=I64) * convert.sext(stride, to=I64)
        tiles = (length + (page_size - 1)) // page_size
        slots = tiles if parts is None else parts.slots(tiles)
        return cls(memory.bound(memory.offset(table, row), slots), tiles, page_size, length, num_pages, parts)

    def lookup(self, tile: Value) -> Value:
        """Return the page id for a tile, 0 past the last slot; not yet known to be equal on all lanes."""
        return memory.view_load(self.view, tile if self.parts is None else self.parts.slot(tile))

    def has(self, identifier: Value) -> Value:
        """Whether a page id lies inside the cache; each lane may ask for its own."""
        return arithmetic.icmp(identifier, self.num_pages, predicate="ult")

    def resolve(self, identifier: Value, tile: Value) -> Page:
        """Return the page, or the part of it, that a tile lies in; an id outside the cache gives one without rows."""
        page = lanes.uniform(identifier)
        left = self.length - tile * self.page_size
        zero = constant(0, I32)
        inside = self.has(page)
        rows = arithmetic.smin(arithmetic.smax(left, zero), constant(self.page_size, I32))
        valid = lanes.uniform(arithmetic.select(inside, rows, zero))
        known = arithmetic.select(inside, page, zero)
        if self.parts is not None:
            known = self.parts.number(known, tile)
        return Page(known, valid)

    def rows_held(self, identifier: Value) -> Value:
        """Return how many rows the cache has of a page or a part of it: all, or for an id outside of it none. They need
        not all be the sequence's.
        """
        page = lanes.uniform(identifier)
        inside = self.has(page)
        return arithmetic.select(inside, constant(self.page_size, I32), constant(0, I32))

    def row(self, identifier: Value, key: Value) -> Row:
        """Return the row that a key is, of pages of one row or parts of such; each lane may ask for its own."""
        inside = self.has(identifier)
        known = arithmetic.select(inside, identifier, constant(0, I32))
        number = convert.sext(known, to=I64) if self.parts is None else self.parts.number(known, key)
        return Row(number, inside & (key < self.length))

    def opens(self, tile: Value) -> Value:
        """Whether a tile is where its page begins, so that what is said of pages is said once."""
        return self.parts.place(tile).eq(0) if self.parts is not None else constant(1, I1)


@attrs.frozen(eq=False)
class Row:
    """The number of a row (i64) among those of all pages, and whether it is there: the sequence has it, and its page's
    id lies inside the cache.
    """

    number: Value
    exists: Value

    def pointer(self, cache: Value, row_elements: int) -> Value:
        """Return where the row begins in `cache` [pages, page_size, row_elements]; to be read where it exists."""
        return memory.offset(cache, self.number * row_elements)


@attrs.frozen(eq=False)
class Page:
    """A page id inside the cache (i32), or the number of a part of a page among all parts (i64), and how many of its
    rows (i32) belong to the sequence: none for an id outside.
    """

    identifier: Value
    rows: Value

    def view(self, cache: Value, row_elements: int, page_size: int) -> Value:
        """Return the page's own rows of `cache` [pages, page_size, row_elements]: rows past the sequence read as 0."""
        identifier = self.identifier if self.identifier.type == I64 else convert.sext(self.identifier, to=I64)
        first = identifier * (page_size * row_elements)
        return memory.bound(memory.offset(cache, first), self.rows * row_elements)

    def divided(self, count: int, page_size: int) -> list[Page]:
        """Return the page of `page_size` rows as `count` smaller ones, each with its share of the rows."""
        if count == 1:
            return [self]
        identifier = self.identifier if self.identifier.type == I64 else convert.sext(self.identifier, to=I64)
        first, rows = identifier * count, page_size // count
        return [Page(first + part, bounded(self.rows - part * rows, rows)) for part in range(count)]


def bounded(number: Value, most: int) -> Value:
    """Return an i32 from 0 to `most`."""
    return arithmetic.smin(arithmetic.smax(number, constant(0, I32)), constant(most, I32))
