"""Large arrays of which only some rows exist: a cache of gigabytes in the kilobytes that a kernel may read of it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from kinfolk.check.element import Array

Indices = npt.NDArray[np.int64]


def _lent(parts: Mapping[int, Array]) -> Mapping[int, Array]:
    """Return the parts in order, as contiguous arrays that nobody writes through."""
    found: dict[int, Array] = {}
    for row in sorted(parts):
        found[row] = np.ascontiguousarray(parts[row]).view()
        found[row].flags.writeable = False
    return MappingProxyType(found)


@attrs.frozen(kw_only=True, eq=False)
class SparseArray:
    """A row-major array of `shape`, two axes or more, in which only what is `held` exists.

    Rows follow each other, or begin `pitch` elements apart.

    `held[row]` has the shape (n, *shape[2:]) with n at most shape[1]: the first n of that row. Reading anything else is
    a fault of the kernel that does. Raises ValueError for a part that does not lie in the array.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    held: Mapping[int, Array] = attrs.field(converter=_lent, repr=False)
    pitch: int | None = None

    def __attrs_post_init__(self) -> None:
        row_elements = math.prod(self.shape[1:])
        if self.pitch is not None and self.pitch < row_elements:
            raise ValueError(
                f"pitch is {self.pitch}, rows of {row_elements} elements overlap. Let them lie further apart"
            )
        for row, part in self.held.items():
            fits = part.ndim == self.ndim - 1 and part.shape[1:] == self.shape[2:] and len(part) <= self.shape[1]
            if not (fits and part.dtype == self.dtype and 0 <= row < self.shape[0]):
                raise ValueError(
                    f"row {row} holds {part.dtype} of shape {part.shape}, a row is one of {self.shape[0]} and at most "
                    f"{self.shape[1:]} of {self.dtype}"
                )

    @property
    def ndim(self) -> int:
        """How many axes there are."""
        return len(self.shape)

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return self.dtype.itemsize

    @property
    def size(self) -> int:
        """Elements of the whole array, with what lies between its rows."""
        return self.strides[0] * self.shape[0] // self.itemsize

    @property
    def strides(self) -> tuple[int, ...]:
        """Bytes from one element of an axis to the next."""
        steps = [self.itemsize]
        for extent in reversed(self.shape[1:]):
            steps.insert(0, steps[0] * extent)
        if self.pitch is not None:
            steps[0] = self.pitch * self.itemsize
        return tuple(steps)

    @property
    def nbytes(self) -> int:
        """Bytes of the whole array."""
        return self.size * self.itemsize

    def ranges(self) -> dict[int, Array]:
        """Return the parts that exist by the byte at which each begins."""
        return {row * self.strides[0]: part for row, part in self.held.items() if part.size}

    def __getitem__(self, at: int | tuple[Indices, Indices]) -> Array:
        """Return what exists of one row; or of rows and places in them, as numpy pairs them up, one item per pair.

        LookupError where a pair names what does not exist.
        """
        if not isinstance(at, tuple):
            return self.held.get(int(at), np.empty((0, *self.shape[2:]), self.dtype))
        rows, places = at
        found = np.empty((len(rows), *self.shape[2:]), self.dtype)
        for row in np.unique(rows):
            named, part = rows == row, self[int(row)]
            if places[named].max() >= len(part):
                raise LookupError(f"row {row} has {len(part)} of its {self.shape[1]}, {places[named].max()} is read")
            found[named] = part[places[named]]
        return found
