"""What the executor asks of HIP, one method per call, and how a call that fails is told."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Protocol

import attrs

from kinfolk.errors import KinfolkError
from kinfolk_runtime.executor import ExecutorUnavailable
from kinfolk_runtime.tensors import Array

if TYPE_CHECKING:
    from kinfolk_runtime.hip.device import Device

Handle = Any
"""A module, function, event or graph, of whatever kind the driver has for it."""

_GENERAL: Final = "`kinfolk doctor` says what of HIP is installed here"
_STREAM: Final = "A stream of another device, or one that was destroyed, was passed: pass one of this device"
_DAMAGED: Final = "The code object is damaged: compile the plan again, or emit the bundle again"
REMEDIES: Final = {
    "hipErrorOutOfMemory": "Free memory on the device, or dispatch a smaller problem",
    "hipErrorNoBinaryForGpu": "The code object is for another device: dispatch for this device's arch",
    "hipErrorInvalidImage": _DAMAGED,
    "hipErrorSharedObjectInitFailed": _DAMAGED,
    "hipErrorInvalidKernelFile": _DAMAGED,
    "hipErrorNotFound": "The code object does not hold that kernel: compile the plan again",
    "hipErrorInvalidHandle": _STREAM,
    "hipErrorInvalidResourceHandle": _STREAM,
    "hipErrorContextIsDestroyed": "The device was reset: make the executor anew",
    "hipErrorIllegalAddress": "This kernel, or work before it on the device, reached memory that is not its own: run "
    "the request under `kinfolk verify`, whose sanitizers say where. The process has to be started again",
    "hipErrorLaunchFailure": "This kernel, or work before it on the device, failed while it ran: run the request under "
    "`kinfolk verify`, whose sanitizers say where. The process has to be started again",
    "hipErrorLaunchTimeOut": "The kernel ran too long: dispatch a smaller problem",
    "hipErrorLaunchOutOfResources": "The kernel takes more than this device has: `kinfolk resources` says what",
    "hipErrorStreamCaptureUnsupported": "This cannot be part of a graph: bind, allocate and look into contents before "
    "the capture begins",
    "hipErrorStreamCaptureInvalidated": "Something that cannot be part of a graph came between: capture again without",
    "hipErrorStreamCaptureImplicit": "The null stream cannot take part in a capture: pass a stream of your own",
    "hipErrorNotSupported": "This device or this HIP lacks what the call is for: update HIP",
    "hipErrorInvalidDevice": "There is no such device: `kinfolk doctor` says which there are",
    "hipErrorNoDevice": "There is no device: run on the simulator, or on a host with one",
}


class HipUnavailable(ExecutorUnavailable):
    """HIP cannot be used on this host: hip-python, the library or a device is missing, or they do not fit together."""


class HipError(KinfolkError):
    """A HIP call failed. `call` is its name, `code` its number, `name` HIP's name of that number, `about` what it was
    for.
    """

    def __init__(self, call: str, code: int, name: str, text: str = "", about: str = "") -> None:
        self.call, self.code, self.name, self.text, self.about = call, code, name, text, about
        subject = f"{about}: " if about else ""
        said = f", {text}" if text and text != name else ""
        remedy = REMEDIES.get(name, f"{name} is told in HIP's documentation; {_GENERAL}")
        super().__init__(f"{subject}{call} failed with {name} ({code}){said}. {remedy}.")


@contextmanager
def telling(about: str) -> Generator[None]:
    """Say of an error inside what the call was for, unless that is said already."""
    try:
        yield
    except HipError as error:
        if error.about:
            raise
        raise HipError(error.call, error.code, error.name, error.text, about) from error


@attrs.frozen(kw_only=True)
class DeviceProperties:
    """What a device says of itself: its target id with features, and numbers under the names that archs give them."""

    name: str
    target: str
    compute_units: int
    lds_bytes: int
    wave_size: int
    max_workgroup_size: int


class Driver(Protocol):
    """HIP as this executor uses it. Addresses and streams are numbers, 0 is the null stream.

    Every method raises HipError naming its HIP call. Nothing else of HIP is used. `devices` are those that were opened.
    """

    devices: dict[int, Device]

    def runtime_version(self) -> int: ...
    def device_count(self) -> int: ...
    def properties(self, device: int) -> DeviceProperties: ...
    def device(self) -> int: ...
    def set_device(self, device: int) -> None: ...
    def load_module(self, code: bytes) -> Handle: ...
    def unload_module(self, module: Handle) -> None: ...
    def function(self, module: Handle, symbol: str) -> Handle: ...
    def launch(
        self, function: Handle, grid: tuple[int, int, int], block: int, stream: int, arguments: bytes
    ) -> None: ...
    def allocate(self, size: int, stream: int) -> int: ...
    def free(self, address: int, stream: int) -> None: ...
    def upload(self, address: int, data: Array, stream: int) -> None:
        """Copy contiguous bytes of the host, which stay as they are until the stream is waited for."""
        ...

    def download(self, data: Array, address: int, stream: int) -> None:
        """Copy into contiguous bytes of the host, which hold it when the stream was waited for."""
        ...

    def fill(self, address: int, byte: int, size: int, stream: int) -> None: ...
    def create_stream(self) -> int: ...
    def destroy_stream(self, stream: int) -> None: ...
    def synchronize(self, stream: int) -> None: ...
    def create_event(self) -> Handle: ...
    def destroy_event(self, event: Handle) -> None: ...
    def record(self, event: Handle, stream: int) -> None: ...
    def wait(self, stream: int, event: Handle) -> None: ...
    def wait_for_event(self, event: Handle) -> None: ...
    def elapsed_ms(self, start: Handle, end: Handle) -> float: ...
    def is_capturing(self, stream: int) -> bool: ...
    def begin_capture(self, stream: int) -> None: ...
    def end_capture(self, stream: int) -> Handle: ...
    def instantiate(self, graph: Handle) -> Handle: ...
    def launch_graph(self, executable: Handle, stream: int) -> None: ...
    def destroy_graph(self, graph: Handle) -> None: ...
    def destroy_executable(self, executable: Handle) -> None: ...
