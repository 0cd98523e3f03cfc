"""Page tables and pages: ids outside the cache, what is never read, where the rows lie."""

from __future__ import annotations

import numpy as np
import pytest

from kinfolk.ir.builder import constant
from kinfolk.ir.ops import convert, memory
from kinfolk.ir.types import BF16, I32, I64
from kinfolk.tile.paging import PageTable, Parts

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


def part_of(evaluate, global_memory, ids, length, tile, *, shift, first=0):
    """Return (number, rows, whether it opens its page) of a tile in pages of 2^shift tiles, and the table."""
    table = global_memory(I32, np.array(ids, np.int32).view(np.uint32))

    def body(pointer, rows, number, pages, power, begin):
        zero = constant(0, I32)
        parts = Parts(power, begin)
        pages_of = PageTable.of_sequence(pointer, zero, zero, length=rows, page_size=PAGE, num_pages=pages, parts=parts)
        page = pages_of.resolve(pages_of.lookup(number), number)
        return [convert.trunc(page.identifier, to=I32), page.rows, convert.zext(pages_of.opens(number), to=I32)]

    result = evaluate(body, table, length, tile, PAGES, shift, first)
    return tuple(int(result.integers(index)[0]) for index in range(3)), table


@pytest.mark.parametrize("shift", [0, 1, 2, 3])
@pytest.mark.parametrize("first", [0, 1, 5])
def test_a_part_of_a_page_is_a_small_page_of_the_same_memory(evaluate, global_memory, shift, first):
    """Told by division: tile t of a sequence is part (first + t) mod n of the page in slot (first + t) div n."""
    ids, parts, length = [7, 3, 9, 2, 8, 1, 5, 6, 4, 0], 2**shift, 70
    for tile in range(5):
        slot, place = divmod(first + tile, parts)
        (number, rows, opens), table = part_of(evaluate, global_memory, ids, length, tile, shift=shift, first=first)
        assert (number, rows) == (ids[slot] * parts + place, min(PAGE, length - tile * PAGE))
        assert opens == (place == 0) and set(table.reads) == {slot}


@pytest.mark.parametrize(("length", "last"), [(1, 0), (64, 0), (65, 1), (128, 1), (129, 2)])
def test_no_slot_past_the_last_part_is_read(evaluate, global_memory, length, last):
    """A tight table of ids outside the cache: of its slots, those in use are looked up and no other."""
    slots = last + 1
    for slot, read in ((last, True), (slots, False)):
        found, table = part_of(evaluate, global_memory, [-1] * slots, length, slot * 4, shift=2)
        assert found[:2] == (0, 0) and bool(table.reads) is read


def test_a_sequence_without_rows_reads_no_slot(evaluate, global_memory):
    for first in (0, 3):
        found, table = part_of(evaluate, global_memory, [5], 0, 0, shift=2, first=first)
        assert found[1] == 0 and not table.reads


@pytest.mark.parametrize(("page", "rows"), [(0, PAGE), (PAGES - 1, PAGE), (PAGES, 0), (-1, 0), (2**31 - 1, 0)])
def test_a_page_in_the_cache_is_held_whole_whatever_the_sequence_has_of_it(evaluate, page, rows):
    def body(number, pages):
        zero = constant(0, I32)
        return [PageTable(zero, zero, PAGE, zero, pages).rows_held(number)]

    assert int(evaluate(body, page, PAGES).integers(0)[0]) == rows


def test_the_last_part_of_the_largest_page_id_is_numbered_past_32_bits(evaluate, global_memory):
    """Three tiles of eight in a page whose id takes 31 bits: the number is compared whole, in two halves."""
    table = global_memory(I32, np.array([2**31 - 2], np.uint32))

    def body(pointer, pages):
        zero = constant(0, I32)
        parts = Parts(constant(3, I32), zero)
        pages_of = PageTable.of_sequence(
            pointer, zero, zero, length=constant(128, I32), page_size=PAGE, num_pages=pages, parts=parts
        )
        tile = constant(7, I32)
        number = pages_of.resolve(pages_of.lookup(tile), tile).identifier
        return [convert.trunc(number, to=I32), convert.trunc(number >> constant(32, I64), to=I32)]

    result = evaluate(body, table, 2**31 - 1)
    low, high = (int(result.integers(index)[0]) & 0xFFFFFFFF for index in range(2))
    assert high << 32 | low == (2**31 - 2) * 8 + 7
