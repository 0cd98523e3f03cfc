"""Rows carried to workgroup memory, tiles read transposed: every element once, where it belongs, aligned."""

from __future__ import annotations

import numpy as np
import pytest

from kinfolk.errors import IRError
from kinfolk.ir.builder import constant
from kinfolk.ir.ops import convert, lanes, memory
from kinfolk.ir.types import BF16, F32, I16, I32
from kinfolk.tile.staging import Staging
from kinfolk.tile.transposed import TransposedOperand
from kinfolk.tile.workgroup_tile import WorkgroupTile

# rows, first column, columns, padding, waves, lanes of a wave
SHAPES = {
    "latent": (16, 0, 512, 8, 4, 64),
    "rope": (16, 512, 64, 8, 4, 64),
    "one wave": (8, 0, 64, 0, 1, 64),
    "narrow": (16, 64, 32, 4, 2, 32),
    "short rows": (32, 0, 8, 8, 1, 32),
    "a wave has half a row": (16, 0, 512, 8, 4, 32),
    "one row": (1, 0, 512, 0, 1, 32),
    "two waves share a row": (1, 0, 1024, 0, 2, 32),
    "a wave has a quarter of a row": (8, 0, 1024, 8, 2, 32),
}


def staged(evaluate, global_memory, shape):
    rows, first, columns, padding, waves, size = shape
    data = np.arange(rows * columns, dtype=np.uint16) + 1
    source = global_memory(I16, data)

    def body(pointer):
        tile = WorkgroupTile.allocate(I16, rows, first + columns, padding)
        staging = Staging.of(
            tile, rows=rows, first_column=first, columns=columns, threads=waves * size, wave_size=size, max_width=8
        )
        view = memory.bound(pointer, constant(rows * columns, I32))
        start = staging.source(lanes.wave_id(), lanes.lane_id())
        staging.store(staging.target(start), staging.load(view, start))
        return []

    result = evaluate(body, source, wave_size=size, waves=waves)
    return data.reshape(rows, columns), source, result


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_every_element_is_carried_once_to_its_place(evaluate, global_memory, shape):
    rows, first, columns, padding, _, _ = shape
    data, source, result = staged(evaluate, global_memory, shape)
    assert set(source.reads.values()) == {1}
    assert len(source.reads) == rows * columns
    (held,) = result.workgroup
    pitch = first + columns + padding
    tile = held.data.reshape(rows, pitch)
    assert np.array_equal(tile[:, first : first + columns], data)
    assert set(held.writes.values()) == {1}
    wanted = {row * pitch + column for row in range(rows) for column in range(first, first + columns)}
    assert set(held.writes) == wanted


def accesses(kernel, name):
    return [op for op in kernel.walk() if op.name == name]


def test_the_widest_vectors_are_taken(evaluate, global_memory):
    _, _, result = staged(evaluate, global_memory, SHAPES["latent"])
    assert [op.attributes["count"] for op in accesses(result.kernel, "core.view_load")] == [8] * 4
    _, _, result = staged(evaluate, global_memory, SHAPES["rope"])
    assert [op.attributes["count"] for op in accesses(result.kernel, "core.view_load")] == [4]


@pytest.mark.parametrize(
    ("rows", "columns", "threads", "wave", "because"),
    [
        (3, 50, 64, 64, "3 rows of 50 elements do not spread evenly over 64 threads"),
        (8, 96, 32, 32, "a wave's 32 vectors of 8 are no whole number of rows of 96, nor are its 3 times as many"),
        (3, 512, 64, 32, "a wave's 32 vectors of 8 are no whole number of rows of 512, nor are its 3 times as many"),
    ],
)
def test_rows_that_do_not_spread_are_refused(evaluate, rows, columns, threads, wave, because):
    def body():
        tile = WorkgroupTile.allocate(I16, rows, columns, 0)
        Staging.of(tile, rows=rows, first_column=0, columns=columns, threads=threads, wave_size=wave, max_width=8)
        return []

    with pytest.raises(IRError, match=because):
        evaluate(body, wave_size=wave)


def test_rows_start_a_pitch_apart(evaluate):
    def body():
        tile = WorkgroupTile.allocate(BF16, 4, 24, 8)
        assert (tile.pitch, tile.buffer.type.count) == (32, 128)
        return []

    evaluate(body)


