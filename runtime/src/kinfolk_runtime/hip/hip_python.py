"""The driver through hip-python, an optional library; nothing of it is imported before it is used."""

from __future__ import annotations

import ctypes
import functools
import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, cast

from kinfolk_runtime.hip.driver import DeviceProperties, Handle, HipError, HipUnavailable
from kinfolk_runtime.tensors import Array

if TYPE_CHECKING:
    from kinfolk_runtime.hip.device import Device

EXTRA: Final = "pip install 'kinfolk-runtime[hip]'"
_UNLOADED: Final = "failed to dlopen"
_UNKNOWN_SYMBOL: Final = "failed to dlsym"
_MAJOR: Final = 10_000_000
_MINOR: Final = 100_000


@functools.cache
def hip_python() -> HipPython:
    """Return the driver of this process. Raises HipUnavailable, saying what is missing and how to mend it; a failure is
    not remembered.
    """
    driver = HipPython(_module())
    driver.check()
    return driver


def _module() -> Any:
    try:
        return importlib.import_module("hip").hip
    except ImportError as error:
        if isinstance(error, ModuleNotFoundError) and error.name == "hip":
            why = f"hip-python is not installed. {EXTRA}, or `pip install hip-python` of the version of this host's HIP"
        else:
            why = f"hip-python cannot be imported: {error}. Install it again: {EXTRA}"
        raise HipUnavailable(f"{why}. Kernels run on the simulator without it.") from error
    except AttributeError as error:
        raise HipUnavailable(
            f"a module named hip is installed that is not hip-python's: {error}. {EXTRA}, in an environment without it."
        ) from error


def version_text(number: int) -> str:
    """Return HIP's version number for people: `6.4.43482`."""
    return f"{number // _MAJOR}.{number % _MAJOR // _MINOR}.{number % _MINOR}"


def _library_here() -> str:
    """Return the name of a HIP library that the system's loader knows, under whatever version; empty for none."""
    import ctypes.util

    return ctypes.util.find_library("amdhip64") or ""


