"""The code for a table over lanes, evaluated on every lane, against the table."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kinfolk.ir.ops import lanes
from kinfolk.tile.lane_index import lane_index
from kinfolk.tile.layout import LayoutMismatch, per_lane

LANE = np.arange(64)
TABLES = {
    "lane": LANE,
    "row of A": LANE % 16,
    "k of A": 4 * (LANE // 16),
    "padded rows": (LANE % 16) * 584 + 8 * (LANE // 16),
    "constant": np.full(64, 12),
    "zero": np.zeros(64, np.int64),
    "offset": 100 + LANE // 2,
    "falling": 63 - LANE,
    "bits apart": (LANE & 1) * 7 + ((LANE >> 2) & 1) * 3 + (LANE >> 5) * 1000,
}


def indexed(evaluate, table, size=64):
    return evaluate(lambda: [lane_index(table)], wave_size=size)


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_the_code_equals_the_table(evaluate, table):
    assert indexed(evaluate, table).integers().tolist() == table.tolist()


def test_on_half_a_wave(evaluate):
    table = (np.arange(32) % 8) * 40 + np.arange(32) // 8
    assert indexed(evaluate, table, 32).integers().tolist() == table.tolist()


def test_real_maps_have_codes(evaluate, atoms):
    for atom in atoms.values():
        for table in (
            per_lane(atom.a.rows, "row of A"),
            atom.a.columns[:, 0],
            per_lane(atom.c.columns, "column of C"),
            atom.c.rows[:, 3],
        ):
            assert indexed(evaluate, table).integers().tolist() == table.tolist()


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(-300, 300), min_size=6, max_size=6), st.integers(-50, 50))
def test_any_sum_of_weights_has_a_code(evaluate, weights, base):
    table = base + sum(weight * ((LANE >> bit) & 1) for bit, weight in enumerate(weights))
    assert indexed(evaluate, table).integers().tolist() == table.tolist()


def test_a_run_of_doubling_weights_is_one_multiply(evaluate):
    def operations(table):
        kernel = indexed(evaluate, table).kernel
        return [op.name for op in kernel.walk()].count("core.mul")

    assert operations((LANE % 16) * 584) == 1
    assert operations((LANE % 16) * 584 + 8 * (LANE // 16)) == 2
    assert operations(LANE // 4) == 0


def test_a_lane_of_the_callers_is_used(evaluate):
    table = LANE * 3

    def body():
        return [lane_index(table, lanes.lane_id() ^ 1)]

    assert evaluate(body).integers().tolist() == table[LANE ^ 1].tolist()


@pytest.mark.parametrize(
    "table",
    [LANE * LANE, LANE % 3, np.where(LANE == 63, 0, LANE), LANE ^ (LANE >> 3)],
    ids=["square", "third", "last", "swizzle"],
)
def test_a_table_that_is_no_sum_is_refused(evaluate, table):
    with pytest.raises(LayoutMismatch, match="no sum of weights of the lane's bits"):
        indexed(evaluate, table)


def test_exclusive_or_with_a_constant_is_a_sum(evaluate):
    """A pair across that edge: it mirrors bits, and a weight may be negative."""
    assert indexed(evaluate, LANE ^ 5).integers().tolist() == (LANE ^ 5).tolist()
