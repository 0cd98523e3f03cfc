"""Device tensors of other libraries: anything with `__dlpack__`, or with the array interface of device memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, cast

import numpy as np

from kinfolk.errors import BindError
from kinfolk.plugins.faults import sentence_of
from kinfolk_runtime.device_array import DeviceArray
from kinfolk_runtime.hip.dlpack import KINDS, ROCM, DLPackError, described
from kinfolk_runtime.tensors import DTYPES

INTERFACES: Final = ("__hip_array_interface__", "__cuda_array_interface__")
WaitFor = Callable[[int], None]


def device_array(name: str, value: Any, dtype: str, device: int, stream: int, wait_for: WaitFor) -> DeviceArray | None:
    """Return a tensor that lies in a device's memory, sharing it; None where `value` is an array of this host or none.

    The producer is asked to make it ready on `stream`; `wait_for` is called with the producer's stream where it says
    one. Raises BindError where it lies on another device, or cannot be read.
    """
    if isinstance(value, DeviceArray):
        found = value
    elif _device_kind(name, value) is not None:
        found = _through_dlpack(name, value, stream)
    elif attribute := next((each for each in INTERFACES if hasattr(value, each)), None):
        found = _through_interface(name, value, attribute, dtype, device, wait_for)
    else:
        return None
    if found.kind != ROCM:
        where = KINDS.get(found.kind, f"a device of DLPack's kind {found.kind}")
        raise BindError(f"{name} lies in {where}, the memory of ROCm device {device} is needed. Copy it there.")
    if found.device != device:
        raise BindError(
            f"{name} lies on device {found.device}, the executor launches on device {device}. Copy it there, or make "
            f"the executor of device {found.device}."
        )
    return found


def _device_kind(name: str, value: Any) -> tuple[int, int] | None:
    """Return DLPack's kind and number of where a value lies, if that is no memory of this host; else None."""
    if isinstance(value, np.ndarray) or not (hasattr(value, "__dlpack__") and hasattr(value, "__dlpack_device__")):
        return None
    try:
        kind, number = value.__dlpack_device__()
        kind, number = int(kind), int(number)
    except Exception as error:
        raise BindError(
            f"{name}: __dlpack_device__ cannot be read: {sentence_of(error)}. Pass another array."
        ) from error
    return None if kind == 1 else (kind, number)


def _through_dlpack(name: str, value: Any, stream: int) -> DeviceArray:
    kind, number = cast("tuple[int, int]", _device_kind(name, value))
    if kind != ROCM:  # asking for a capsule there could touch a stream of another kind
        return DeviceArray(address=0, shape=(), strides=(), dtype=np.dtype(np.uint8), device=number, kind=kind)
    try:
        found = described(value.__dlpack__(stream=stream))
    except DLPackError as error:
        raise BindError(f"{name}: {error}. Pass another array.") from error
    except Exception as error:
        raise BindError(f"{name}: its DLPack cannot be read: {sentence_of(error)}. Pass another array.") from error
    return DeviceArray(
        address=found.address,
        shape=found.shape,
        strides=found.strides,
        dtype=found.dtype,
        device=found.device,
        kind=found.kind,
        readonly=found.readonly,
        owner=(found.capsule, value),
        given=value,
    )


def _through_interface(
    name: str, value: Any, attribute: str, dtype: str, device: int, wait_for: WaitFor
) -> DeviceArray:
    try:
        interface = cast("Mapping[str, Any]", getattr(value, attribute))
        address, readonly = interface["data"]
        shape = tuple(int(extent) for extent in interface["shape"])
        found = np.dtype(interface["typestr"])
        steps = interface.get("strides")
        strides = tuple(int(step) for step in steps) if steps is not None else _contiguous(shape, found.itemsize)
        stream = interface.get("stream")
        if interface.get("mask") is not None:
            raise BindError(f"{name} is a masked array, and no kernel sees a mask. Fill it.")
        if len(strides) != len(shape) or any(extent < 0 for extent in shape):
            raise ValueError(f"shape {shape} and strides {strides} do not fit")
        if not found.isnative:
            raise ValueError(f"its elements {interface['typestr']} are not in this host's byte order")
    except BindError:
        raise
    except Exception as error:
        raise BindError(f"{name}: its {attribute} cannot be read: {sentence_of(error)}. Pass another array.") from error
    if stream is not None:
        wait_for(0 if stream in (0, 1) else int(stream))
    wanted = DTYPES[dtype]
    if wanted.kind == "V" and found.itemsize == wanted.itemsize and found.kind in "uV":
        found = wanted  # the interface has no name for it, so its bits are passed
    return DeviceArray(
        address=int(address or 0),
        shape=shape,
        strides=strides,
        dtype=found,
        device=device,
        readonly=bool(readonly),
        owner=value,
        given=value,
    )


def _contiguous(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    return tuple(int(np.prod(shape[axis + 1 :], dtype=np.int64)) * itemsize for axis in range(len(shape)))