class HipPython:
    """HIP's calls through a module of hip-python's; a call that fails raises HipError, one that HIP lacks too."""

    def __init__(self, hip: Any) -> None:
        self._hip = hip
        self.devices: dict[int, Device] = {}

    def check(self) -> None:
        """Raise HipUnavailable where there is no library, no device, or a HIP that hip-python was not made for."""
        version = self._library_version()
        count = self._device_count(version)
        if not count:
            raise HipUnavailable(
                f"no AMD GPU on this host: HIP {version_text(version)} finds no device. Run on a host with one, whose "
                f"driver is loaded (its /dev/kfd may be read and written), or on the simulator."
            )
        made_for = int(getattr(self._hip, "HIP_VERSION_MAJOR", 0))
        if made_for != version // _MAJOR:
            here = version_text(version)
            major, minor = here.split(".")[:2]
            raise HipUnavailable(
                f"hip-python is made for HIP {made_for}, the HIP of this host is {here}: their structures differ. "
                f"Install the hip-python of this host's ROCm (pip install 'hip-python=={major}.{minor}.*'), or a ROCm "
                f"with HIP {made_for}."
            )

    def _library_version(self) -> int:
        try:
            return self.runtime_version()
        except RuntimeError as error:
            if _UNLOADED not in str(error):
                raise
            found = _library_here()
            if found:
                hint = (
                    f"The loader knows {found}, but hip-python opens libamdhip64.so: install what brings that name (on "
                    f"Debian the development package), or set ROCM_PATH to a folder that has it as lib/libamdhip64.so"
                )
            else:
                hint = "Install ROCm's HIP runtime; where it is not in /opt/rocm, set ROCM_PATH to its folder"
            raise HipUnavailable(
                f"hip-python cannot open the HIP library: {_cause(error)}. {hint}. Kernels run on the simulator "
                f"without it."
            ) from error

    def _device_count(self, version: int) -> int:
        try:
            return self.device_count()
        except HipError as error:
            if error.name in ("hipErrorNoDevice", "hipErrorInvalidDevice"):
                return 0
            raise HipUnavailable(f"HIP {version_text(version)} does not start: {error}") from error

    def _call(self, name: str, *arguments: Any) -> Any:
        """Call HIP; return what it gives beside its status: nothing, a value, or a tuple of several."""
        try:
            function: Callable[..., Any] = getattr(self._hip, name)
            status, *found = function(*arguments)
        except (RuntimeError, AttributeError) as error:
            if _UNKNOWN_SYMBOL not in str(error) and not isinstance(error, AttributeError):
                raise
            raise HipError(name, 801, "hipErrorNotSupported", f"this HIP has no such call: {_cause(error)}") from error
        except ValueError as error:  # of a call that failed hip-python reads a result that was never written
            raise HipError(name, 999, "hipErrorUnknown", f"hip-python cannot read what it gave: {error}") from error
        code = int(status)
        if code:
            raise HipError(name, code, str(getattr(status, "name", f"error {code}")), self._text(status))
        return found[0] if len(found) == 1 else tuple(found) if found else None

    def _text(self, status: Any) -> str:
        try:
            told: Any = self._hip.hipGetErrorString(status)
            return _text(cast("tuple[object, ...]", told)[-1] if isinstance(told, tuple) else told)
        except Exception:  # noqa: BLE001 - the number and its name are told all the same
            return ""

    def runtime_version(self) -> int:
        return int(self._call("hipRuntimeGetVersion"))

    def device_count(self) -> int:
        return int(self._call("hipGetDeviceCount"))

    def properties(self, device: int) -> DeviceProperties:
        try:
            found = self._call("hipGetDeviceProperties", device)
        except TypeError:  # before version 10 it filled what it was passed
            found = self._hip.hipDeviceProp_t()
            self._call("hipGetDeviceProperties", found, device)
        return DeviceProperties(
            name=_text(found.name),
            target=_text(found.gcnArchName),
            compute_units=int(found.multiProcessorCount),
            # By the compute unit, where HIP says so: a kernel's own share needs no leave, unlike what a launch adds.
            lds_bytes=max(int(found.sharedMemPerBlock), int(getattr(found, "maxSharedMemoryPerMultiProcessor", 0))),
            wave_size=int(found.warpSize),
            max_workgroup_size=int(found.maxThreadsPerBlock),
        )

    def device(self) -> int:
        return int(self._call("hipGetDevice"))

    def set_device(self, device: int) -> None:
        self._call("hipSetDevice", device)

    def load_module(self, code: bytes) -> Handle:
        return self._call("hipModuleLoadData", code)

    def unload_module(self, module: Handle) -> None:
        self._call("hipModuleUnload", module)

    def function(self, module: Handle, symbol: str) -> Handle:
        return self._call("hipModuleGetFunction", module, symbol.encode())

    def launch(self, function: Handle, grid: tuple[int, int, int], block: int, stream: int, arguments: bytes) -> None:
        packed = _block_type(len(arguments)).from_buffer_copy(arguments)
        extra = (packed,) if arguments else None
        self._call("hipModuleLaunchKernel", function, *grid, block, 1, 1, 0, stream, None, extra)

    def allocate(self, size: int, stream: int) -> int:
        return int(self._call("hipMallocAsync", size, stream))

    def free(self, address: int, stream: int) -> None:
        self._call("hipFreeAsync", address, stream)

    def upload(self, address: int, data: Array, stream: int) -> None:
        kind = self._hip.hipMemcpyKind.hipMemcpyHostToDevice
        self._call("hipMemcpyAsync", address, data.ctypes.data, data.nbytes, kind, stream)

    def download(self, data: Array, address: int, stream: int) -> None:
        kind = self._hip.hipMemcpyKind.hipMemcpyDeviceToHost
        self._call("hipMemcpyAsync", data.ctypes.data, address, data.nbytes, kind, stream)

    def fill(self, address: int, byte: int, size: int, stream: int) -> None:
        self._call("hipMemsetAsync", address, byte, size, stream)

    def create_stream(self) -> int:
        return int(self._call("hipStreamCreateWithFlags", self._hip.hipStreamNonBlocking))

    def destroy_stream(self, stream: int) -> None:
        self._call("hipStreamDestroy", stream)

    def synchronize(self, stream: int) -> None:
        self._call("hipStreamSynchronize", stream)

    def create_event(self) -> Handle:
        return self._call("hipEventCreate")

    def destroy_event(self, event: Handle) -> None:
        self._call("hipEventDestroy", event)

    def record(self, event: Handle, stream: int) -> None:
        self._call("hipEventRecord", event, stream)

    def wait(self, stream: int, event: Handle) -> None:
        self._call("hipStreamWaitEvent", stream, event, 0)

    def wait_for_event(self, event: Handle) -> None:
        self._call("hipEventSynchronize", event)

    def elapsed_ms(self, start: Handle, end: Handle) -> float:
        return float(self._call("hipEventElapsedTime", start, end))

    def is_capturing(self, stream: int) -> bool:
        try:
            return int(self._call("hipStreamIsCapturing", stream)) != 0
        except HipError as error:
            if error.name == "hipErrorStreamCaptureImplicit":  # the null stream, while another one is captured
                return True
            raise

    def begin_capture(self, stream: int) -> None:
        mode = self._hip.hipStreamCaptureMode.hipStreamCaptureModeThreadLocal
        self._call("hipStreamBeginCapture", stream, mode)

    def end_capture(self, stream: int) -> Handle:
        return self._call("hipStreamEndCapture", stream)

    def instantiate(self, graph: Handle) -> Handle:
        return self._call("hipGraphInstantiateWithFlags", graph, 0)

    def launch_graph(self, executable: Handle, stream: int) -> None:
        self._call("hipGraphLaunch", executable, stream)

    def destroy_graph(self, graph: Handle) -> None:
        self._call("hipGraphDestroy", graph)

    def destroy_executable(self, executable: Handle) -> None:
        self._call("hipGraphExecDestroy", executable)


@functools.cache
def _block_type(size: int) -> type[ctypes.Structure]:
    """Return the type of an argument block, which hip-python passes by value and as it is."""

    class Block(ctypes.Structure):
        _fields_ = [("bytes", ctypes.c_uint8 * size)]

    return Block


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _cause(error: BaseException) -> str:
    return str(error).replace("b'", "'").replace("''", "'").rstrip(".")
