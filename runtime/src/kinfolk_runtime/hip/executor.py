"""The executor of HIP devices: linked code objects, launched on a caller's stream."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Integral, Number
from typing import TYPE_CHECKING, Any, Self, cast

import numpy as np

from kinfolk.arch import Arch
from kinfolk.errors import BindError
from kinfolk.plan import ArgumentValue, Kind
from kinfolk_runtime.device_array import DeviceArray
from kinfolk_runtime.executor import Work
from kinfolk_runtime.hip.device import Allocation, check_threads, device_of
from kinfolk_runtime.hip.driver import Driver, Handle, telling
from kinfolk_runtime.hip.memory import DeviceMemory
from kinfolk_runtime.packing import packed

if TYPE_CHECKING:
    from kinfolk_runtime.bound import Bound
    from kinfolk_runtime.hip.graph import Captured
    from kinfolk_runtime.image import Image


class HipExecutor:
    """Launches on one stream of one device, in order with all else there; nothing is waited for but host arrays.

    `stream` is a number as HIP has it, or an object that says its own (`stream_number`); 0 is the null stream. One
    executor may be used by several threads: what each enqueues is in its order. Raises HipUnavailable where HIP cannot
    be used here, naming what is missing and how to mend it.
    """

    name = "hip"

    def __init__(self, device: int = 0, stream: Any = 0, *, driver: Driver | None = None) -> None:
        if driver is None:
            from kinfolk_runtime.hip.hip_python import hip_python

            driver = hip_python()
        self.device = device_of(driver, device)
        self.stream = stream_number(stream)
        self.memory = DeviceMemory(self.device, self.stream)

    @property
    def target(self) -> str:
        """The device's target id, such as `gfx942:sramecc+:xnack-`."""
        return self.device.properties.target

    @property
    def driver(self) -> Driver:
        """HIP's calls."""
        return self.device.driver

    def on(self, stream: Any) -> Self:
        """Return an executor of the same device, its loaded code objects shared, on another stream."""
        other = object.__new__(type(self))
        other.device, other.stream = self.device, stream_number(stream)
        other.memory = DeviceMemory(self.device, other.stream)
        return other

    def admit(self, arch: Arch, images: tuple[Image, ...]) -> None:
        """Load code objects; raise BindError for what this device is not, or does not run."""
        self.device.check(arch, images)
        for image in images:
            self.device.function(image)

    def expect_grid(self, image: Image, grid: tuple[int, int, int]) -> None:
        """Raise BindError where HIP does not launch so many workgroups."""
        check_threads(image, grid)

    def run(self, work: Work) -> None:
        """Enqueue one launch."""
        image = work.image
        if image is None:
            raise BindError(f"{work.kernel.name} has no code object to launch. Bind it for this executor.")
        arguments = kernel_arguments(image, work.arguments)
        function = self.device.function(image)
        with self.device.active(), telling(f"{image.symbol} on {self.device}"):
            self.driver.launch(function, work.grid, image.block, self.stream, arguments)

    def array(self, values: Any) -> DeviceArray:
        """Return an array of this host copied into the device's memory, from which `numpy()` copies it back."""
        return self.memory.uploaded(values)

    def flusher(self, size: int) -> Callable[[], None]:
        """Return what writes over so many bytes of memory of its own, and so over what caches hold; 0: nothing."""
        if not size:
            return lambda: None
        scratch = Allocation(self.device, size, self.stream, "what is written between launches")

        def flush() -> None:
            with self.device.active(), telling(f"memory of {self.device}"):
                self.driver.fill(scratch.address, 0, scratch.size, self.stream)

        return flush

    def capture(self, bound: Bound) -> Captured:
        """Return a bound plan as a graph; see `kinfolk_runtime.hip.graph.capture`."""
        from kinfolk_runtime.hip.graph import capture

        return capture(bound)

    def synchronize(self) -> None:
        """Wait for all that is enqueued on the stream."""
        with self.device.active(), telling(f"stream {self.stream:#x} of {self.device}"):
            self.driver.synchronize(self.stream)

    def mark(self) -> Handle:
        """Return an event that is recorded on the stream; `elapsed_ms` takes two, `forget` lets go of one."""
        with self.device.active(), telling(f"stream {self.stream:#x} of {self.device}"):
            event = self.driver.create_event()
            try:
                self.driver.record(event, self.stream)
            except BaseException:
                self.driver.destroy_event(event)
                raise
            return event

    def elapsed_ms(self, start: Handle, end: Handle) -> float:
        """Return the milliseconds between two marks; waits for the second."""
        with self.device.active(), telling(f"events of {self.device}"):
            self.driver.wait_for_event(end)
            return self.driver.elapsed_ms(start, end)

    def forget(self, mark: Handle) -> None:
        """Let go of a mark."""
        with self.device.active(), telling(f"events of {self.device}"):
            self.driver.destroy_event(mark)


def stream_number(stream: Any) -> int:
    """Return HIP's number of a stream: a number, None for the null stream, or what an object says of itself.

    Objects say it by `__cuda_stream__()` or `cuda_stream` (torch), or by being convertible to an int (hip-python).
    Raises TypeError for anything else.
    """
    if stream is None:
        return 0
    if type(stream) is int and 0 <= stream < 2**64:
        return stream
    if isinstance(stream, Integral) or not isinstance(stream, (Number, str)):
        asked: Any = getattr(stream, "__cuda_stream__", None)
        if callable(asked):
            return int(cast("tuple[int, int]", asked())[1])
        told: Any = getattr(stream, "cuda_stream", None)
        if type(told) is int:
            return told
        if hasattr(stream, "__int__") and not isinstance(stream, (int, np.ndarray)):
            return int(stream)
    raise TypeError(f"stream takes a number, or an object with __cuda_stream__ or cuda_stream, got {stream!r}")


def kernel_arguments(image: Image, values: tuple[object, ...]) -> bytes:
    """Return arguments in parameter order as the kernel reads them, by the offsets that its code object states."""
    addresses: dict[str, int] = {}
    named: list[ArgumentValue] = []
    for parameter, value in zip(image.parameters, values, strict=True):
        if isinstance(value, DeviceArray):
            addresses[parameter.name] = value.address
            named.append(ArgumentValue(parameter.name, "pointer", parameter.name))
        else:
            assert isinstance(value, int | float)
            named.append(ArgumentValue(parameter.name, cast("Kind", parameter.kind), value))
    return packed(named, image.usage.arguments, addresses)
