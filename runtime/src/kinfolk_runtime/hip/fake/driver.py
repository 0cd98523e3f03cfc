"""The driver of a fake device: the same methods as HIP's, every call recorded, each of them made to fail on request."""

from __future__ import annotations

import struct
import threading
from collections import Counter
from collections.abc import Iterable
from itertools import chain, repeat
from typing import Any, Final

import attrs
import numpy as np

from kinfolk.arch import Arch
from kinfolk.errors import KinfolkError
from kinfolk.ir.value import Kernel
from kinfolk.plan import Plan
from kinfolk.usage import Usage
from kinfolk_runtime.artifact import Artifact, sha256
from kinfolk_runtime.device_array import DeviceArray
from kinfolk_runtime.hip.device import FACTS, Device, target_mismatch
from kinfolk_runtime.hip.driver import DeviceProperties
from kinfolk_runtime.hip.fake.memory import FakeMemory
from kinfolk_runtime.hip.fake.streams import CODES, Event, Graph, Streams, failure
from kinfolk_runtime.image import image_of
from kinfolk_runtime.simulator.buffers import Buffer, span_bytes
from kinfolk_runtime.simulator.engine import Simulator
from kinfolk_runtime.tensors import Array

VERSION: Final = 60_443_482
_FORMS: Final = {("value", "i32"): "<i", ("value", "i64"): "<q", ("value", "f32"): "<f"}


@attrs.frozen
class Call:
    """One call as it came: HIP's name, the device that was current, and what was passed."""

    name: str
    device: int
    passed: dict[str, Any]


@attrs.frozen
class Launched:
    """One launch as the device saw it when it ran: the kernel's name, workgroups, lanes, argument bytes, its stream."""

    symbol: str
    grid: tuple[int, int, int]
    block: int
    arguments: bytes
    stream: int


@attrs.define(eq=False)
class _Module:
    code: bytes
    device: int
    digest: str
    unloaded: bool = False


@attrs.frozen(eq=False)
class _Function:
    module: _Module
    symbol: str
    usage: Usage


