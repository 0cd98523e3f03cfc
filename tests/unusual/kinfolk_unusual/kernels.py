"""The three kernels, for waves of any width."""

from __future__ import annotations

import math
from typing import Any

from kinfolk.ir import Kernel, build_kernel
from kinfolk.ir.builder import constant
from kinfolk.ir.ops import arithmetic, control, convert, lanes, memory
from kinfolk.ir.types import F32, I32, I64
from kinfolk.tile.reduction import across_lanes
from kinfolk_unusual.records import MOST, HalfSpec, JoinSpec, RowSpec


def emitted(spec: Any, arch: Any) -> Kernel | None:
    """Return the kernel of a spec, None for another family's."""
    bodies: dict[type, Any] = {RowSpec: _row, HalfSpec: _half, JoinSpec: _join}
    if type(spec) not in bodies:
        return None

    def body(*values: Any) -> None:
        bodies[type(spec)](arch.wave_size, *values)

    return build_kernel(spec.symbol(), spec.parameters(), arch=arch, block=arch.wave_size, body=body)


def _counted(wave: int, start: Any, columns: Any) -> tuple[Any, Any]:
    """Return how many of `columns` elements from `start` on are positive, and the largest, on all lanes."""
    view = memory.bound(start, columns)

    def step(first: Any, carried: Any) -> tuple[Any, Any]:
        count, largest = carried
        column = first + lanes.lane_id()
        held = arithmetic.select(column < columns, memory.view_load(view, column), constant(-math.inf, F32))
        positive = arithmetic.select(held > 0.0, constant(1, I32), constant(0, I32))
        return count + positive, arithmetic.fmax(largest, held)

    begin = (constant(0, I32), constant(-math.inf, F32))
    count, largest = control.for_range(0, columns, wave, begin, step)
    masks = [1 << bit for bit in range(wave.bit_length() - 1)]
    return across_lanes(count, masks, arithmetic.add), across_lanes(largest, masks, arithmetic.fmax)


def _place(columns: Any) -> tuple[Any, Any]:
    row = lanes.block_id(axis=0, below=MOST)
    return row, convert.sext(row, to=I64) * convert.sext(columns, to=I64)


def _once(*stores: tuple[Any, Any, Any]) -> None:
    def store() -> tuple[()]:
        for pointer, at, value in stores:
            memory.store(memory.offset(pointer, at), value)
        return ()

    control.if_else(lanes.lane_id() < 1, store)


def _row(wave: int, x: Any, above: Any, largest: Any, columns: Any) -> None:
    row, place = _place(columns)
    count, most = _counted(wave, memory.offset(x, place), columns)
    _once((above, row, convert.sext(count, to=I64)), (largest, row, most))


def _half(wave: int, x: Any, counts: Any, maxima: Any, columns: Any, width: Any) -> None:
    row, place = _place(columns)
    half = lanes.block_id(axis=1, below=2)
    first = half * width
    own = arithmetic.smin(arithmetic.smax(columns - first, constant(0, I32)), width)
    count, most = _counted(wave, memory.offset(x, place + convert.sext(first, to=I64)), own)
    _once((counts, row * 2 + half, count), (maxima, row * 2 + half, most))


def _join(wave: int, counts: Any, maxima: Any, above: Any, largest: Any, rows: Any) -> None:
    row = lanes.block_id(axis=0, below=MOST // 32) * wave + lanes.lane_id()

    def store() -> tuple[()]:
        pair, two = (memory.load(memory.offset(each, row * 2), count=1) for each in (counts, maxima))
        other, higher = (memory.load(memory.offset(each, row * 2 + 1), count=1) for each in (counts, maxima))
        memory.store(memory.offset(above, row), convert.sext(pair, to=I64) + convert.sext(other, to=I64))
        memory.store(memory.offset(largest, row), arithmetic.fmax(two, higher))
        return ()

    control.if_else(row < rows, store)
