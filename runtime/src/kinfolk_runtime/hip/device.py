"""One device of a driver: what it is, the code objects loaded into it, and the memory that is allocated there."""

from __future__ import annotations

import logging
import os
import threading
import weakref
from collections import deque
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from typing import Final

import attrs

from kinfolk.arch import Arch
from kinfolk.errors import BindError
from kinfolk_runtime.hip.driver import DeviceProperties, Driver, Handle, HipError, HipUnavailable, telling
from kinfolk_runtime.image import Image

log: Final = logging.getLogger(__name__)
FACTS: Final = ("compute_units", "lds_bytes", "wave_size", "max_workgroup_size")
"""What a device says of itself that an arch declares as well."""
STREAM_IS_GONE: Final = ("hipErrorInvalidHandle", "hipErrorInvalidResourceHandle", "hipErrorContextIsDestroyed")
"""What HIP says of a stream that was destroyed, whose work is done then."""
_OPENING: Final = threading.Lock()
MOST_THREADS: Final = 2**32 - 1
"""Threads along an axis of a grid; HIP counts them in 32 bits."""


class Allocation:
    """Memory of a device, freed in the order of its stream when it is let go of, or with its last reference.

    `elsewhere` are other streams that use it: whatever comes after them waits for them, its free included.
    """

    def __init__(self, device: Device, size: int, stream: int, about: str) -> None:
        with device.active(), telling(f"{about} on {device}"):
            device.free_deferred()
            if device.driver.is_capturing(stream):
                raise BindError(
                    f"{about}: {size} bytes would be allocated on a stream that is being captured. Bind, or call once, "
                    f"before the capture begins."
                )
            self.address = device.driver.allocate(max(size, 1), stream)
        self.size, self.stream = size, stream
        self.elsewhere: set[int] = set()
        self._finalizer = weakref.finalize(self, _freed, device, self.address, stream, self.elsewhere)
        self._finalizer.atexit = False  # the process takes its memory with it, and HIP may be gone by then

    def free(self) -> None:
        """Give it back now; nothing where that was done."""
        self._finalizer()


def _freed(device: Device, address: int, stream: int, elsewhere: Iterable[int]) -> None:
    """Free memory in its stream's order, which may be asked by the collector of garbage: nothing is raised."""
    if device.is_of_another_process:
        return  # to which the memory belongs
    later = (address, stream, elsewhere)
    begun = False
    try:
        with device.active():
            if any(_is_capturing(device, each) for each in (stream, *elsewhere)):
                device.deferred.append(later)  # else the free would become part of the graph
                return
            for other in tuple(elsewhere):
                _order(device, other, stream)
            begun = True
            _free(device, address, stream)
    except HipError as error:
        if not begun:
            device.deferred.append(later)
        device.warn("memory", error)


def _is_capturing(device: Device, stream: int) -> bool:
    try:
        return device.driver.is_capturing(stream)
    except HipError as error:
        if error.name in STREAM_IS_GONE:
            return False
        raise


def _order(device: Device, other: int, stream: int) -> None:
    try:
        device.order(other, stream)
    except HipError as error:
        if error.name not in STREAM_IS_GONE:
            raise


def _free(device: Device, address: int, stream: int) -> None:
    try:
        device.driver.free(address, stream)
    except HipError as error:
        if error.name not in STREAM_IS_GONE:
            raise
        device.driver.free(address, 0)


@attrs.frozen(eq=False)
class _Loaded:
    module: Handle
    functions: dict[str, Handle]


def device_of(driver: Driver, number: int) -> Device:
    """Return a driver's device, which all executors share. Raises as `Device`, and HipUnavailable after a fork."""
    if type(number) is not int:
        raise TypeError(f"device takes a Python int, got {number!r}")
    with _OPENING:
        for opened in driver.devices.values():
            opened.expect_this_process()
        if number not in driver.devices:
            driver.devices[number] = Device(driver, number)
        return driver.devices[number]