class FakeDriver:
    """A driver of devices that are what an arch declares, unless `properties` say otherwise; for one thread at a time.

    Work is done when its stream is waited for, so that what is not in order shows. A kernel that was taught runs on the
    simulator, on the bytes that its argument block says. `launch_ms` are the milliseconds that launches take, one after
    the other; 1 each by default.
    """

    def __init__(
        self,
        arch: Arch,
        *,
        target: str = "",
        devices: int = 1,
        launch_ms: Iterable[float] = (),
        **properties: Any,
    ) -> None:
        facts = {name: arch.facts.get(name, 0) for name in FACTS}
        told: dict[str, Any] = {"name": "a fake device", "target": target or arch.target_ids[0], **facts, **properties}
        self._properties = DeviceProperties(**told)
        self._arch, self._devices = arch, devices
        self._current = threading.local()
        self._failures: list[tuple[str, int, str]] = []
        self._kernels: dict[tuple[str, str], Kernel] = {}
        self._launch_ms = chain(launch_ms, repeat(1.0))
        self._simulator = Simulator()
        self._counts: Counter[str] = Counter()
        self.devices: dict[int, Device] = {}
        self.calls: list[Call] = []
        self.launched: list[Launched] = []
        self.memory = FakeMemory()
        self.streams = Streams()
        self.modules: list[_Module] = []
        self.events: list[Event] = []
        self.graphs: list[Graph] = []

    def teach(self, source: Artifact | Plan, composition: Any = None) -> None:
        """Let code objects run: those of an artifact, or of a plan of a bundle, which is then the composition."""
        if isinstance(source, Artifact):
            for launch, compiled in zip(source.plan.launches, source.kernels, strict=True):
                image = image_of(launch, self._arch, compiled, composition)
                self._kernels[image.digest, image.symbol] = compiled.kernel
            return
        for launch in source.launches:
            image = image_of(launch, self._arch, None, composition)
            self._kernels[image.digest, image.symbol] = composition.emit(launch.spec)

    def fail(self, call: str, name: str = "hipErrorUnknown", after: int = 0) -> None:
        """Let a call fail once with HIP's error of that name, when it was made `after` times more."""
        assert name in CODES, name
        self._failures.append((call, self.count(call) + after, name))

    def count(self, call: str) -> int:
        """Return how often a call was made."""
        return self._counts[call]

    def leaks(self) -> dict[str, int]:
        """Return how much is held, by kind, streams beside the null stream; nothing of what there is none of."""
        for stream in list(self.streams.queues):
            self.streams.drain("hipStreamSynchronize", stream)
        held = {
            "allocations": len(self.memory.live),
            "events": len(self.events),
            "graphs": len(self.graphs),
            "streams": len(self.streams.queues) - 1,
            "captures": len(self.streams.captures),
        }
        return {name: count for name, count in held.items() if count}

    def array(self, values: Array, device: int = 0) -> DeviceArray:
        """Return an array in the device's memory with these values."""
        block = self.memory.allocate(max(values.nbytes, 1), device)
        block.foreign = True
        held = np.ndarray(values.shape, values.dtype, block.data)
        held[...] = values
        return self._over(held, device, block)

    def adopt(self, array: Array, device: int = 0) -> DeviceArray:
        """Return an array of the device over the memory of one of this process, its strides as they are."""
        size = span_bytes(array)
        flat = np.lib.stride_tricks.as_strided(array.view(np.ndarray), (1,) * array.ndim)
        data = np.lib.stride_tricks.as_strided(flat.reshape(-1).view(np.uint8), (size,), (1,))
        block = self.memory.adopt(array.ctypes.data, data, device)
        return self._over(array, device, block)

    def _over(self, array: Array, device: int, owner: object) -> DeviceArray:
        return DeviceArray(
            address=array.ctypes.data,
            shape=array.shape,
            strides=array.strides,
            dtype=array.dtype,
            device=device,
            readonly=not array.flags.writeable,
            owner=owner,
        )

    def values(self, array: DeviceArray) -> Array:
        """Return what an array holds now, whatever is still to run."""
        data = self.memory.at("", array.address, array.span_bytes)
        return np.ndarray(array.shape, array.dtype, data, 0, array.strides).copy()

    def _called(self, name: str, **passed: Any) -> None:
        number = self._counts[name]
        self._counts[name] += 1
        self.calls.append(Call(name, self._device(), passed))
        for index, (call, when, error) in enumerate(self._failures):
            if call == name and number >= when:
                del self._failures[index]
                raise failure(name, error, "as requested")

    def _device(self) -> int:
        return getattr(self._current, "number", 0)

    def runtime_version(self) -> int:
        self._called("hipRuntimeGetVersion")
        return VERSION

    def device_count(self) -> int:
        self._called("hipGetDeviceCount")
        return self._devices

    def properties(self, device: int) -> DeviceProperties:
        self._called("hipGetDeviceProperties", number=device)
        return self._properties

    def device(self) -> int:
        self._called("hipGetDevice")
        return self._device()

    def set_device(self, device: int) -> None:
        self._called("hipSetDevice", number=device)
        self._current.number = device

    def load_module(self, code: bytes) -> _Module:
        self._called("hipModuleLoadData", size=len(code))
        module = _Module(code, self._device(), sha256(code))
        self.modules.append(module)
        return module

    def unload_module(self, module: _Module) -> None:
        self._called("hipModuleUnload")
        module.unloaded = True
        self.modules.remove(module)

    def function(self, module: _Module, symbol: str) -> _Function:
        self._called("hipModuleGetFunction", symbol=symbol)
        try:
            usage = self._arch.usage(module.code, symbol)
        except KinfolkError as error:
            raise failure("hipModuleGetFunction", "hipErrorNotFound", str(error)) from error
        if why := target_mismatch(usage.target, self._properties.target):
            raise failure("hipModuleGetFunction", "hipErrorNoBinaryForGpu", why)
        return _Function(module, symbol, usage)

    def launch(
        self, function: _Function, grid: tuple[int, int, int], block: int, stream: int, arguments: bytes
    ) -> None:
        self._called("hipModuleLaunchKernel", symbol=function.symbol, grid=grid, stream=stream)
        if function.module.unloaded or function.module.device != self._device():
            raise failure("hipModuleLaunchKernel", "hipErrorInvalidHandle", "the kernel is not loaded on this device")
        held = bytes(arguments)

        def run() -> None:
            self.launched.append(Launched(function.symbol, grid, block, held, stream))
            self._run(function, grid, block, held)
            self.streams.now_ms += next(self._launch_ms)

        self.streams.enqueue("hipModuleLaunchKernel", stream, run)

    def _run(self, function: _Function, grid: tuple[int, int, int], block: int, arguments: bytes) -> None:
        """Run a kernel that was taught on the arguments that its code object finds in the block."""
        kernel = self._kernels.get((function.module.digest, function.symbol))
        if kernel is None:
            return
        if kernel.block != block:
            raise failure(
                "hipModuleLaunchKernel", "hipErrorInvalidValue", f"a block of {block}, built for {kernel.block}"
            )
        values: list[Buffer | int | float] = []
        for parameter, place in zip(kernel.parameters, function.usage.arguments, strict=True):
            data = arguments[place.offset : place.offset + place.size]
            if place.kind == "pointer":
                (address,) = struct.unpack("<Q", data)
                rest = self.memory.at("hipModuleLaunchKernel", address) if address else np.empty(0, np.uint8)
                values.append(Buffer(rest))
            else:
                values.append(struct.unpack(_FORMS[place.kind, parameter.kind], data)[0])
        self._simulator.launch(kernel, grid, values)

    def allocate(self, size: int, stream: int) -> int:
        self._called("hipMallocAsync", size=size, stream=stream)
        self.streams.uncaptured("hipMallocAsync", stream)
        return self.memory.allocate(size, self._device()).address

    def free(self, address: int, stream: int) -> None:
        self._called("hipFreeAsync", address=address, stream=stream)
        self.streams.uncaptured("hipFreeAsync", stream)
        block = self.memory.block("hipFreeAsync", address)

        def release() -> None:
            block.freed = True

        self.streams.enqueue("hipFreeAsync", stream, release)

    def upload(self, address: int, data: Array, stream: int) -> None:
        self._called("hipMemcpyAsync", to=address, size=data.nbytes, stream=stream)

        def copy() -> None:
            self.memory.at("hipMemcpyAsync", address, data.nbytes)[: data.nbytes] = data

        self.streams.enqueue("hipMemcpyAsync", stream, copy)

    def download(self, data: Array, address: int, stream: int) -> None:
        self._called("hipMemcpyAsync", source=address, size=data.nbytes, stream=stream)

        def copy() -> None:
            data[...] = self.memory.at("hipMemcpyAsync", address, data.nbytes)[: data.nbytes]

        self.streams.enqueue("hipMemcpyAsync", stream, copy)

    def fill(self, address: int, byte: int, size: int, stream: int) -> None:
        self._called("hipMemsetAsync", to=address, byte=byte, size=size, stream=stream)

        def write() -> None:
            self.memory.at("hipMemsetAsync", address, size)[:size] = byte

        self.streams.enqueue("hipMemsetAsync", stream, write)

    def create_stream(self) -> int:
        self._called("hipStreamCreateWithFlags")
        return self.streams.create()

    def destroy_stream(self, stream: int) -> None:
        self._called("hipStreamDestroy", stream=stream)
        self.streams.destroy("hipStreamDestroy", stream)

    def synchronize(self, stream: int) -> None:
        self._called("hipStreamSynchronize", stream=stream)
        self.streams.drain("hipStreamSynchronize", stream)

    def create_event(self) -> Event:
        self._called("hipEventCreate")
        event = Event()
        self.events.append(event)
        return event

    def destroy_event(self, event: Event) -> None:
        self._called("hipEventDestroy")
        self.events.remove(event)

    def record(self, event: Event, stream: int) -> None:
        self._called("hipEventRecord", stream=stream)
        self.streams.record(event, stream)

    def wait(self, stream: int, event: Event) -> None:
        self._called("hipStreamWaitEvent", stream=stream, of=event.stream)
        self.streams.wait(stream, event)

    def wait_for_event(self, event: Event) -> None:
        self._called("hipEventSynchronize")
        if event.stream is not None:
            self.streams.drain("hipEventSynchronize", event.stream)

    def elapsed_ms(self, start: Event, end: Event) -> float:
        self._called("hipEventElapsedTime")
        if not start.passed or not end.passed:
            raise failure("hipEventElapsedTime", "hipErrorNotReady")
        return end.at_ms - start.at_ms

    def is_capturing(self, stream: int) -> bool:
        self._called("hipStreamIsCapturing", stream=stream)
        return stream in self.streams.captures

    def begin_capture(self, stream: int) -> None:
        self._called("hipStreamBeginCapture", stream=stream)
        self.streams.begin_capture(stream)

    def end_capture(self, stream: int) -> Graph:
        self._called("hipStreamEndCapture", stream=stream)
        graph = self.streams.end_capture(stream)
        self.graphs.append(graph)
        return graph

    def instantiate(self, graph: Graph) -> Graph:
        self._called("hipGraphInstantiateWithFlags")
        made = Graph(list(graph.operations))
        self.graphs.append(made)
        return made

    def launch_graph(self, executable: Graph, stream: int) -> None:
        self._called("hipGraphLaunch", stream=stream)

        def run() -> None:
            for operation in executable.operations:
                operation()

        self.streams.enqueue("hipGraphLaunch", stream, run)

    def destroy_graph(self, graph: Graph) -> None:
        self._called("hipGraphDestroy")
        self.graphs.remove(graph)

    def destroy_executable(self, executable: Graph) -> None:
        self._called("hipGraphExecDestroy")
        self.graphs.remove(executable)
