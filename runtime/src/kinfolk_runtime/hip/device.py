"""One device of a driver: what it is, the code objects loaded into it, and the memory that is allocated there."""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Generator, Mapping
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
MOST_THREADS: Final = 2**32 - 1
"""Threads along an axis of a grid; HIP counts them in 32 bits."""


class Allocation:
    """Memory of a device, freed in the order of its stream when it is let go of, or with its last reference."""

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
        self._finalizer = weakref.finalize(self, _freed, device, self.address, stream)
        self._finalizer.atexit = False  # the process takes its memory with it, and HIP may be gone by then

    def free(self) -> None:
        """Give it back now; nothing where that was done."""
        self._finalizer()


def _freed(device: Device, address: int, stream: int) -> None:
    """Free memory in its stream's order, which may be asked by the collector of garbage: nothing is raised."""
    try:
        with device.active():
            if device.driver.is_capturing(stream):
                device.deferred.append((address, stream))  # else the free would become part of the graph
            else:
                device.driver.free(address, stream)
    except HipError as error:
        device.warn("memory", error)


@attrs.frozen(eq=False)
class _Loaded:
    module: Handle
    functions: dict[str, Handle]


class Device:
    """A device by its number. Its modules are loaded once, however many executors and threads launch from them."""

    def __init__(self, driver: Driver, number: int) -> None:
        count = driver.device_count()
        if type(number) is not int:
            raise TypeError(f"device takes a Python int, got {number!r}")
        if not 0 <= number < count:
            raise HipUnavailable(
                f"there is no device {number}, this host has {count}, numbered from 0. Pass one of those."
            )
        self.driver, self.number = driver, number
        with self.active(), telling(f"device {number}"):
            self.properties: DeviceProperties = driver.properties(number)
        self.deferred: list[tuple[int, int]] = []
        """Memory to be freed, with its stream, that was let go of while its stream was captured."""
        self._modules: dict[str, _Loaded] = {}
        self._lock = threading.RLock()

    def __str__(self) -> str:
        return f"device {self.number} ({self.properties.target})"

    @contextmanager
    def active(self) -> Generator[None]:
        """Let HIP's calls of this thread go to this device; afterwards they go where they went before."""
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

    def warn(self, what: str, error: HipError) -> None:
        """Log what could not be let go of."""
        log.warning("%s of %s is not freed: %s", what, self, error)

    def free_deferred(self) -> None:
        """Free what could not be freed when it was let go of."""
        for _ in range(len(self.deferred)):
            _freed(self, *self.deferred.pop(0))

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