class Device:
    """A device by its number. Its modules are loaded once, however many executors and threads launch from them."""

    def __init__(self, driver: Driver, number: int) -> None:
        self._process = os.getpid()
        count = driver.device_count()
        if not 0 <= number < count:
            raise HipUnavailable(
                f"there is no device {number}, this host has {count}, numbered from 0. Pass one of those."
            )
        self.driver, self.number = driver, number
        with self.active(), telling(f"device {number}"):
            self.properties: DeviceProperties = driver.properties(number)
        self.deferred: deque[tuple[int, int, Iterable[int]]] = deque()
        """Memory to be freed, with its stream and others that use it, that could not be freed when it was let go of."""
        self._modules: dict[str, _Loaded] = {}
        self._lock = threading.RLock()

    def __str__(self) -> str:
        return f"device {self.number} ({self.properties.target})"

    @contextmanager
    def active(self) -> Generator[None]:
        """Let HIP's calls of this thread go to this device; afterwards they go where they went before."""
        self.expect_this_process()
        with telling(f"device {self.number}"):
            before = self.driver.device()
            if before == self.number:
                yield
                return
            self.driver.set_device(self.number)
            try:
                yield
            finally:
                self.driver.set_device(before)

    @property
    def is_of_another_process(self) -> bool:
        """Whether this process is a fork of the one that opened the device."""
        return os.getpid() != self._process

    def expect_this_process(self) -> None:
        """Raise HipUnavailable in a fork of the process that opened the device."""
        if self.is_of_another_process:
            raise HipUnavailable(
                f"device {self.number} was opened by process {self._process}, of which this one is a fork, and HIP "
                f"does not work in a fork. Start the process anew (multiprocessing's spawn), or use HIP in it alone."
            )

    def warn(self, what: str, error: HipError) -> None:
        """Log what could not be let go of."""
        log.warning("%s of %s is not freed: %s", what, self, error)

    @contextmanager
    def letting_go(self, what: str) -> Generator[None]:
        """Log errors of HIP instead of raising them: nothing depends on what is let go of, and nobody can mend it."""
        try:
            yield
        except HipError as error:
            self.warn(what, error)

    def free_deferred(self) -> None:
        """Free what could not be freed when it was let go of."""
        for _ in range(len(self.deferred)):
            try:
                waiting = self.deferred.popleft()
            except IndexError:  # another thread took it
                return
            _freed(self, *waiting)

    def order(self, first: int, then: int) -> None:
        """Let what is enqueued on stream `then` from now on wait for what is on `first`."""
        with self.active(), telling(f"streams of {self}"):
            event = self.driver.create_event()
            try:
                self.driver.record(event, first)
                self.driver.wait(then, event)
            finally:
                self.driver.destroy_event(event)

    def function(self, image: Image) -> Handle:
        """Return the kernel of a code object, loaded once; HipError names it where the device does not take it."""
        with self._lock:
            loaded = self._modules.get(image.digest)
            if loaded is None or image.symbol not in loaded.functions:
                with self.active(), telling(f"{image.symbol} on {self}"):
                    loaded = self._load(image, loaded)
            return loaded.functions[image.symbol]

    def _load(self, image: Image, loaded: _Loaded | None) -> _Loaded:
        if loaded is not None:
            loaded.functions[image.symbol] = self.driver.function(loaded.module, image.symbol)
            return loaded
        module = self.driver.load_module(image.code)
        try:
            found = _Loaded(module, {image.symbol: self.driver.function(module, image.symbol)})
        except BaseException:
            self.driver.unload_module(module)
            raise
        self._modules[image.digest] = found
        return found

    def unload(self) -> None:
        """Let go of every loaded code object; launches load them anew."""
        with self._lock, self.active():
            while self._modules:
                _, loaded = self._modules.popitem()
                self.driver.unload_module(loaded.module)

    def check(self, arch: Arch, images: tuple[Image, ...]) -> None:
        """Raise BindError where this device is not what an arch declares, or not what a code object is made for."""
        here = attrs.asdict(self.properties)
        for name in FACTS:
            declared = arch.facts.get(name)
            if declared is not None and declared != here[name]:
                raise BindError(
                    f"{self}, {self.properties.name}, has {name} = {here[name]}, arch {arch.name} declares {declared}. "
                    f"Kernels are chosen and gated by what the arch declares: use a device that is that, or an arch "
                    f"distribution that declares this one."
                )
        for image in images:
            if why := target_mismatch(image.usage.target, self.properties.target):
                raise BindError(f"{image.symbol} does not run on {self}: {why}. Compile it for that target.")


def target_mismatch(code: str, device: str) -> str:
    """Return why code for one target id does not run on a device of another; nothing where it does.

    A feature that the code does not pin runs either way; one that it pins is as the device says.
    """
    processor, wanted = _features(code)
    here, settings = _features(device)
    if processor != here:
        return f"its code is for {code}"
    for name, sign in wanted.items():
        if settings.get(name) != sign:
            found = f"{name}{settings[name]}" if name in settings else f"no {name}"
            return f"its code is for {code}, so for {name}{sign}, the device has {found}"
    return ""


def _features(target: str) -> tuple[str, Mapping[str, str]]:
    processor, *settings = target.rpartition("--")[2].split(":")
    return processor, {setting[:-1]: setting[-1:] for setting in settings}


def check_threads(image: Image, grid: tuple[int, int, int]) -> None:
    """Raise BindError where a grid has more threads along its first axis than HIP counts."""
    if grid[0] * image.block > MOST_THREADS:
        raise BindError(
            f"{image.symbol}: grid x is {grid[0]} workgroups of {image.block} threads, HIP counts at most "
            f"{MOST_THREADS} threads along an axis. Dispatch a smaller problem."
        )
