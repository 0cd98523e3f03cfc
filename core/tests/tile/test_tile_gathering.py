"""Rows carried to workgroup memory from wherever they lie: every element once, where it belongs, widened exactly."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from kinfolk.errors import IRError
from kinfolk.ir.ops import lanes, memory
from kinfolk.ir.types import BF16, F8E4M3FN, I16
from kinfolk.tile.gathering import Gathering
from kinfolk.tile.workgroup_tile import WorkgroupTile

# rows, first column, columns, padding, waves, lanes of a wave
SHAPES = {
    "latent": (16, 0, 512, 8, 4, 64),
    "rope": (16, 512, 64, 8, 4, 64),
    "a thread has a row": (64, 8, 16, 0, 1, 64),
    "narrow waves": (16, 64, 32, 4, 2, 32),
}
APART = 5
"""Row r of a tile is row (r * APART) mod rows of the source, so that no two neighbours are neighbours there."""


def gathered(evaluate, source, element, shape, there=True):
    """Carry the rows, or those that are not there, and return the tile [rows, pitch] with the memory it lies in."""
    rows, first, columns, padding, waves, size = shape

    def body(pointer):
        tile = WorkgroupTile.allocate(element, rows, first + columns, padding)
        gathering = Gathering.of(
            tile, rows=rows, first_column=first, columns=columns, threads=waves * size, max_width=8
        )
        thread = lanes.thread_id()
        row = memory.offset(pointer, thread // gathering.sharing * APART % rows * columns)
        loaded = gathering.load(row, gathering.source(thread)) if there else gathering.nothing(source.element)
        gathering.store(gathering.target(thread), loaded)
        return []

    result = evaluate(body, source, wave_size=size, waves=waves)
    (held,) = result.workgroup
    return held.data.reshape(rows, first + columns + padding), held, result


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_every_element_is_carried_once_from_its_row_to_its_place(evaluate, global_memory, shape):
    rows, first, columns, padding, _, _ = shape
    data = np.arange(rows * columns, dtype=np.uint16) + 1
    source = global_memory(I16, data, "read")
    tile, held, _ = gathered(evaluate, source, I16, shape)
    order = np.arange(rows) * APART % rows
    assert not np.array_equal(order, np.arange(rows)), "rows lie elsewhere in the source"
    assert np.array_equal(tile[:, first : first + columns], data.reshape(rows, columns)[order])
    assert len(source.reads) == rows * columns and set(source.reads.values()) == {1}
    pitch = first + columns + padding
    assert set(held.writes) == {row * pitch + column for row in range(rows) for column in range(first, first + columns)}
    assert set(held.writes.values()) == {1}


@pytest.mark.parametrize("element", [I16, BF16])
def test_of_rows_that_are_not_there_zeros_are_written_and_nothing_is_read(evaluate, global_memory, element):
    rows, first, columns, *_ = shape = SHAPES["latent"]
    source = global_memory(element, np.ones(rows * columns, np.uint16), "read")
    tile, _, _ = gathered(evaluate, source, element, shape, there=False)
    assert not tile[:, first : first + columns].any() and not source.reads


def test_shorter_floats_are_widened_to_the_tile_and_loaded_as_they_are(evaluate, global_memory):
    rows, first, columns, *_ = shape = SHAPES["latent"]
    codes = np.resize([code for code in range(256) if code & 0x7F != 0x7F], rows * columns).astype(np.uint8)
    source = global_memory(F8E4M3FN, codes, "read")
    tile, _, result = gathered(evaluate, source, BF16, shape)
    wide = codes.view(ml_dtypes.float8_e4m3fn).astype(ml_dtypes.bfloat16).view(np.uint16).reshape(rows, columns)
    assert np.array_equal(tile[:, first : first + columns], wide[np.arange(rows) * APART % rows])
    loads = [op for op in result.kernel.walk() if op.name == "core.load"]
    assert {str(op.results[0].type) for op in loads} == {"vector<8xf8E4M3FN>"}


@pytest.mark.parametrize(
    ("rows", "columns", "threads"), [(3, 48, 64), (128, 64, 64), (16, 50, 64)], ids=["rest", "more rows", "columns"]
)
def test_rows_that_do_not_spread_are_refused(evaluate, rows, columns, threads):
    def body():
        tile = WorkgroupTile.allocate(I16, rows, columns, 0)
        Gathering.of(tile, rows=rows, first_column=0, columns=columns, threads=threads, max_width=8)
        return []

    with pytest.raises(IRError, match=f"{rows} rows of {columns} elements do not spread evenly over {threads} threads"):
        evaluate(body, wave_size=64)


def test_vectors_that_are_exchanged_are_seen(evaluate, global_memory, monkeypatch):
    """Negative control: each thread writes where its neighbour should."""
    rows, first, columns, *_ = shape = SHAPES["latent"]
    data = np.arange(rows * columns, dtype=np.uint16) + 1
    whole = Gathering.target
    monkeypatch.setattr(Gathering, "target", lambda self, thread: whole(self, thread ^ 1))
    tile, _, _ = gathered(evaluate, global_memory(I16, data, "read"), I16, shape)
    placed = data.reshape(rows, columns)[np.arange(rows) * APART % rows]
    assert not np.array_equal(tile[:, first : first + columns], placed)
    assert np.array_equal(np.sort(tile[:, first : first + columns], axis=None), data)
