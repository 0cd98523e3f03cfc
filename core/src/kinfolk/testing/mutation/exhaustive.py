"""A change that computes the same for every number its operands can be: worked out over all of them.

The numbers are those of `kinfolk.analysis`: bounds and steps of each operand where the op stands. Where they are too
many and op and change only put numbers in order (comparisons, minima, selections, extensions), those at and beside
each place where an order can change stand for all.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np

from kinfolk.analysis.strided import Strided
from kinfolk.analysis.values import Values
from kinfolk.errors import KinfolkError
from kinfolk.ir.meaning import LaneFunction
from kinfolk.ir.numpy_lanes import NumpyAlgebra, NumpyLane, storage_dtype
from kinfolk.ir.ops import arithmetic, convert, vector
from kinfolk.ir.types import ScalarType
from kinfolk.ir.value import Operation, Value
from kinfolk.testing.mutation.mutant import Mutant
from kinfolk.testing.mutation.rewrite import Place

MOST: Final = 1 << 16
"""Cases that are worked out one by one."""
_ORDERING: Final = (
    arithmetic.smin,
    arithmetic.smax,
    arithmetic.umin,
    arithmetic.umax,
    arithmetic.icmp,
    arithmetic.select,
    convert.sext,
    convert.zext,
    vector.constant,
)
_BESIDE: Final = (-2, -1, 0, 1, 2)
Lanes = dict[Value, NumpyLane]


def same_for_all(mutant: Mutant, values: Values) -> str:
    """Return over how many cases a mutant computes the same as its kernel; "" where that is not shown.

    `values` are those of the kernel without the change.
    """
    op = mutant.operation
    sets = values.seen.get(op)
    if sets is None or not is_of_integers(op):
        return ""
    place = Place(op, (), {operand: operand for operand in op.operands})
    try:
        (result,) = mutant.change.edit(place)
    except (KeyError, ValueError, KinfolkError):  # it takes other values, or several
        return ""
    if not all(is_of_integers(each) for each in place.operations):
        return ""
    cases = _cases(op, place.operations, sets)
    if cases is None:
        return ""
    count, given = cases
    lanes = {
        value: NumpyLane(value.type, numbers.astype(np.int64).astype(storage_dtype(value.type)))
        for value, numbers in zip(op.operands, given, strict=True)
        if isinstance(value.type, ScalarType)
    }
    with np.errstate(all="ignore"):
        before, legal = _evaluated([op], dict(lanes), op.results[0], count)
        after, kept = _evaluated(place.operations, dict(lanes), result, count)
    same = np.broadcast_to(before == after, (count,)) & kept
    return f"the same in all {count} cases of its operands" if bool(np.all(same | ~legal)) else ""


def is_of_integers(op: Operation) -> bool:
    meaning = op.definition.meaning
    types = [value.type for value in (*op.operands, *op.results)]
    computes = isinstance(meaning, LaneFunction) and (meaning.form == "elementwise" or op.definition is vector.constant)
    return computes and len(op.results) == 1 and all(isinstance(t, ScalarType) and t.kind == "int" for t in types)


def _cases(
    op: Operation, instead: Sequence[Operation], sets: Sequence[Strided]
) -> tuple[int, list[np.ndarray[Any, np.dtype[np.int64]]]] | None:
    """Return numbers for each operand, one column a case; None where there are too many."""
    if not op.operands or len(set(op.operands)) != len(op.operands):
        return None
    if math.prod((each.high - each.low) // (each.step or 1) + 1 for each in sets) <= MOST:
        choices: list[Sequence[int]] = [range(each.low, each.high + 1, each.step or 1) for each in sets]
    else:
        if any(each.definition not in _ORDERING for each in (op, *instead)):
            return None
        marks = {number for each in sets for number in (each.low, each.high)} | {0, *constants_of(instead)}
        near = sorted({mark + step for mark in marks for step in _BESIDE})
        choices = [[number for number in near if number in each] for each in sets]
        if not all(choices) or math.prod(map(len, choices)) > MOST:
            return None
    columns = np.array(list(itertools.product(*choices)), np.int64).reshape(-1, len(choices)).T
    return columns.shape[1], list(columns)


def constants_of(ops: Sequence[Operation]) -> Iterator[int]:
    """Yield the numbers of the integer constants among ops."""
    for op in ops:
        if op.definition is vector.constant:
            bits, type_ = op.attributes["bits"], op.results[0].type
            assert isinstance(bits, int) and isinstance(type_, ScalarType)
            yield bits - (1 << type_.bits) if type_.bits > 1 and bits >> (type_.bits - 1) else bits


def _evaluated(ops: Sequence[Operation], lanes: Lanes, result: Value, count: int) -> tuple[Any, Any]:
    """Return the numbers of a value, and in which cases no op broke a rule."""
    algebra = NumpyAlgebra.of_lanes(count)
    for op in ops:
        meaning = op.definition.meaning
        assert isinstance(meaning, LaneFunction)
        if op.definition is vector.constant:
            (lane,) = meaning.body(algebra, result=(op.results[0].type,), **op.attributes)
        else:
            lane = meaning.body(algebra, *(lanes[operand] for operand in op.operands), **op.attributes)
        lanes[op.results[0]] = lane
    kept = np.ones(count, np.bool_)
    for _, failing in algebra.violations:
        kept[failing] = False
    return lanes[result].data, kept
