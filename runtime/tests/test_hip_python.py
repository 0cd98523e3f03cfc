"""The driver over modules that behave as hip-python's versions do; `tests/test_hip_library.py` has the real one."""

from __future__ import annotations

import enum
import types

import pytest

from kinfolk_runtime.hip.driver import HipError
from kinfolk_runtime.hip.hip_python import HipPython, version_text

Status = enum.IntEnum("Status", {"hipSuccess": 0, "hipErrorOutOfMemory": 2, "hipErrorStreamCaptureImplicit": 906})
PROPERTIES = {
    "name": b"a device",
    "gcnArchName": b"toy64:feature+",
    "multiProcessorCount": 304,
    "sharedMemPerBlock": 65536,
    "warpSize": 64,
    "maxThreadsPerBlock": 1024,
}


def driver(**calls):
    return HipPython(types.SimpleNamespace(**calls))


def filled(found, device):
    assert device == 0
    vars(found).update(PROPERTIES)
    return (Status.hipSuccess,)


@pytest.mark.parametrize(
    "calls",
    [
        {"hipGetDeviceProperties": lambda device: (Status.hipSuccess, types.SimpleNamespace(**PROPERTIES))},
        {"hipGetDeviceProperties": filled, "hipDeviceProp_t": types.SimpleNamespace},
    ],
    ids=["since 10", "before 10"],
)
def test_what_a_device_says_of_itself(calls):
    found = driver(**calls).properties(0)
    assert (found.name, found.target) == ("a device", "toy64:feature+")
    assert (found.compute_units, found.lds_bytes, found.wave_size, found.max_workgroup_size) == (304, 65536, 64, 1024)


def test_workgroup_memory_is_what_a_compute_unit_has():
    """A device may say less of a workgroup that asks for nothing."""
    said = types.SimpleNamespace(**PROPERTIES, maxSharedMemoryPerMultiProcessor=163840)
    found = driver(hipGetDeviceProperties=lambda device: (Status.hipSuccess, said)).properties(0)
    assert found.lds_bytes == 163840


def raising(error):
    def call(*_):
        raise error

    return call


FAILURES = {
    "a status": (lambda *_: (Status.hipErrorOutOfMemory, None), "hipErrorOutOfMemory", 2),
    "no such symbol": (raising(RuntimeError("failed to dlsym 'b'hipMallocAsync'': no")), "hipErrorNotSupported", 801),
    "an unread result": (raising(ValueError("32564 is not a valid hipMemory")), "hipErrorUnknown", 999),
}


@pytest.mark.parametrize("name", FAILURES)
def test_however_a_call_fails_it_is_named(name):
    call, error, code = FAILURES[name]
    with pytest.raises(HipError, match=f"hipMallocAsync failed with {error} \\({code}\\)") as caught:
        driver(hipMallocAsync=call).allocate(8, 0)
    assert (caught.value.call, caught.value.code) == ("hipMallocAsync", code)


def test_a_call_that_hip_python_lacks_is_named():
    with pytest.raises(HipError, match=r"hipFreeAsync failed with hipErrorNotSupported \(801\)"):
        driver().free(8, 0)


def test_what_hip_says_of_an_error_is_told():
    said = driver(
        hipFreeAsync=lambda *_: (Status.hipErrorOutOfMemory,), hipGetErrorString=lambda _: (Status.hipSuccess, b"full")
    )
    with pytest.raises(HipError, match=r"\(2\), full\. Free memory on the device"):
        said.free(8, 0)


def test_other_errors_are_not_hip_s():
    with pytest.raises(RuntimeError, match="something else"):
        driver(hipFreeAsync=raising(RuntimeError("something else"))).free(8, 0)


def test_the_null_stream_counts_as_captured_while_another_is():
    assert driver(hipStreamIsCapturing=lambda _: (Status.hipErrorStreamCaptureImplicit, 0)).is_capturing(0)
    assert driver(hipStreamIsCapturing=lambda _: (Status.hipSuccess, 1)).is_capturing(8)
    assert not driver(hipStreamIsCapturing=lambda _: (Status.hipSuccess, 0)).is_capturing(8)
    with pytest.raises(HipError, match="hipErrorOutOfMemory"):
        driver(hipStreamIsCapturing=lambda _: (Status.hipErrorOutOfMemory, 0)).is_capturing(8)


def test_versions_for_people():
    assert version_text(50221153) == "5.2.21153"
    assert version_text(71526333) == "7.15.26333"
