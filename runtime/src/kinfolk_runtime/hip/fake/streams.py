"""Streams of a fake device: what is enqueued runs when it is waited for, in order, and not before."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

import attrs

from kinfolk_runtime.hip.driver import HipError

Operation = Callable[[], None]
CODES: Final = {
    "hipErrorInvalidValue": 1,
    "hipErrorOutOfMemory": 2,
    "hipErrorNoDevice": 100,
    "hipErrorInvalidDevice": 101,
    "hipErrorInvalidImage": 200,
    "hipErrorNoBinaryForGpu": 209,
    "hipErrorInvalidHandle": 400,
    "hipErrorNotFound": 500,
    "hipErrorNotReady": 600,
    "hipErrorIllegalAddress": 700,
    "hipErrorLaunchOutOfResources": 701,
    "hipErrorLaunchFailure": 719,
    "hipErrorNotSupported": 801,
    "hipErrorStreamCaptureUnsupported": 900,
    "hipErrorStreamCaptureInvalidated": 901,
    "hipErrorUnknown": 999,
}
"""HIP's numbers of the errors that a fake device can have; from hip_runtime_api.h."""


def failure(call: str, name: str, text: str = "") -> HipError:
    """Return the error of a call under HIP's name."""
    return HipError(call, CODES[name], name, text)


@attrs.define(eq=False)
class Event:
    """An event: how often it was recorded, and at which time of the device each recording came to pass."""

    stream: int | None = None
    recorded: int = 0
    passed: int = 0
    at_ms: float = 0.0


@attrs.define(eq=False)
class Graph:
    """Operations that were captured, in order."""

    operations: list[Operation]
    destroyed: bool = False


class Streams:
    """The queues of a device. A stream that is captured collects operations in a graph instead."""

    def __init__(self) -> None:
        self.queues: dict[int, deque[Operation]] = {0: deque()}
        self.captures: dict[int, list[Operation]] = {}
        self.spoiled: set[int] = set()
        self.now_ms = 0.0
        self._next = 0x1000

    def create(self) -> int:
        self._next += 0x10
        self.queues[self._next] = deque()
        return self._next

    def destroy(self, call: str, stream: int) -> None:
        self.known(call, stream)
        self.captures.pop(stream, None)
        self.drain(call, stream)
        del self.queues[stream]

    def known(self, call: str, stream: int) -> None:
        if stream not in self.queues:
            raise failure(call, "hipErrorInvalidHandle", f"no stream {stream:#x}")

    def uncaptured(self, call: str, stream: int) -> None:
        """Refuse what cannot be part of a graph, which spoils the capture."""
        self.known(call, stream)
        if stream in self.captures:
            self.spoiled.add(stream)
            raise failure(call, "hipErrorStreamCaptureUnsupported", "the stream is being captured")

    def enqueue(self, call: str, stream: int, operation: Operation) -> None:
        self.known(call, stream)
        (self.captures if stream in self.captures else self.queues)[stream].append(operation)

    def drain(self, call: str, stream: int) -> None:
        """Run what is enqueued on a stream."""
        self.uncaptured(call, stream)
        queue = self.queues[stream]
        while queue:
            queue.popleft()()

    def record(self, event: Event, stream: int) -> None:
        event.stream, event.recorded = stream, event.recorded + 1

        def pass_by() -> None:
            event.passed, event.at_ms = event.passed + 1, self.now_ms

        self.enqueue("hipEventRecord", stream, pass_by)

    def wait(self, stream: int, event: Event) -> None:
        number, of = event.recorded, event.stream

        def until_passed() -> None:
            while event.passed < number and of is not None and self.queues[of]:
                self.queues[of].popleft()()

        self.enqueue("hipStreamWaitEvent", stream, until_passed)

    def begin_capture(self, stream: int) -> None:
        self.uncaptured("hipStreamBeginCapture", stream)
        if stream == 0:
            raise failure("hipStreamBeginCapture", "hipErrorStreamCaptureUnsupported", "the null stream")
        self.captures[stream] = []

    def end_capture(self, stream: int) -> Graph:
        operations = self.captures.pop(stream, None)
        if operations is None:
            raise failure("hipStreamEndCapture", "hipErrorInvalidValue", "the stream is not being captured")
        if stream in self.spoiled:
            self.spoiled.discard(stream)
            raise failure("hipStreamEndCapture", "hipErrorStreamCaptureInvalidated")
        return Graph(operations)
