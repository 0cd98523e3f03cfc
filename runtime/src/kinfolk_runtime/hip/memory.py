"""Tensors in a device's memory, all in the order of one stream; arrays of this host are copied there and back."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, cast

import attrs
import numpy as np

from kinfolk.check.sparse import SparseArray
from kinfolk.errors import BindError
from kinfolk_runtime.device_array import DeviceArray
from kinfolk_runtime.hip.device import Allocation, Device
from kinfolk_runtime.hip.dlpack import capsule_of
from kinfolk_runtime.hip.driver import HipError, telling
from kinfolk_runtime.hip.interchange import device_array
from kinfolk_runtime.simulator.buffers import span_bytes
from kinfolk_runtime.tensors import DTYPES, NAMES, Array, Tensor, check_dtype, host_array

if TYPE_CHECKING:
    from kinfolk.plan import Plan

ALIGNMENT: Final = 256
"""Bytes that every allocation begins at a multiple of."""


class DeviceMemory:
    """Memory of a device as the binder sees it, on one stream."""

    def __init__(self, device: Device, stream: int) -> None:
        self.device, self.stream = device, stream

    def taken(self, name: str, value: Any, dtype: str) -> Tensor:
        """Return a tensor that shares a caller's device memory, or one that an array of this host is copied to."""
        if isinstance(value, SparseArray):
            return Tensor(name, value)  # which the binder refuses by name
        found = device_array(name, value, dtype, self.device.number, self.stream, self._wait_for)
        if found is not None:
            check_dtype(name, found.dtype, dtype)
            if found.size and not found.address:
                raise BindError(f"{name} has {found.size} elements at address 0. Pass memory that is allocated.")
            self._use(found)
            return Tensor(
                name, attrs.evolve(found, given=value, host=None, download=self._download, export=self._export)
            )
        array = host_array(name, value)
        check_dtype(name, array.dtype, dtype)
        if any(step < 0 for step in array.strides):
            return Tensor(name, array)  # which the binder refuses by name
        size = span_bytes(array)
        allocation = Allocation(self.device, size, self.stream, name)
        return Tensor(
            name,
            DeviceArray(
                address=allocation.address,
                shape=array.shape,
                strides=array.strides,
                dtype=array.dtype,
                device=self.device.number,
                readonly=not array.flags.writeable,
                owner=allocation,
                host=array,
                given=value,
                download=self._download,
            ),
        )

    def uploaded(self, values: Any) -> DeviceArray:
        """Return new memory with the values of an array of this host."""
        array = np.ascontiguousarray(host_array("array", values))
        if array.dtype not in NAMES:
            raise BindError(f"an array of {array.dtype} has no element type here. Convert it.")
        steps = [step // array.itemsize for step in array.strides]
        allocation = Allocation(self.device, array.nbytes, self.stream, "array")
        held = self.array_at(allocation.address, NAMES[array.dtype], array.shape, steps, allocation)
        with self.device.active(), telling(f"array on {self.device}"):
            if array.nbytes:
                self.device.driver.upload(allocation.address, _span(array), self.stream)
                self.device.driver.synchronize(self.stream)  # what was passed may change from now on
        return held

    def allocated(self, name: str, dtype: str, shape: Sequence[int], strides: Sequence[int], alignment: int) -> Tensor:
        """Return new memory of the device, filled with poison in the stream's order."""
        element = DTYPES[dtype]
        empty = 0 in shape
        last = -1 if empty else sum((extent - 1) * step for extent, step in zip(shape, strides, strict=True))
        size = (last + 1) * element.itemsize
        allocation = Allocation(self.device, size + max(0, alignment - ALIGNMENT), self.stream, name)
        address = allocation.address + -allocation.address % alignment
        held = self.array_at(address, dtype, shape, strides, allocation)
        try:
            with self.device.active(), telling(f"{name} on {self.device}"):
                if size:
                    self.device.driver.fill(address, 0x80 if dtype.endswith("FNUZ") else 0xFF, size, self.stream)
        except BaseException:
            allocation.free()
            raise
        return Tensor(name, held)

    def array_at(
        self, address: int, dtype: str, shape: Sequence[int], strides: Sequence[int], owner: Allocation
    ) -> DeviceArray:
        """Return an array over memory that is allocated; strides count elements."""
        element = DTYPES[dtype]
        return DeviceArray(
            address=address,
            shape=tuple(shape),
            strides=tuple(step * element.itemsize for step in strides),
            dtype=element,
            device=self.device.number,
            owner=owner,
            download=self._download,
            export=self._export,
        )

    def part(self, held: Tensor, dtype: str, shape: Sequence[int], strides: Sequence[int]) -> Tensor:
        """Return allocated bytes as a tensor, sharing them."""
        value = held.value
        assert isinstance(value, DeviceArray)
        return Tensor(held.name, self.array_at(value.address, dtype, shape, strides, value.owner))

    def contents(self, held: Tensor) -> Array:
        """Return what a tensor holds when what was enqueued before is done; of an array of this host, that array."""
        value = held.value
        if not isinstance(value, DeviceArray):
            return held.array
        if value.host is not None:
            return value.host
        with telling(f"{held.name} on {self.device}"):
            return self._download(value)

    def abandon(self, tensors: Mapping[str, Tensor]) -> None:
        """Wait for copies from and to arrays of this host, after a call that failed on its way."""
        if any(isinstance(held.value, DeviceArray) and held.value.host is not None for held in tensors.values()):
            with suppress(HipError), self.device.active():  # what failed before is the error
                self.device.driver.synchronize(self.stream)

    def begin(self, plan: Plan, tensors: Mapping[str, Tensor], supplied: Collection[str]) -> dict[str, Any]:
        """Enqueue copies of this host's arrays, and zeros for status words."""
        passed: dict[str, Any] = {}
        driver = self.device.driver
        with self.device.active():
            for binding in plan.bindings:
                value = tensors[binding.name].value
                assert isinstance(value, DeviceArray)  # no other kind passes the binder's checks
                passed[binding.name] = value
                with telling(f"{binding.name} on {self.device}"):
                    if binding.role == "status":
                        if value.host is not None:
                            value.host[...] = 0
                        if value.span_bytes:
                            driver.fill(value.address, 0, value.span_bytes, self.stream)
                    elif value.host is not None and value.span_bytes and binding.role in ("input", "output"):
                        driver.upload(value.address, _span(value.host), self.stream)
        return passed

    def finish(self, plan: Plan, tensors: Mapping[str, Tensor]) -> dict[str, Any]:
        """Return outputs as they were passed, or as device arrays; wait where arrays of this host take part."""
        outputs: dict[str, Any] = {}
        arrived: list[tuple[Array, DeviceArray]] = []
        with self.device.active():
            for binding in plan.bindings:
                value = tensors[binding.name].value
                assert isinstance(value, DeviceArray)
                if binding.role in ("output", "status") and value.host is not None and value.span_bytes:
                    with telling(f"{binding.name} on {self.device}"):
                        bytes_back = np.empty(value.span_bytes, np.uint8)
                        self.device.driver.download(bytes_back, value.address, self.stream)
                        arrived.append((bytes_back, value))
            if any(cast("DeviceArray", held.value).host is not None for held in tensors.values()):
                with telling(f"launches on {self.device}"):
                    self.device.driver.synchronize(self.stream)
        for bytes_back, value in arrived:
            assert value.host is not None
            value.host[...] = _strided(bytes_back, value)  # elements alone: what lies between them is not ours
        for name in plan.outputs:
            value = tensors[name].value
            assert isinstance(value, DeviceArray)
            outputs[name] = value if value.given is None else value.given
        return outputs

    def release(self, held: Tensor) -> None:
        """Free what was allocated here."""
        value = held.value
        owner = value.owner if isinstance(value, DeviceArray) and _is_ours(value) else None
        if isinstance(owner, Allocation):
            owner.free()

    def _download(self, value: DeviceArray) -> Array:
        found = np.empty(value.span_bytes, np.uint8)
        if found.size:
            with self.device.active(), telling(f"reading from {self.device}"):
                if self.device.driver.is_capturing(self.stream):
                    raise BindError(
                        "contents would be read on a stream that is being captured. Look into them before the capture "
                        "begins."
                    )
                self._wait_for_others(value)
                self.device.driver.download(found, value.address, self.stream)
                self.device.driver.synchronize(self.stream)
        return _strided(found, value).copy()

    def _export(self, value: DeviceArray, stream: Any) -> Any:
        """Return a DLPack capsule; the consumer's stream waits for ours. None is the null stream, -1 waits not."""
        theirs = 0 if stream is None else int(stream)
        if theirs != -1:
            self._wait_for_others(value, theirs)
            if theirs != self.stream:
                self._order(self.stream, theirs)
        return capsule_of(
            value.address,
            value.shape,
            value.strides,
            value.dtype,
            kind=value.kind,
            device=value.device,
            owner=value,
        )

    def _wait_for(self, stream: int) -> None:
        if stream != self.stream:
            self._order(stream, self.stream)

    def _order(self, first: int, then: int) -> None:
        with self.device.active(), telling(f"streams of {self.device}"):
            if any(self.device.driver.is_capturing(stream) for stream in (first, then)):
                raise BindError(
                    f"stream {then:#x} would wait for stream {first:#x} while one of them is being captured. Bind "
                    f"before the capture begins."
                )
        self.device.order(first, then)

    def _use(self, value: DeviceArray) -> None:
        """Let this stream wait for others that use an array's memory, and those who use or free it wait for this."""
        if isinstance(value.owner, Allocation):
            self._wait_for(value.owner.stream)
            self._wait_for_others(value)
            if self.stream != value.owner.stream:
                value.owner.elsewhere.add(self.stream)

    def _wait_for_others(self, value: DeviceArray, stream: int | None = None) -> None:
        """Let a stream, or this one, wait for those that use an array's memory beside the one it was allocated on."""
        then = self.stream if stream is None else stream
        if isinstance(value.owner, Allocation):
            for other in value.owner.elsewhere - {then}:
                self._order(other, then)


def _is_ours(value: DeviceArray) -> bool:
    """Return whether the memory was allocated for a binding, and not brought by a caller."""
    return value.given is None or value.host is not None


def _span(array: Array) -> Array:
    """Return the bytes of an array from its first element to the end of its last, shared."""
    flat = np.lib.stride_tricks.as_strided(array, (1,) * array.ndim).reshape(-1)[:1]
    return np.lib.stride_tricks.as_strided(flat.view(np.uint8), (span_bytes(array),), (1,))


def _strided(data: Array, value: DeviceArray) -> Array:
    """Return bytes of a span as the array that they are."""
    if 0 in value.shape:
        return np.empty(value.shape, value.dtype)
    return np.ndarray(value.shape, value.dtype, data, 0, value.strides)
