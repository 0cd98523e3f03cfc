"""Arrays of this host and tensors of torch, each as the other without a copy, bf16 and fp8 (ml_dtypes) too."""

from __future__ import annotations

from typing import Any

from kinfolk.errors import BindError
from kinfolk_runtime.device_array import DeviceArray
from kinfolk_runtime.hip.dlpack import CPU, capsule_of
from kinfolk_runtime.tensors import NAMES, Array, host_array
from kinfolk_runtime.torch.library import dtype_of, torch


def array_of(tensor: Any) -> Array:
    """Return a tensor of this host as an array over the same memory, its gradient left behind.

    Raises BindError where it lies on a device, is laid out in no strides, or its memory holds what it negates.
    """
    if tensor.is_neg():  # which torch itself hands out with the wrong sign
        raise BindError("tensor is negated when it is read, its memory is not. Pass `.resolve_neg()`.")
    return host_array("tensor", tensor.detach())


def tensor_of(array: Array | DeviceArray) -> Any:
    """Return an array as a tensor over the same memory: of this host, or of the device where it lies.

    Raises BindError for an element type that torch has none for, and for an array that is read-only, since torch writes
    to any tensor.
    """
    if isinstance(array, DeviceArray):
        return torch.from_dlpack(array)
    if (element := NAMES.get(array.dtype)) is None:
        raise BindError(f"array: dtype is {array.dtype}, which is no element type of a kernel. Convert it.")
    dtype_of(element)
    if not array.flags.writeable:
        raise BindError("array is read-only, and torch writes to any tensor. Pass a copy, as by `.copy()`.")
    capsule = capsule_of(array.ctypes.data, array.shape, array.strides, array.dtype, kind=CPU, device=0, owner=array)
    return torch.from_dlpack(capsule)
