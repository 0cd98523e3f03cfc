"""The numpy evaluator of the lane algebra: the semantic oracle. Values are arrays of any shape, one entry per lane."""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from kinfolk.ir.types import F32, I1, I32, ScalarType

Array = npt.NDArray[Any]

_BELOW_2_63 = float(np.nextafter(2.0**63, 0.0))
_FLOATS = {"f32": np.float32, "f64": np.float64}


@cache
def storage_dtype(type_: ScalarType) -> np.dtype[Any]:
    """Return the dtype of a value's bits: bool for i1, unsigned for integers and narrow floats, IEEE for f32, f64."""
    if type_.bits == 1:
        return np.dtype(np.bool_)
    return np.dtype(_FLOATS.get(type_.name, f"u{type_.bits // 8}"))


def _signed(data: Array) -> Array:
    return data.view(f"i{data.dtype.itemsize}") if data.dtype.kind == "u" else data


class NumpyLane:
    """A `Lane` held as one numpy array in `storage_dtype`."""

    __slots__ = ("data", "type")

    def __init__(self, type_: ScalarType, data: Array) -> None:
        self.type = type_
        self.data = data

    def _other(self, other: NumpyLane | int | float) -> Array:
        if isinstance(other, NumpyLane):
            return other.data
        return constant_array(other, self.type)

    def _same(self, data: Array) -> NumpyLane:
        return NumpyLane(self.type, data)

    def __add__(self, other: Any) -> NumpyLane:
        return self._same(self.data + self._other(other))

    def __sub__(self, other: Any) -> NumpyLane:
        return self._same(self.data - self._other(other))

    def __mul__(self, other: Any) -> NumpyLane:
        return self._same(self.data * self._other(other))

    def __truediv__(self, other: Any) -> NumpyLane:
        return self._same(self.data / self._other(other))

    def __and__(self, other: Any) -> NumpyLane:
        return self._same(self.data & self._other(other))

    def __or__(self, other: Any) -> NumpyLane:
        return self._same(self.data | self._other(other))

    def __xor__(self, other: Any) -> NumpyLane:
        return self._same(self.data ^ self._other(other))

    def __lshift__(self, other: Any) -> NumpyLane:
        return self._same(self.data << self._other(other))

    def _compare(self, other: Any) -> tuple[Array, Array]:
        return _signed(self.data), _signed(self._other(other))

    def __lt__(self, other: Any) -> NumpyLane:
        a, b = self._compare(other)
        return NumpyLane(I1, a < b)

    def __le__(self, other: Any) -> NumpyLane:
        a, b = self._compare(other)
        return NumpyLane(I1, a <= b)

    def __gt__(self, other: Any) -> NumpyLane:
        a, b = self._compare(other)
        return NumpyLane(I1, a > b)

    def __ge__(self, other: Any) -> NumpyLane:
        a, b = self._compare(other)
        return NumpyLane(I1, a >= b)

    def eq(self, other: Any) -> NumpyLane:
        """Equality; for floats ordered, so NaN equals nothing."""
        return NumpyLane(I1, self.data == self._other(other))

    def ne(self, other: Any) -> NumpyLane:
        """The negation of `eq`."""
        return NumpyLane(I1, self.data != self._other(other))


def constant_array(value: int | float, type_: ScalarType) -> Array:
    """Return `value` as a 0-d array in the storage of `type_`; integers wrap modulo the width."""
    if isinstance(value, int):
        return _integer_array(value, type_)
    dtype = storage_dtype(type_)
    if dtype.kind == "u":
        return _integer_array(int(value), type_)
    return np.array(value, dtype)


@lru_cache(4096)
def _integer_array(value: int, type_: ScalarType) -> Array:
    """Return it once for all who ask: nobody may write to it."""
    dtype = storage_dtype(type_)
    found: Array = np.array(value & ((1 << type_.bits) - 1) if dtype.kind == "u" else value, dtype)
    found.setflags(write=False)
    return found


