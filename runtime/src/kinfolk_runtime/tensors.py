"""Tensors as the binder sees them: arrays on this host or in a device's memory, with a dtype's name in the IR; or
large arrays that exist in part.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, cast

import attrs
import numpy as np
import numpy.typing as npt

from kinfolk.check.element import numpy_dtype
from kinfolk.check.sparse import SparseArray
from kinfolk.errors import BindError
from kinfolk.ir.types import SCALARS
from kinfolk.plugins.faults import sentence_of
from kinfolk_runtime.device_array import DeviceArray

Array = npt.NDArray[Any]

DTYPES: Final[dict[str, np.dtype[Any]]] = {name: numpy_dtype(name) for name in SCALARS}
"""The numpy dtype of each element type; integers are signed here, since page ids and offsets are."""
NAMES: Final = {dtype: name for name, dtype in DTYPES.items()}
"""The element type of each of those."""


@attrs.frozen(eq=False)
class Tensor:
    """An array under the name of its binding, which may exist in part, or lie on a device."""

    name: str
    value: npt.NDArray[Any] | SparseArray | DeviceArray

    @property
    def array(self) -> npt.NDArray[Any]:
        """The whole array on this host; BindError where it exists in part, or is not here."""
        if isinstance(self.value, SparseArray):
            raise BindError(f"{self.name} exists in part, all of it is needed here. Pass the whole array.")
        if isinstance(self.value, DeviceArray):
            raise BindError(f"{self.name} lies on device {self.value.device}, it is needed on this host. Copy it.")
        return self.value

    @property
    def parts(self) -> tuple[npt.NDArray[Any], ...]:
        """Where it lies: the array itself, the rows that a sparse one holds, or an array to be asked for addresses."""
        if isinstance(self.value, DeviceArray):
            return (self.value.geometry() if self.value.host is None else self.value.host,)
        return tuple(self.value.held.values()) if isinstance(self.value, SparseArray) else (self.value,)

    @property
    def writeable(self) -> bool:
        """Whether the caller lets it be written."""
        if isinstance(self.value, DeviceArray):
            return not self.value.readonly
        return self.array.flags.writeable

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents."""
        return self.value.shape

    @property
    def element_strides(self) -> Sequence[int]:
        """Strides in elements; BindError where one is no whole number of elements, or negative."""
        size = self.value.itemsize
        for axis, step in enumerate(self.value.strides):
            if step < 0 or step % size:
                raise BindError(
                    f"{self.name}: the stride of axis {axis} is {step} bytes, a multiple of the element's {size} "
                    f"that is not negative is needed. Pass a copy."
                )
        return [step // size for step in self.value.strides]

    @property
    def address(self) -> int:
        """Where the first element is; 0 where that is for the executor to say."""
        if isinstance(self.value, DeviceArray):
            return self.value.address
        return 0 if isinstance(self.value, SparseArray) else self.value.ctypes.data


def tensor(name: str, value: Any, dtype: str) -> Tensor:
    """Return what was passed under `name` as a Tensor of element type `dtype`, sharing its memory; else raise
    BindError.

    Takes numpy arrays (bf16 and fp8 as ml_dtypes has them), whatever has an array interface or, on the CPU, DLPack, and
    a SparseArray.
    """
    array = value if isinstance(value, SparseArray) else host_array(name, value)
    check_dtype(name, array.dtype, dtype)
    return Tensor(name, array)


def check_dtype(name: str, found: np.dtype[Any], dtype: str) -> None:
    """Raise BindError, with how to mend it, unless a numpy dtype is that of an element type."""
    if found != DTYPES[dtype]:
        named = NAMES.get(found, "no element type")
        raise BindError(
            f"{name}: dtype is {found} ({named}), {DTYPES[dtype]} ({dtype}) is needed. {_mended(found, dtype)}"
        )


def _mended(found: np.dtype[Any], dtype: str) -> str:
    """Return how to pass what has another type: as the same bits where only the name can differ, else converted."""
    wanted = DTYPES[dtype]
    module = wanted.type.__module__
    named = f"{module}.{wanted.name}"
    is_integer = SCALARS[dtype].kind == "int"
    stands_for = "iu" if is_integer else "iuV" if module != "numpy" else ""  # numpy has no bf16 and fp8 of its own
    if (
        found.itemsize == wanted.itemsize
        and found.kind in stands_for
        and found.isnative
        and (is_integer or found not in NAMES or found.kind != "V")
    ):
        return f"Convert it, or pass `.view({named})` where its bits are {dtype} already."
    return f"Convert it: `.astype({named})`."


def host_array(name: str, value: Any) -> npt.NDArray[Any]:
    """Return what was passed under `name` as an array on this host, sharing its memory; else raise BindError."""
    kind = cast("Callable[[object], type]", type)(value)
    if kind is np.ndarray:
        return value
    if issubclass(kind, np.ma.MaskedArray):
        raise BindError(f"{name} is a masked array, and no kernel sees a mask. Fill it: pass `.filled(value)`.")
    try:
        has_interface = issubclass(kind, np.ndarray) or hasattr(value, "__array_interface__")
        has_dlpack = not has_interface and hasattr(value, "__dlpack__")
        if has_interface:
            return np.asarray(value)
    except Exception as error:
        raise BindError(
            f"{name}: its array interface cannot be read: {sentence_of(error)}. Pass a numpy array."
        ) from error
    if has_dlpack:
        _expect_host_memory(name, value)
        return _through_dlpack(name, value)
    raise BindError(
        f"{name} is a {kind.__name__}, a numpy array or anything with __array_interface__ or __dlpack__ is needed."
    )


def _through_dlpack(name: str, value: Any) -> npt.NDArray[Any]:
    """Return an array over what is exported; numpy reads it where it has the element type, else we do."""
    from kinfolk_runtime.hip.dlpack import DLPackError, host_view

    try:
        return np.from_dlpack(value)
    except Exception as error:  # noqa: BLE001 - whatever the producer raises
        refused = error
    try:
        return host_view(value)
    except DLPackError as error:
        raise BindError(f"{name}: it cannot be read through DLPack: {error}. Pass a numpy array.") from error
    except Exception as error:
        raise BindError(f"{name}: numpy does not take it through DLPack ({refused}). Pass host memory.") from error


def _expect_host_memory(name: str, value: Any) -> None:
    from kinfolk_runtime.hip.dlpack import CUDA, KINDS, ROCM

    try:
        kind = int(value.__dlpack_device__()[0])
    except Exception:  # noqa: BLE001 - numpy asks it as well, and what it says is told
        return
    if kind in (CUDA, ROCM):
        raise BindError(
            f"{name} lies in the memory of {KINDS[kind]}, this executor runs in this host's. Copy it here, as by "
            f"`.numpy()`, or bind it for an executor of that device."
        )


def allocated(dtype: str, shape: Sequence[int], strides: Sequence[int], alignment: int) -> npt.NDArray[Any]:
    """Return new memory, all poison (NaN in floats, -1 in integers), that begins at a multiple of `alignment`."""
    element = DTYPES[dtype]
    last = sum((extent - 1) * step for extent, step in zip(shape, strides, strict=True)) if 0 not in shape else -1
    size = (last + 1) * element.itemsize
    memory = np.full(size + alignment, 0x80 if dtype.endswith("FNUZ") else 0xFF, np.uint8)
    begin = -memory.ctypes.data % alignment
    flat = memory[begin : begin + size].view(element)
    if 0 in shape:
        return np.empty(shape, element)
    return np.lib.stride_tricks.as_strided(flat, shape, [step * element.itemsize for step in strides])