@pytest.mark.parametrize(
    ("element", "pitch", "count", "column", "alignment"),
    [
        (BF16, 64, 8, 0, 16),
        (BF16, 64, 8, 32, 16),
        (BF16, 64, 8, 4, 8),  # the column keeps less than the vector
        (BF16, 68, 8, 0, 8),  # the pitch does
        (BF16, 66, 8, 0, 4),
        (BF16, 64, 2, 0, 4),
        (BF16, 64, 1, 3, 2),
        (F32, 8, 3, 0, 4),  # three elements keep one's
        (F32, 8, 4, 0, 16),
    ],
)
def test_an_access_claims_the_alignment_it_has(evaluate, per_lane_input, element, pitch, count, column, alignment):
    """Oracle: the largest power of two, up to 16, that divides the byte address of every row's access."""
    starts = [(row * pitch + column + index * count) * element.bytes for row in range(8) for index in range(8)]
    most = max(power for power in (1, 2, 4, 8, 16) if all(start % power == 0 for start in starts))
    assert most == alignment

    def body(value):
        tile = WorkgroupTile.allocate(element, 64, pitch, 0)
        index = lanes.lane_id() * count
        tile.store(index, value, count, row=1, column=column)
        tile.load(index, count, row=1, column=column)
        return []

    shape = (32,) if count == 1 else (32, count)
    kernel = evaluate(body, per_lane_input(element, np.zeros(shape, np.float32)), wave_size=32).kernel
    for name in ("core.workgroup_store", "core.workgroup_load"):
        (access,) = accesses(kernel, name)
        assert access.attributes["alignment"] == alignment
        assert access.attributes["offset"] == pitch + column


def test_a_transposed_tile_is_operand_a(evaluate, atoms):
    """Fragment j holds, as A[m, k], column width * m + j of the window in row k of the tile."""
    atom = atoms["16x16x16"]
    rows, columns, padding = 16, 128, 8
    data = np.arange(rows * columns).reshape(rows, columns)
    windows = columns // 64

    def body():
        tile = WorkgroupTile.allocate(BF16, rows, columns, padding)
        filled(tile)
        operand = TransposedOperand.of(tile, atom)
        assert (operand.window, operand.width) == (64, 4)
        address = operand.address()
        return [value for window in range(windows) for value in operand.fragments(operand.read(address, window))]

    fragments = evaluate(body).values
    assert len(fragments) == 4 * windows
    for number, fragment in enumerate(fragments):
        window, j = divmod(number, 4)
        column = 64 * window + 4 * atom.a.rows + j
        assert np.array_equal(fragment, data[atom.a.columns, column])


def filled(tile):
    """Let each element of the tile be its index row by row without padding."""
    lane = lanes.lane_id()
    for row in range(tile.rows):
        for start in range(0, tile.columns, 64):
            value = convert.bitcast(convert.trunc(lane + (row * tile.columns + start), to=I16), to=BF16)
            tile.store(lane, value, 1, row=row, column=start)


def test_the_product_of_a_transposed_tile_lies_in_columns(evaluate, atoms):
    atom = atoms["16x16x16"]

    def body():
        operand = TransposedOperand.of(WorkgroupTile.allocate(BF16, 16, 64, 0), atom)
        first, order = operand.columns_of_result()
        for place, fragment, slot in order:
            # A product's row m, of fragment j, is column width * m + j of the window.
            assert np.array_equal(first + place, operand.width * atom.c.rows[:, slot] + fragment)
        assert [place for place, _, _ in order] == list(range(16))
        assert sorted(each[1:] for each in order) == [(fragment, slot) for fragment in range(4) for slot in range(4)]
        return []

    evaluate(body)


def test_a_product_with_gaps_between_rows_keeps_them_as_places(evaluate, atoms):
    """The rows of a 32 by 32 product come in groups of four; each lane's columns are as far apart as any other's."""
    atom = atoms["32x32x8"]

    def body():
        operand = TransposedOperand.of(WorkgroupTile.allocate(BF16, 8, 128, 0), atom)
        first, order = operand.columns_of_result()
        for place, fragment, slot in order:
            assert np.array_equal(first + place, operand.width * atom.c.rows[:, slot] + fragment)
        assert len({place for place, _, _ in order}) == len(order) == 64
        assert {place for place, _, _ in order} != set(range(64))
        return []

    evaluate(body)
