"""Memory that kernels read and write: the bytes of an array, or a large buffer of which only some ranges exist."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, Protocol

import attrs
import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
Offsets = npt.NDArray[np.int64]
Units = npt.NDArray[Any]


class Unavailable(Exception):  # never leaves the simulator: it becomes a KernelFault
    """Some bytes of an access hold nothing: `wrong` says which of the offsets, `why` what is missing, `kind` whose
    fault that is.
    """

    def __init__(
        self,
        wrong: npt.NDArray[np.bool_],
        why: str,
        kind: Literal["memory", "initialisation"] = "initialisation",
    ) -> None:
        super().__init__(why)
        self.wrong = wrong
        self.why = why
        self.kind: Literal["memory", "initialisation"] = kind


@attrs.frozen(eq=False)
class Range:
    """Bytes [start, end) of a buffer in the memory of this process.

    `marks` is the address of a byte per byte, all bits set where one was written, or 0. Where `axes`, (step, count)
    with the largest step first, is not None, only the `item_bytes` at the places it gives are accessible.
    """

    start: int
    end: int
    address: int
    marks: int
    axes: tuple[tuple[int, int], ...] | None
    item_bytes: int


class Storage(Protocol):
    """What the address space asks of memory; offsets are in bytes, inside `[0, size)` and multiples of the unit."""

    @property
    def size(self) -> int: ...
    def read(self, offsets: Offsets, unit: np.dtype[Any], any_state: bool = False) -> Units:
        """Return the units at `offsets`, in its shape; raise `Unavailable` for bytes that were never written, unless
        they are read in `any_state`.
        """
        ...

    def write(self, offsets: Offsets, values: Units) -> None: ...
    def add(self, offsets: Offsets, values: Units, any_state: bool = False) -> None:
        """Add one after the other, in order of lanes."""
        ...

    def ranges(self) -> list[Range]:
        """Return what exists of it, ascending."""
        ...

    def saved(self) -> Callable[[], None]:
        """Return what puts the contents back as they are now."""
        ...


class _Holder:
    """Bytes at an address, and the object that owns them."""

    def __init__(self, address: int, size: int, readonly: bool, owner: object) -> None:
        self.owner = owner
        self.__array_interface__ = {"data": (address, readonly), "shape": (size,), "typestr": "|u1", "version": 3}


def span_bytes(array: npt.NDArray[Any]) -> int:
    """Return the bytes from an array's first element to the end of its last; strides are not negative."""
    if array.size == 0:
        return 0
    return sum((n - 1) * step for n, step in zip(array.shape, array.strides, strict=True)) + array.itemsize


