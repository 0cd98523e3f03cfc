"""Page tables and pages: ids outside the cache, what is never read, where the rows lie."""

from __future__ import annotations

import numpy as np
import pytest

from kinfolk.ir.builder import constant
from kinfolk.ir.ops import memory
from kinfolk.ir.types import BF16, I32
from kinfolk.tile.paging import PageTable

PAGE, PAGES = 16, 10


def resolved(evaluate, global_memory, ids, length, tile, *, sequence=0, stride=None):
    """Return (identifier, rows) of one tile, with the table it was read from."""
    table = global_memory(I32, np.array(ids, np.int32).view(np.uint32))

    def body(pointer, row, step, rows, number, pages):
        pages_of = PageTable.of_sequence(pointer, step, row, length=rows, page_size=PAGE, num_pages=pages)
        page = pages_of.resolve(pages_of.lookup(number), number)
        return [page.identifier, page.rows]

    step = len(ids) if stride is None else stride
    result = evaluate(body, table, sequence, step, length, tile, PAGES)
    return tuple(int(result.integers(index)[0]) for index in range(2)), table


@pytest.mark.parametrize(
    ("length", "tile", "expected"),
    [
        (16, 0, (7, 16)),  # exactly one page
        (17, 0, (7, 16)),
        (17, 1, (3, 1)),  # one row of the second
        (15, 0, (7, 15)),
        (1, 0, (7, 1)),
        (32, 1, (3, 16)),
    ],
)
def test_a_page_has_the_rows_of_its_sequence(evaluate, global_memory, length, tile, expected):
    assert resolved(evaluate, global_memory, [7, 3], length, tile)[0] == expected


@pytest.mark.parametrize("identifier", [-1, PAGES, PAGES + 1, 2**31 - 1, -(2**31)])
def test_an_id_outside_the_cache_has_no_rows(evaluate, global_memory, identifier):
    assert resolved(evaluate, global_memory, [identifier], 16, 0)[0] == (0, 0)


@pytest.mark.parametrize("identifier", [0, PAGES - 1])
def test_the_first_and_last_ids_are_inside(evaluate, global_memory, identifier):
    assert resolved(evaluate, global_memory, [identifier], 16, 0)[0] == (identifier, 16)


@pytest.mark.parametrize(("length", "tile"), [(16, 1), (16, 2), (0, 0), (0, 3)])
def test_a_slot_past_the_sequence_is_not_read(evaluate, global_memory, length, tile):
    """The table is full of ids outside the cache; a tight table ends with the last slot in use."""
    found, table = resolved(evaluate, global_memory, [-1] * max(1, length // PAGE), length, tile)
    assert found == (0, 0)
    assert not table.reads


def test_a_sequence_reads_its_own_row(evaluate, global_memory):
    ids = [1, 2, 99, 3, 4, 99, 5, 6]  # rows of two slots, three apart
    for sequence, expected in enumerate([2, 4, 6]):
        (found, rows), table = resolved(evaluate, global_memory, ids, 20, 1, sequence=sequence, stride=3)
        assert (found, rows) == (expected, 4)
        assert set(table.reads) == {3 * sequence + 1}


def test_a_page_lets_its_own_rows_through(evaluate, global_memory, per_lane_input):
    """Rows past the sequence read as 0, and touch nothing, whatever the page holds there."""
    width = 4
    cache = global_memory(BF16, np.arange(PAGES * PAGE * width, dtype=np.uint16) + 1)
    table = global_memory(I32, np.array([9], np.uint32))

    def body(pages_of_cache, pointer, lane):
        zero = constant(0, I32)
        table_of = PageTable.of_sequence(
            pointer, zero, zero, length=constant(5, I32), page_size=PAGE, num_pages=constant(PAGES, I32)
        )
        view = table_of.resolve(table_of.lookup(zero), zero).view(pages_of_cache, width, PAGE)
        return [memory.view_load(view, lane)]

    lane = np.arange(64, dtype=np.int32)
    (found,) = evaluate(body, cache, table, per_lane_input(I32, lane)).values
    start = 9 * PAGE * width
    expected = np.where(lane < 5 * width, start + lane + 1, 0)
    assert np.array_equal(found[:, 0], expected)
    assert set(cache.reads) == set(range(start, start + 5 * width))
