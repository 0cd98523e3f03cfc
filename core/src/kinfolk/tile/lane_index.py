"""From a table over lanes to code that computes it: proved for every lane at build time."""

from __future__ import annotations

import numpy as np

from kinfolk.ir.builder import op_in_role
from kinfolk.ir.ops import control, lanes
from kinfolk.ir.value import Value
from kinfolk.tile.layout import LayoutMismatch, Table


def lane_again() -> Value:
    """Return the lane's number for a late or rare use: what follows from it is computed here and takes no register
    before, nor does the number itself where the arch has an op for that.
    """
    op = op_in_role("lane_again")
    return control.opaque(lanes.lane_id()) if op is None else op()


def lane_index(table: Table, lane: Value | None = None) -> Value:
    """Return an i32 that equals `table[lane]`.

    The table must be a sum of weights of the lane's bits, as every layout of rows, columns and paddings is; runs of
    bits with doubling weights become one shift, mask and multiply. Raises `LayoutMismatch` for any other table.
    """
    runs = _runs(table)
    lane = lane if lane is not None else lanes.lane_id()
    total: Value | None = None
    for shift, width, weight in runs:
        part = lane >> shift if shift else lane
        if shift + width < len(table).bit_length() - 1:
            part = part & ((1 << width) - 1)
        part = part if weight == 1 else part * weight
        total = part if total is None else total + part
    if total is None:
        total = lane & 0
    return total if int(table[0]) == 0 else total + int(table[0])


def _runs(table: Table) -> list[tuple[int, int, int]]:
    """Return (lowest bit, number of bits, weight of the lowest) of each run of bits whose weights double."""
    bits = len(table).bit_length() - 1
    weights = [int(table[1 << bit] - table[0]) for bit in range(bits)]
    lanes_ = np.arange(len(table))
    summed = table[0] + sum(weight * ((lanes_ >> bit) & 1) for bit, weight in enumerate(weights))
    if not np.array_equal(summed, table):
        raise LayoutMismatch(f"a table over lanes is no sum of weights of the lane's bits: {table.tolist()}")
    runs: list[tuple[int, int, int]] = []
    for bit, weight in enumerate(weights):
        if not weight:
            continue
        if runs:
            shift, width, first = runs[-1]
            if shift + width == bit and weight == first << width:
                runs[-1] = (shift, width + 1, first)
                continue
        runs.append((bit, 1, weight))
    return runs
