"""Captured plans: all that a bound plan enqueues as one graph of the device, launched with a single call."""

from __future__ import annotations

import weakref
from contextlib import suppress
from typing import Any

import attrs

from kinfolk.errors import BindError
from kinfolk_runtime.bound import Bound
from kinfolk_runtime.device_array import DeviceArray
from kinfolk_runtime.hip.device import Device
from kinfolk_runtime.hip.driver import Handle, HipError, telling
from kinfolk_runtime.hip.executor import HipExecutor


class Captured:
    """A graph of a bound plan. Calling it launches the graph on the stream of the plan's executor.

    It reads and writes the tensors that were bound, at their addresses: new values go into the same memory. Contents
    were looked into when it was captured, if the plan was bound so; a call looks into nothing. It keeps tensors and
    workspace alive. Not to be launched on two streams at once: its workspace is one.
    """

    def __init__(self, bound: Bound, executable: Handle) -> None:
        self.bound = bound
        executor = bound.executor
        assert isinstance(executor, HipExecutor)
        self._executor, self._executable = executor, executable
        self._finalizer = weakref.finalize(self, _destroyed, executor.device, executable)
        self._finalizer.atexit = False  # as of memory: HIP may be gone by then

    def __call__(self) -> dict[str, Any]:
        """Launch the graph and return the outputs, which hold their values in the order of the stream.

        Raises BindError after `free`.
        """
        device = self._executor.device
        symbols = ", ".join(launch.spec.symbol() for launch in self.bound.plan.launches)
        if not self._finalizer.alive:
            raise BindError(f"graph of {symbols} was let go of by free(). Capture it again.")
        with device.active(), telling(f"graph of {symbols} on {device}"):
            device.driver.launch_graph(self._executable, self._executor.stream)
        return self.bound.memory.finish(self.bound.plan, self.bound.tensors)

    def status(self) -> dict[str, int]:
        """Return the status words of the last launch, by binding; 0 is good. Waits for that launch."""
        return self.bound.status()

    def free(self) -> None:
        """Let go of the graph now; nothing where that was done."""
        self._finalizer()


def _destroyed(device: Device, executable: Handle) -> None:
    if not device.is_of_another_process:
        with device.letting_go("a graph"), device.active():
            device.driver.destroy_executable(executable)


def capture(bound: Bound) -> Captured:
    """Return a bound plan as a graph; contents are looked into first where it was bound so.

    It is captured on a stream of its own, so that the caller's may be the null stream. Raises BindError for an executor
    without graphs and for tensors that are arrays of this host, HipError naming the call that failed, after which
    nothing is left of the capture.
    """
    executor = bound.executor
    if not isinstance(executor, HipExecutor):
        raise BindError(f"executor {executor.name} has no graphs. Call the bound plan, or bind it for hip.")
    for name, tensor in bound.tensors.items():
        if isinstance(tensor.value, DeviceArray) and tensor.value.host is not None:
            raise BindError(f"{name} is an array of this host, which no graph copies. Pass one of the device's memory.")
    if bound.check_contents:
        bound.look_into_contents()
    device, driver = executor.device, executor.driver
    symbols = ", ".join(launch.spec.symbol() for launch in bound.plan.launches)
    with device.active(), telling(f"capture of {symbols} on {device}"):
        stream = driver.create_stream()
        try:
            graph = _graph(attrs.evolve(bound, executor=executor.on(stream), check_contents=False), stream)
            try:
                executable = driver.instantiate(graph)
            finally:
                with device.letting_go("a graph"):
                    driver.destroy_graph(graph)
        finally:
            with device.letting_go("a stream"):
                driver.destroy_stream(stream)
    return Captured(bound, executable)


def _graph(bound: Bound, stream: int) -> Handle:
    assert isinstance(bound.executor, HipExecutor)
    driver = bound.executor.driver
    driver.begin_capture(stream)
    try:
        bound()
    except BaseException:
        with suppress(HipError):  # the capture was spoiled, and is over; what spoiled it is the error
            driver.destroy_graph(driver.end_capture(stream))
        raise
    return driver.end_capture(stream)