class NumpyAlgebra:
    """Evaluates lane functions; failed requirements collect in `violations` as (why, failing lanes).

    The caller silences numpy with `numpy.errstate(all="ignore")`: overflow and NaN are results here.
    """

    def __init__(self, lane: Array, wave: Array, thread: Array, block: tuple[int, int, int], active: Array) -> None:
        self._lane, self._wave, self._thread, self._block = lane, wave, thread, block
        self._active = active
        self.violations: list[tuple[str, Array]] = []

    @classmethod
    def of_lanes(cls, count: int) -> NumpyAlgebra:
        """Return an algebra for `count` lanes of one wave, all active, in the first workgroup."""
        lane = np.arange(count, dtype=np.uint32)
        return cls(lane, np.zeros_like(lane), lane, (0, 0, 0), np.ones(count, np.bool_))

    def const(self, value: int | float, type_: ScalarType) -> NumpyLane:
        return NumpyLane(type_, constant_array(value, type_))

    def where(self, condition: NumpyLane, a: NumpyLane, b: NumpyLane) -> NumpyLane:
        return NumpyLane(a.type, np.where(condition.data, a.data, b.data))

    def bits(self, x: NumpyLane, type_: ScalarType) -> NumpyLane:
        return NumpyLane(type_, x.data.view(storage_dtype(type_)))

    def lshr(self, x: NumpyLane, count: NumpyLane | int) -> NumpyLane:
        return NumpyLane(x.type, x.data >> x._other(count))  # pyright: ignore[reportPrivateUsage]

    def ashr(self, x: NumpyLane, count: NumpyLane | int) -> NumpyLane:
        amount = _signed(x._other(count))  # pyright: ignore[reportPrivateUsage]
        return NumpyLane(x.type, (_signed(x.data) >> amount).view(x.data.dtype))

    def trunc(self, x: NumpyLane, type_: ScalarType) -> NumpyLane:
        if type_.bits == 1:
            return NumpyLane(type_, (x.data & x.data.dtype.type(1)).astype(np.bool_))
        return NumpyLane(type_, x.data.astype(storage_dtype(type_)))

    def zext(self, x: NumpyLane, type_: ScalarType) -> NumpyLane:
        return NumpyLane(type_, x.data.astype(storage_dtype(type_)))

    def sext(self, x: NumpyLane, type_: ScalarType) -> NumpyLane:
        dtype = storage_dtype(type_)
        signed = (
            -x.data.astype(f"i{dtype.itemsize}") if x.type.bits == 1 else _signed(x.data).astype(f"i{dtype.itemsize}")
        )
        return NumpyLane(type_, signed.view(dtype))

    def unsigned_less(self, a: NumpyLane, b: NumpyLane | int) -> NumpyLane:
        return NumpyLane(I1, a.data < a._other(b))  # pyright: ignore[reportPrivateUsage]

    def sdiv(self, a: NumpyLane, b: NumpyLane) -> NumpyLane:
        x, y = _signed(a.data), _signed(b.data)
        quotient = x // y
        exact = quotient * y == x
        return NumpyLane(
            a.type, np.where(~exact & ((x < 0) != (y < 0)), quotient + 1, quotient).astype(x.dtype).view(a.data.dtype)
        )

    def udiv(self, a: NumpyLane, b: NumpyLane) -> NumpyLane:
        return NumpyLane(a.type, a.data // b.data)

    def multiply_overflows(self, a: NumpyLane, b: NumpyLane) -> NumpyLane:
        x, y = np.broadcast_arrays(_signed(a.data), _signed(b.data))
        limit = 1 << (a.type.bits - 1)
        if a.type.bits < 64:
            product = x.astype(np.int64) * y.astype(np.int64)
            return NumpyLane(I1, (product < -limit) | (product >= limit))
        exact = x.astype(object) * y.astype(object)
        return NumpyLane(I1, np.array((exact < -limit) | (exact >= limit), np.bool_))

    def rint(self, x: NumpyLane) -> NumpyLane:
        return NumpyLane(x.type, np.rint(x.data))

    def to_int(self, x: NumpyLane, type_: ScalarType) -> NumpyLane:
        low, high = -(1 << (type_.bits - 1)), (1 << (type_.bits - 1)) - 1
        wide = np.trunc(np.nan_to_num(x.data.astype(np.float64), nan=0.0, posinf=np.inf, neginf=-np.inf))
        clipped = np.where(
            wide >= high, high, np.where(wide <= low, low, np.clip(wide, -(2.0**63), _BELOW_2_63).astype(np.int64))
        )
        return NumpyLane(type_, clipped.astype(np.int64).astype(f"i{type_.bits // 8}").view(storage_dtype(type_)))

    def to_float(self, x: NumpyLane, type_: ScalarType) -> NumpyLane:
        return NumpyLane(type_, _signed(x.data).astype(storage_dtype(type_)))

    def convert(self, x: NumpyLane, type_: ScalarType) -> NumpyLane:
        return NumpyLane(type_, x.data.astype(storage_dtype(type_)))

    def fma(self, a: NumpyLane, b: NumpyLane, c: NumpyLane) -> NumpyLane:
        if a.type != F32:
            raise NotImplementedError(f"fma is declared on f32, got {a.type}")
        return NumpyLane(F32, fma_f32(a.data, b.data, c.data))

    def sqrt(self, x: NumpyLane) -> NumpyLane:
        return NumpyLane(x.type, np.sqrt(x.data))

    def require(self, condition: NumpyLane, why: str) -> None:
        failing = self._active & ~np.broadcast_to(condition.data, self._active.shape)
        if failing.any():
            self.violations.append((why, np.flatnonzero(failing)))

    def lane_id(self) -> NumpyLane:
        return NumpyLane(I32, self._lane)

    def wave_id(self) -> NumpyLane:
        return NumpyLane(I32, self._wave)

    def thread_id(self) -> NumpyLane:
        return NumpyLane(I32, self._thread)

    def block_id(self, axis: int) -> NumpyLane:
        return NumpyLane(I32, np.full(self._lane.shape, self._block[axis], np.uint32))


def fma_f32(a: Array, b: Array, c: Array) -> Array:
    """Return a * b + c rounded once to f32.

    The product of two f32 is exact in f64. The f64 sum is rounded to odd (Boldo and Melquiond, 2008), so that
    rounding it to f32 is as good as one rounding of the exact sum.
    """
    product, addend = a.astype(np.float64) * b.astype(np.float64), c.astype(np.float64)
    total = product + addend
    virtual = total - product
    error = (product - (total - virtual)) + (addend - virtual)
    inexact = np.isfinite(total) & (error != 0)
    bits = total.view(np.int64)
    even = (bits & 1) == 0
    away = (error > 0) == (total > 0)  # the exact sum lies beyond `total`, away from zero
    odd = np.where(inexact & even, np.where(away, bits + 1, bits - 1), bits)
    return odd.view(np.float64).astype(np.float32)
