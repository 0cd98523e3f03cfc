"""The step of a matrix op, made from its lane maps: products summed in ascending k, starting from C."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from kinfolk.check.element import numpy_dtype
from kinfolk.errors import InternalError
from kinfolk.ir.meaning import Matrix, OperandMap
from kinfolk.ir.numpy_lanes import Array
from kinfolk.ir.types import F32, I8, I32, ScalarType
from kinfolk_runtime.simulator.wave import Wave

if TYPE_CHECKING:
    from kinfolk.ir.value import Operation

Index = npt.NDArray[np.int64]


def wrong_types(meaning: Matrix) -> str:
    """Return what is wrong with the element types, "" where a product is declared for them."""
    a, b, c = meaning.a_type, meaning.b_type, meaning.c_type
    if (a, b, c) == (I8, I8, I32) or (c == F32 and all(t.kind == "float" and t.bits <= 32 for t in (a, b))):
        return ""
    return f"multiplies {a} by {b} into {c}; floats of at most 32 bits into f32 are declared, and i8 into i32"


def widened(bits: Array, type_: ScalarType) -> Array:
    """Return the storage bits of a float as f32, exactly, and those of an i8, which is signed, as 32 bits."""
    if type_ == I8:
        return bits.view(np.int8).astype(np.int32).view(np.uint32)
    if type_.name == "f32":
        return bits
    if type_.name == "bf16":
        return np.left_shift(bits, 16, dtype=np.uint32).view(np.float32)
    return bits.view(numpy_dtype(type_.name)).astype(np.float32)


class Product:
    """The gathers of one matrix shape for a wave size.

    The rows and columns of the product are put in the order in which C's values lie in the lanes, where such an order
    exists: then C and D need no gather at all.
    """

    def __init__(self, op: str, meaning: Matrix, size: int) -> None:
        if wrong := wrong_types(meaning):
            raise InternalError(f"{op} {wrong}")
        self.meaning = meaning
        m, n, k = meaning.m, meaning.n, meaning.k
        rows, columns = _in_value_order(op, meaning.c, size)
        by_row, by_column = rows.reshape(-1), columns.reshape(-1)
        regular = by_row.size == m * n and by_row.size % n == 0
        if regular:
            grid_rows, grid_columns = by_row.reshape(m, n), by_column.reshape(m, n)
            regular = bool((grid_rows == grid_rows[:, :1]).all() and (grid_columns == grid_columns[:1]).all())
        if regular:
            row_order, column_order = by_row.reshape(m, n)[:, 0], by_column.reshape(m, n)[0]
        else:
            row_order, column_order = np.arange(m), np.arange(n)
        a = _positions(op, "A", meaning.a, size, m, k)[row_order].T
        b = _positions(op, "B", meaning.b, size, k, n)[:, column_order]
        self.a: Index = np.ascontiguousarray(a)
        self.b: Index = np.ascontiguousarray(b)
        self.lanes = size
        self.c_of_matrix = None if regular else _positions(op, "C", meaning.c, size, m, n)
        self.matrix_of_c = None if regular else rows * n + columns

    def sum(self, a: Array, b: Array, c: Array) -> Array:
        """Return C + A B; `a` is [k, m] and `b` [k, n] as `widened` gives them, `c` [slots, lanes]. Each step rounds
        once to f32, or wraps.

        The product of two bf16 or f16 is exact in f32 (unless it underflows), so a fused step would give the same.
        numpy adds along a leading axis one row after the other, which is the ascending order that is wanted.
        """
        k, m = a.shape
        terms = np.empty((k + 1, m, b.shape[1]), a.dtype)
        if self.c_of_matrix is None:
            terms[0].reshape(c.shape if c.shape[1] != 1 else (c.shape[0], -1))[...] = c
        else:
            terms[0] = (c if c.shape[1] != 1 else c.repeat(self.lanes, axis=1)).take(self.c_of_matrix)
        np.multiply(a[:, :, None], b[:, None, :], out=terms[1:])
        d = np.add.reduce(terms, axis=0, dtype=terms.dtype)
        if self.matrix_of_c is None:
            return d.reshape(c.shape[0], -1)
        return d.take(self.matrix_of_c)


def _in_value_order(op: str, map_: OperandMap, size: int) -> tuple[Index, Index]:
    """Return the rows and columns of an operand as [slots, lanes], the order of its values."""
    if map_.rows.shape != map_.columns.shape or map_.rows.shape[0] != size:
        raise InternalError(f"{op}: a lane map has shape {map_.rows.shape}, the wave {size} lanes")
    return np.ascontiguousarray(map_.rows.T), np.ascontiguousarray(map_.columns.T)


def _positions(op: str, operand: str, map_: OperandMap, size: int, height: int, width: int) -> Index:
    """Return where in the flat [slots, lanes] value each element of the matrix is; every element must be somewhere."""
    rows, columns = _in_value_order(op, map_, size)
    positions = np.full((height, width), -1)
    positions[rows.reshape(-1), columns.reshape(-1)] = np.arange(rows.size)
    if (positions < 0).any():
        row, column = (int(axis[0]) for axis in np.nonzero(positions < 0))
        raise InternalError(f"{op}: no lane holds element ({row}, {column}) of {operand}")
    return positions


def matrix(
    op: Operation, meaning: Matrix, sources: Sequence[int], target: int, size: int, remember: Callable[[Any], int]
) -> Callable[[Wave], None]:
    """Return the step of a matrix op. `remember` gives the wave's memory slot of a key: a gathered operand serves
    every op that takes it.
    """
    product = Product(op.name, meaning, size)
    slot_a, slot_b, slot_c = sources
    operands = (
        (slot_a, meaning.a_type, product.a, remember(("gathered", slot_a, product.a.tobytes()))),
        (slot_b, meaning.b_type, product.b, remember(("gathered", slot_b, product.b.tobytes()))),
    )

    def gathered(w: Wave, slot: int, type_: ScalarType, index: Index, kept: int) -> Array:
        value: Array = w.registers[slot]
        known = w.memory[kept]
        if known is not None and known[0] is value:
            return known[1]
        whole = value if value.shape[1] != 1 else value.repeat(size, axis=1)
        result = widened(whole.take(index), type_)
        w.memory[kept] = (value, result)
        return result

    def step(w: Wave) -> None:
        if not w.full:
            idle = np.flatnonzero(~w.mask)
            w.fail(op, "lane", "multiplies the registers of all lanes, of which some are inactive", idle)
        a, b = gathered(w, *operands[0]), gathered(w, *operands[1])
        d = product.sum(a, b, w.registers[slot_c])
        w.registers[target] = d

    return step
