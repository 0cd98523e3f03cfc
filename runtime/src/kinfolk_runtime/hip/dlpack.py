"""DLPack capsules, read and made with numpy alone: the structures of dlpack.h, version 1, and the older ones.

Source: github.com/dmlc/dlpack, include/dlpack/dlpack.h.
"""

from __future__ import annotations

import ctypes
from typing import Any, Final

import attrs
import numpy as np

from kinfolk.check.element import numpy_dtype

CPU, CUDA, ROCM = 1, 2, 10
KINDS: Final = {
    1: "the host's memory",
    2: "a CUDA device",
    3: "pinned host memory",
    10: "a ROCm device",
    11: "pinned host memory",
}
OLD: Final = b"dltensor"
NEW: Final = b"dltensor_versioned"
_READ_ONLY: Final = 1
_INT, _UINT, _FLOAT, _BFLOAT, _BOOL = 0, 1, 2, 4, 6
_BITS: Final = {1: "|u1", 2: "<u2", 4: "<u4", 8: "<u8"}
_FP8: Final = {10: "f8E4M3FN", 11: "f8E4M3FNUZ", 12: "f8E5M2", 13: "f8E5M2FNUZ"}


class _Device(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_int32), ("number", ctypes.c_int32)]


class _DType(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", _Device),
        ("ndim", ctypes.c_int32),
        ("dtype", _DType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class _Managed(ctypes.Structure):
    _fields_ = [("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class _Versioned(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    ]


_PYTHON: Final = ctypes.pythonapi
_pointer_of = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_GetPointer", _PYTHON))
_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_IsValid", _PYTHON))


class DLPackError(Exception):
    """A capsule that is none, is used up, or holds what has no element type here; the message is half a sentence."""


@attrs.frozen(kw_only=True)
class Described:
    """What a capsule holds. `strides` are in bytes; the capsule keeps the memory alive."""

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype[Any]
    kind: int
    device: int
    readonly: bool
    capsule: Any = attrs.field(repr=False)


def described(capsule: Any) -> Described:
    """Return what a capsule that was never consumed holds; it is not consumed, so whoever holds it holds the memory."""
    readonly = False
    if _is_valid(capsule, NEW):
        managed = _Versioned.from_address(_pointer_of(capsule, NEW) or 0)
        if managed.major != 1:
            raise DLPackError(f"it is of DLPack version {managed.major}, version 1 is known")
        tensor, readonly = managed.tensor, bool(managed.flags & _READ_ONLY)
    elif _is_valid(capsule, OLD):
        tensor = _Managed.from_address(_pointer_of(capsule, OLD) or 0).tensor
    else:
        raise DLPackError(f"__dlpack__ gave a {type(capsule).__name__} that is no unused DLPack capsule")
    dtype = _dtype(tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes)
    shape = tuple(tensor.shape[axis] for axis in range(tensor.ndim))
    if tensor.strides:
        steps = tuple(tensor.strides[axis] for axis in range(tensor.ndim))
    else:
        steps = tuple(int(np.prod(shape[axis + 1 :], dtype=np.int64)) for axis in range(tensor.ndim))
    return Described(
        address=(tensor.data or 0) + tensor.byte_offset,
        shape=shape,
        strides=tuple(step * dtype.itemsize for step in steps),
        dtype=dtype,
        kind=tensor.device.kind,
        device=tensor.device.number,
        readonly=readonly,
        capsule=capsule,
    )


def host_view(value: Any) -> np.ndarray[Any, np.dtype[Any]]:
    """Return an array over what `value` exports of this host's memory, of any element type that has a name here.

    It keeps that memory alive, and is read-only where the capsule does not say that it may be written. Raises
    DLPackError for memory of a device, and what `value` raises.
    """
    try:
        capsule = value.__dlpack__(max_version=(1, 0))
    except TypeError:  # made before version 1
        capsule = value.__dlpack__()
    found = described(capsule)
    if found.kind != CPU:
        raise DLPackError(f"it lies in {KINDS.get(found.kind, f'a device of kind {found.kind}')}")
    readonly = found.readonly or not _is_valid(capsule, NEW)
    interface = {
        "data": (found.address, readonly),
        "shape": found.shape,
        "strides": found.strides,
        "typestr": _BITS[found.dtype.itemsize],
    }
    return np.asarray(_Held(interface, (capsule, value))).view(found.dtype)


def _dtype(code: int, bits: int, lanes: int) -> np.dtype[Any]:
    if lanes == 1 and code == _BFLOAT and bits == 16:
        return numpy_dtype("bf16")
    if lanes == 1 and code in _FP8 and bits == 8:
        return numpy_dtype(_FP8[code])
    letter = {_INT: "i", _UINT: "u", _FLOAT: "f"}.get(code)
    if lanes == 1 and code == _BOOL and bits == 8:
        return np.dtype(np.bool_)
    if letter is None or lanes != 1 or bits not in (8, 16, 32, 64) or (letter == "f" and bits == 8):
        raise DLPackError(
            f"its elements are of DLPack's type ({code}, {bits} bits, {lanes} lanes), which has no name here"
        )
    return np.dtype(f"{letter}{bits // 8}")


def _code(dtype: np.dtype[Any]) -> int:
    for code, name in _FP8.items():
        if dtype == numpy_dtype(name):
            return code
    if dtype == numpy_dtype("bf16"):
        return _BFLOAT
    return {"i": _INT, "u": _UINT, "f": _FLOAT, "b": _BOOL}[dtype.kind]


def capsule_of(
    address: int,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    dtype: np.dtype[Any],
    *,
    kind: int,
    device: int,
    owner: object,
) -> Any:
    """Return a capsule over memory that `owner` keeps alive; strides are in bytes.

    numpy makes it, of the same addresses on this host, and its end is numpy's: a capsule may end while an error is
    raised, where Python code of ours could not run.
    """
    interface = {"data": (address, False), "shape": shape, "strides": strides, "typestr": _BITS[dtype.itemsize]}
    capsule = np.asarray(_Held(interface, owner)).__dlpack__()
    tensor = _Managed.from_address(_pointer_of(capsule, OLD) or 0).tensor
    tensor.device.kind, tensor.device.number = kind, device
    tensor.dtype.code = _code(dtype)
    return capsule


class _Held:
    """Memory as numpy takes it, which holds the owner as long as it holds this."""

    def __init__(self, interface: dict[str, Any], owner: object) -> None:
        self.__array_interface__, self.owner = interface | {"version": 3}, owner
