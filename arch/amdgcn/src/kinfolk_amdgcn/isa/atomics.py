"""What atomic instructions make of a place in memory, and how the lanes of an instruction take turns there.

Source: "AMD Instinct MI300 Instruction Set Architecture", DS and FLAT instructions; oracle: AMD's pseudo-code of each,
by hand in tests. Lanes that meet at one place take turns in their order, waves in theirs: one order of many.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import ml_dtypes
import numpy as np

from kinfolk_amdgcn.isa.waves import Array

Change = Callable[[Any, Any], Any] | Callable[[Any, Any, Any], Any]
"""What is in memory afterwards, of what was and the operands; all as unsigned integers of one size."""
_SIGNED: Final = {4: np.int32, 8: np.int64}
_FLOAT: Final = {4: np.float32, 8: np.float64}


def _signed(pick: Any) -> Change:
    def change(old: Array, x: Array) -> Array:
        kind: Any = _SIGNED[old.itemsize]
        return pick(old.view(kind), x.view(kind)).view(old.dtype)

    return change


def _float_sum(old: Array, x: Array) -> Array:
    kind: Any = _FLOAT[old.itemsize]
    return (old.view(kind) + x.view(kind)).view(old.dtype)


def _float_pick(larger: bool) -> Change:
    def change(old: Array, x: Array) -> Array:
        kind: Any = _FLOAT[old.itemsize]
        a, b = old.view(kind), x.view(kind)
        return np.where((b > a if larger else b < a) | (np.isnan(a) & ~np.isnan(b)), x, old)

    return change


def _pair_sum(kind: Any) -> Change:
    def change(old: Any, x: Any) -> Any:
        a, b = (np.ascontiguousarray(each).view(kind).astype(np.float32) for each in (old, x))
        total: Any = (a + b).astype(kind)
        bits: Any = np.ascontiguousarray(total).view(np.uint32)
        return bits

    return change


def _up(old: Array, x: Array) -> Array:
    return np.where(old >= x, np.zeros_like(old), old + old.dtype.type(1))


def _down(old: Array, x: Array) -> Array:
    return np.where((old == 0) | (old > x), x, old - old.dtype.type(1))


def _wrap(old: Array, x: Array, y: Array) -> Array:
    return np.where(old >= x, old - x, old + y)


def _compared(floats: bool) -> Change:
    """Return what puts an operand in the place of what is equal to another, which comes first."""

    def change(old: Array, wanted: Array, new: Array) -> Array:
        kind: Any = _FLOAT[old.itemsize] if floats else old.dtype
        return np.where(old.view(kind) == wanted.view(kind), new, old)

    return change


CHANGES: Final[dict[str, Change]] = {
    "swap": lambda old, x: x,
    "cmpswap": _compared(floats=False),
    "cmpswap_f": _compared(floats=True),
    "add": lambda old, x: old + x,
    "sub": lambda old, x: old - x,
    "rsub": lambda old, x: x - old,
    "smin": _signed(np.minimum),
    "umin": np.minimum,
    "smax": _signed(np.maximum),
    "umax": np.maximum,
    "and": lambda old, x: old & x,
    "or": lambda old, x: old | x,
    "xor": lambda old, x: old ^ x,
    "inc": _up,
    "dec": _down,
    "mskor": lambda old, mask, x: old & ~mask | x,
    "wrap": _wrap,
    "add_f": _float_sum,
    "min_f": _float_pick(larger=False),
    "max_f": _float_pick(larger=True),
    "pk_add_f16": _pair_sum(np.float16),
    "pk_add_bf16": _pair_sum(ml_dtypes.bfloat16),
}
"""Every change by name; `_f` are of floats of the size of the access."""
OPERANDS: Final = {"cmpswap": 2, "cmpswap_f": 2, "mskor": 2, "wrap": 2}
"""How many operands a change takes, where it is not one."""


def turns(places: Array) -> Iterator[Array]:
    """Yield indices of places so that none comes twice at a time, those of one place in their order."""
    order = np.argsort(places, kind="stable")
    ordered = places[order]
    first = np.ones(len(places), np.bool_)
    first[1:] = ordered[1:] != ordered[:-1]
    starts = np.flatnonzero(first)
    rank = np.arange(len(places)) - np.repeat(starts, np.diff(np.append(starts, len(places))))
    for number in range(int(rank.max(initial=-1)) + 1):
        yield order[rank == number]
