"""Loops from one body: unrolled by two, and in runs with and without mask work; results of a plain Python loop."""

from __future__ import annotations

import pytest

from kinfolk.ir.builder import constant
from kinfolk.ir.ops import arithmetic, lanes
from kinfolk.ir.types import I32
from kinfolk.tile.runs import Run, edges_and_interior, walk
from kinfolk.tile.state import loop
from kinfolk.tile.unrolled import unrolled_loop

FIRST, LENGTH, TILE = 5, 43, 4
"""Keys from 5 on and below 43 count, in tiles of 4."""


def fold(index, state):
    """Nothing in it may be swapped with anything else."""
    a, b = state
    return (b, a * 3 + index)


def folded(lower, upper):
    state = (1, 2)
    for index in range(lower, upper):
        state = fold(index, state)
    return [value & 0xFFFFFFFF for value in state]


@pytest.mark.parametrize("lower", [-3, 0, 2])
@pytest.mark.parametrize("count", [-2, 0, 1, 2, 3, 6, 7])
@pytest.mark.parametrize("known", [True, False])
def test_two_rounds_at_a_time_are_as_many_as_one_at_a_time(evaluate, lower, count, known):
    def body(given):
        lower_, upper = (lower, lower + count) if known else (given - (9 - lower), given - (9 - lower - count))
        start = (constant(1, I32), constant(2, I32))
        return [*loop(lower_, upper, start, fold), *unrolled_loop(lower_, upper, start, fold)]

    found = [int(values[0, 0]) & 0xFFFFFFFF for values in evaluate(body, 9).values]
    assert found == folded(lower, lower + count) * 2


def masked_sum(tile, total, masked):
    """Add the keys of a tile, each lane those it has; only a masked tile asks which count."""
    key = tile * TILE + (lanes.lane_id() & (TILE - 1))
    if masked:
        inside = arithmetic.icmp(key, constant(FIRST, I32), predicate="sge") & (key < LENGTH)
        return total + arithmetic.select(inside, key, constant(0, I32))
    return total + key


TILES = -(-LENGTH // TILE)
INTERIOR = (-(-FIRST // TILE), LENGTH // TILE)
EVERY = {
    "all masked": lambda: [Run(begin=0, end=TILES, masked=True)],
    "edges": lambda: edges_and_interior(0, *INTERIOR, TILES),
    "single": lambda: [
        Run(begin=0, end=INTERIOR[0], masked=True),
        Run(begin=INTERIOR[0], end=INTERIOR[1], masked=False, unrolled=True),
        Run(begin=INTERIOR[1], end=TILES, masked=True, single=True),
    ],
}


def keys_of(lane):
    """The sum of a lane's keys that count."""
    return sum(key for key in range(lane % TILE, TILES * TILE, TILE) if FIRST <= key < LENGTH)


def selects(region):
    return sum(op.name == "core.select" for op in region.walk())


@pytest.mark.parametrize("name", EVERY)
def test_only_masked_rounds_have_mask_work_and_all_give_the_same(evaluate, name):
    found = evaluate(lambda: [walk(EVERY[name](), constant(0, I32), masked_sum)])
    assert found.integers().tolist() == [keys_of(lane) for lane in range(64)]
    bodies = [op for op in found.kernel.walk() if op.name in ("core.for", "core.if")]
    held = [sum(selects(region) for region in op.regions) for op in bodies]
    assert held == {"all masked": [1], "edges": [1, 0, 1], "single": [1, 0, 0, 1]}[name]


def test_a_masked_tile_taken_for_a_whole_one_is_wrong(evaluate):
    """Control: what the edges mask is not masked in the interior."""
    runs = lambda: edges_and_interior(0, INTERIOR[0] - 1, INTERIOR[1], TILES)  # noqa: E731
    wrong = evaluate(lambda: [walk(runs(), constant(0, I32), masked_sum)]).integers()
    assert wrong[0] != keys_of(0)


@pytest.mark.parametrize(
    "bounds", [(0, 2, 5, 8), (0, 0, 8, 8), (3, 9, 9, 8), (2, 6, 4, 9), (0, -1, 99, 4), (4, 1, 2, 3)]
)
def test_every_round_is_in_one_run(evaluate, bounds):
    """Also where there is no interior, or no round; in order, for nothing may be swapped in the sum."""
    begin, low, high, end = bounds

    def body(*given):
        def count(index, total, masked):
            return total * 3 + (index + 1) * (100 if masked else 1)

        bounds = [bound - 1 for bound in given]
        return [walk(edges_and_interior(*bounds), constant(0, I32), count)]

    expected = 0
    for index in range(begin, end):
        expected = expected * 3 + (index + 1) * (1 if low <= index < high else 100)
    assert evaluate(body, *(bound + 1 for bound in bounds)).integers()[0] == expected
