"""Rows kept in pages: the page of a tile is looked up, checked, and becomes one bounded view per tensor."""

from __future__ import annotations

import attrs

from kinfolk.ir.builder import constant
from kinfolk.ir.ops import arithmetic, convert, lanes, memory
from kinfolk.ir.types import I32, I64
from kinfolk.ir.value import Value


@attrs.frozen(eq=False)
class PageTable:
    """The page ids of one sequence: a view of the slots in use, `tiles` of them, so that none past them is read."""

    view: Value
    tiles: Value
    page_size: int
    length: Value
    num_pages: Value

    @classmethod
    def of_sequence(
        cls, table: Value, stride: Value, sequence: Value, *, length: Value, page_size: int, num_pages: Value
    ) -> PageTable:
        """Return the table of `sequence` (i32): row `sequence` of `table`, whose rows lie `stride` elements apart.

        `length` is the sequence's number of rows, not negative, `num_pages` how many pages the cache has, both i32 and
        equal on all lanes.
        """
        row = convert.sext(sequence, to=I64) * convert.sext(stride, to=I64)
        tiles = (length + (page_size - 1)) // page_size
        return cls(memory.bound(memory.offset(table, row), tiles), tiles, page_size, length, num_pages)

    def lookup(self, tile: Value) -> Value:
        """Return the page id in slot `tile`, 0 past the last slot; not yet known to be equal on all lanes."""
        return memory.view_load(self.view, tile)

    def resolve(self, identifier: Value, tile: Value) -> Page:
        """Return the page that slot `tile` names; an id outside the cache gives a page without rows."""
        page = lanes.uniform(identifier)
        left = self.length - tile * self.page_size
        zero = constant(0, I32)
        inside = arithmetic.icmp(page, self.num_pages, predicate="ult")
        rows = arithmetic.smin(arithmetic.smax(left, zero), constant(self.page_size, I32))
        valid = lanes.uniform(arithmetic.select(inside, rows, zero))
        return Page(arithmetic.select(inside, page, zero), valid)


@attrs.frozen(eq=False)
class Page:
    """A page id inside the cache, and how many of its rows (i32) belong to the sequence: none for an id outside."""

    identifier: Value
    rows: Value

    def view(self, cache: Value, row_elements: int, page_size: int) -> Value:
        """Return the page's own rows of `cache` [pages, page_size, row_elements]: rows past the sequence read as 0."""
        first = convert.sext(self.identifier, to=I64) * (page_size * row_elements)
        return memory.bound(memory.offset(cache, first), self.rows * row_elements)