class Buffer:
    """The memory of an array, gaps between its rows included but not accessible.

    With `initialized=False` every byte counts as never written, whatever it holds: reading it before the kernel has
    written it is an error. The array is shared, not copied; marks last as long as the Buffer, over several launches.
    """

    def __init__(self, array: npt.NDArray[Any], *, initialized: bool = True) -> None:
        if any(step < 0 for step in array.strides):
            raise ValueError("the array runs backwards; pass a copy")
        self.array = array
        self.size = span_bytes(array)
        if self.size == 0:
            self._bytes: Bytes = np.zeros(0, np.uint8)
        else:
            holder = _Holder(array.ctypes.data, self.size, not array.flags.writeable, array)
            self._bytes = np.asarray(holder)
        self._views: dict[np.dtype[Any], Units] = {}
        self._marks: Bytes | None = None if initialized else np.zeros(self.size, np.uint8)
        self._mark_views: dict[np.dtype[Any], Units] = {}
        self._axes = _gap_axes(array)
        self._gaps = None if self._axes is None else _gap_finder(self._axes, array.itemsize)
        self.writeable = array.flags.writeable

    def initialized_bytes(self) -> npt.NDArray[np.bool_]:
        """Return, per byte from the first element on, whether it holds a value."""
        return np.ones(self.size, np.bool_) if self._marks is None else self._marks != 0

    def _view(self, unit: np.dtype[Any]) -> Units:
        if unit not in self._views:
            self._views[unit] = self._bytes[: self.size // unit.itemsize * unit.itemsize].view(unit)
        return self._views[unit]

    def _mark_view(self, marks: Bytes, unit: np.dtype[Any]) -> Units:
        plain = np.dtype(f"u{unit.itemsize}")
        if plain not in self._mark_views:
            self._mark_views[plain] = marks[: self.size // plain.itemsize * plain.itemsize].view(plain)
        return self._mark_views[plain]

    def _refuse_gaps(self, offsets: Offsets) -> None:
        if self._gaps is not None:
            wrong = self._gaps(offsets)
            if wrong.any():
                raise Unavailable(wrong, "touches bytes between the rows of", "memory")

    def read(self, offsets: Offsets, unit: np.dtype[Any], any_state: bool = False) -> Units:
        index = offsets // unit.itemsize
        self._refuse_gaps(offsets)
        if self._marks is not None and not any_state:
            marks = self._mark_view(self._marks, unit).take(index)
            wrong = marks != np.iinfo(marks.dtype).max
            if wrong.any():
                raise Unavailable(wrong, "reads bytes that were never written of")
        return self._view(unit).take(index)

    def write(self, offsets: Offsets, values: Units) -> None:
        index = offsets // values.dtype.itemsize
        self._refuse_gaps(offsets)
        self._view(values.dtype)[index] = values
        if self._marks is not None:
            view = self._mark_view(self._marks, values.dtype)
            view[index] = np.iinfo(view.dtype).max

    def add(self, offsets: Offsets, values: Units, any_state: bool = False) -> None:
        self.read(offsets, values.dtype, any_state)
        np.add.at(self._view(values.dtype), offsets // values.dtype.itemsize, np.broadcast_to(values, offsets.shape))

    def ranges(self) -> list[Range]:
        marks = 0 if self._marks is None else self._marks.ctypes.data
        address = self._bytes.ctypes.data
        return [Range(0, self.size, address, marks, self._axes, self.array.itemsize)]

    def saved(self) -> Callable[[], None]:
        held, marks = self._bytes.copy(), None if self._marks is None else self._marks.copy()

        def restore() -> None:
            self._bytes[...] = held
            if self._marks is not None and marks is not None:
                self._marks[...] = marks

        return restore


def _gap_axes(array: npt.NDArray[Any]) -> tuple[tuple[int, int], ...] | None:
    """Return (step, count) of an array with gaps, the largest step first; None where every byte belongs to an element.

    Rows that overlap, as of a sliding window, have no gaps that could be told from the strides.
    """
    axes = sorted(
        ((step, n) for step, n in zip(array.strides, array.shape, strict=True) if n > 1 and step), reverse=True
    )
    reach = array.itemsize
    whole = True
    for step, n in reversed(axes):
        if step < reach:
            return None
        whole &= step == reach
        reach = step * (n - 1) + reach
    return None if whole else tuple(axes)


def _gap_finder(axes: tuple[tuple[int, int], ...], item_bytes: int) -> Callable[[Offsets], npt.NDArray[np.bool_]]:
    """Return what says of byte offsets whether they lie between rows."""

    def between(offsets: Offsets) -> npt.NDArray[np.bool_]:
        rest, outside = offsets, np.zeros(offsets.shape, np.bool_)
        for step, n in axes:
            index = rest // step
            outside |= index >= n
            rest = rest - index * step
        return outside | (rest >= item_bytes)

    return between


class SparseBuffer:
    """A buffer of `size` bytes of which only `ranges` exist: byte offset of each, with its array.

    Reading elsewhere is an initialisation error; so is writing, as nothing is there to keep it.
    """

    writeable = True

    def __init__(self, size: int, ranges: Mapping[int, npt.NDArray[Any]]) -> None:
        self.size = size
        self._ranges: list[tuple[int, int, Buffer]] = []
        end = 0
        for start in sorted(ranges):
            held = Buffer(ranges[start])
            if start < end or start + held.size > size:
                raise ValueError(f"range [{start}, {start + held.size}) overlaps another or passes the size {size}")
            end = start + held.size
            self._ranges.append((start, end, held))

    def _parts(self, offsets: Offsets, unit: int) -> list[tuple[npt.NDArray[np.bool_], Offsets, Buffer]]:
        missing = np.ones(offsets.shape, np.bool_)
        parts: list[tuple[npt.NDArray[np.bool_], Offsets, Buffer]] = []
        for start, end, held in self._ranges:
            inside = (offsets >= start) & (offsets + unit <= end)
            if inside.any():
                missing &= ~inside
                parts.append((inside, offsets[inside] - start, held))
        if missing.any():
            raise Unavailable(missing, "touches bytes outside the populated ranges of")
        return parts

    def read(self, offsets: Offsets, unit: np.dtype[Any], any_state: bool = False) -> Units:
        result = np.empty(offsets.shape, unit)
        for inside, inner, held in self._parts(offsets, unit.itemsize):
            result[inside] = held.read(inner, unit, any_state)
        return result

    def write(self, offsets: Offsets, values: Units) -> None:
        full = np.broadcast_to(values, offsets.shape)
        for inside, inner, held in self._parts(offsets, values.dtype.itemsize):
            held.write(inner, full[inside])

    def add(self, offsets: Offsets, values: Units, any_state: bool = False) -> None:
        full = np.broadcast_to(values, offsets.shape)
        for inside, inner, held in self._parts(offsets, values.dtype.itemsize):
            held.add(inner, full[inside], any_state)

    def ranges(self) -> list[Range]:
        return [attrs.evolve(part, start=start, end=end) for start, end, held in self._ranges for part in held.ranges()]

    def saved(self) -> Callable[[], None]:
        parts = [held.saved() for _, _, held in self._ranges]

        def restore() -> None:
            for part in parts:
                part()

        return restore
