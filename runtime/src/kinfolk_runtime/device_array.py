"""Arrays in the memory of a device: an address with a geometry, and the object that keeps that memory alive."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import attrs
import numpy as np
import numpy.typing as npt

from kinfolk.errors import BindError

Array = npt.NDArray[Any]

_TYPESTRS: Final = {1: "|u1", 2: "<u2", 4: "<u4", 8: "<u8"}


@attrs.frozen(kw_only=True, eq=False)
class DeviceArray:
    """A tensor in device memory. `strides` are in bytes, `address` is of the first element; `owner` keeps it alive.

    `host` is the array on this host that it stands for, where a caller passed one. `given` is what a caller passed, and
    gets back as an output. `download` returns the contents; it waits for what is before it on the stream.
    """

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype[Any]
    device: int = 0
    readonly: bool = False
    owner: Any = attrs.field(default=None, repr=False)
    host: Array | None = attrs.field(default=None, repr=False)
    given: Any = attrs.field(default=None, repr=False)
    download: Callable[[DeviceArray], Array] | None = attrs.field(default=None, repr=False)
    export: Callable[[DeviceArray, Any], Any] | None = attrs.field(default=None, repr=False)
    kind: int = 10
    """DLPack's number of the kind of device."""

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return self.dtype.itemsize

    @property
    def size(self) -> int:
        """How many elements it has."""
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def span_bytes(self) -> int:
        """Bytes from the first element to the end of the last; 0 where there is none."""
        if 0 in self.shape:
            return 0
        return sum((n - 1) * step for n, step in zip(self.shape, self.strides, strict=True)) + self.itemsize

    def geometry(self) -> Array:
        """Return an array over the same addresses, to be asked for where it lies and never for what it holds."""
        interface = {**self.__cuda_array_interface__, "typestr": f"|V{self.itemsize}"}
        return np.asarray(
            _Interface({name: interface[name] for name in ("data", "shape", "strides", "typestr", "version")})
        )

    def numpy(self) -> Array:
        """Return a copy on this host; waits for what was enqueued before on the stream."""
        if self.download is None:
            raise BindError("this device array cannot be copied to the host: nobody said how")
        return self.download(self)

    @property
    def __cuda_array_interface__(self) -> Mapping[str, Any]:
        """The array interface of device memory; bf16 and fp8, which it has no names for, as unsigned integers."""
        named = self.dtype.str if self.dtype.kind in "iufb" else _TYPESTRS[self.itemsize]
        return {
            "data": (self.address, self.readonly),
            "shape": self.shape,
            "strides": self.strides,
            "typestr": named,
            "version": 2,
        }

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return DLPack's kind and number of the device."""
        return self.kind, self.device

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """Return a DLPack capsule of the form before version 1, which every consumer reads; it keeps the memory alive.

        `stream` is where the consumer will use it. Raises BufferError where a copy or another device is asked for, and
        for an array that is read-only, which that form cannot say.
        """
        if copy or dl_device not in (None, self.__dlpack_device__()):
            raise BufferError(f"device {self.device} is where this array lies, and nothing is copied. Copy it there")
        if self.readonly:
            raise BufferError("this device array is read-only, which a capsule of this form cannot say. Copy it")
        if self.export is None:
            raise BufferError("this device array cannot be exported: nobody said how")
        return self.export(self, stream)


class _Interface:
    def __init__(self, interface: Mapping[str, Any]) -> None:
        self.__array_interface__ = interface
