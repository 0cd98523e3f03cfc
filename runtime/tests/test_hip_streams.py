"""Memory of a device that is used on several streams: nothing is read too early, and nothing is freed too early."""

from __future__ import annotations

import gc
import os

import numpy as np
import pytest
from hip_toy import OnDevice, given_everything
from paged_sum import SEQUENCES, expected, tensors

from kinfolk.errors import BindError
from kinfolk_runtime.hip import HipError, HipExecutor, HipUnavailable


@pytest.fixture
def device(reference64):
    return OnDevice(reference64)


def on_the_device(device, given):
    return {name: device.executor.array(value) for name, value in given.items()}


def test_memory_is_not_freed_under_a_launch_on_another_stream(device):
    given = tensors()
    stream = device.fake.create_stream()
    lent = on_the_device(device, given)
    outputs = device.bind(lent, executor=device.executor.on(stream))()
    lent.clear()
    gc.collect()
    device.executor.synchronize()  # which comes to the frees
    device.fake.synchronize(stream)
    assert (device.fake.values(outputs["out"]) == expected(given)).all()
    del outputs
    gc.collect()
    device.fake.destroy_stream(stream)
    assert device.fake.leaks() == {}


def test_what_another_stream_still_writes_is_waited_for(device):
    """As input of a third stream, and when it is copied back by the stream that it was allocated on."""
    given = tensors()
    first, second = (device.fake.create_stream() for _ in range(2))
    out = device.executor.array(np.zeros((SEQUENCES, 64), np.float32))
    lent = on_the_device(device, given)
    device.bind(lent | {"out": out}, executor=device.executor.on(first))()
    assert (out.numpy() == expected(given)).all()
    given["cache"][...] = 2
    lent = on_the_device(device, given)
    device.bind(lent | {"out": out}, executor=device.executor.on(first))()
    held = device.executor.on(second).memory.taken("out", out, "f32")
    seen = np.zeros((SEQUENCES, 64), np.float32)
    device.fake.download(seen.reshape(-1).view(np.uint8), held.address, second)
    device.fake.synchronize(second)
    assert (seen == expected(given)).all()


def test_one_stream_has_nothing_to_wait_for(device):
    device.bind(on_the_device(device, tensors()))()
    assert device.fake.count("hipStreamWaitEvent") == 0


def test_memory_outlives_the_stream_that_it_was_allocated_on(device):
    stream, other = (device.fake.create_stream() for _ in range(2))
    held = device.executor.on(stream).array(np.zeros(4, np.float32))
    device.executor.on(other).memory.taken("held", held, "f32")
    device.fake.destroy_stream(other)
    device.fake.destroy_stream(stream)
    del held
    gc.collect()
    assert device.fake.leaks() == {}


def test_what_a_capture_would_wait_for_is_refused(device):
    stream = device.fake.create_stream()
    held = device.executor.array(np.zeros(4, np.float32))
    device.fake.begin_capture(stream)
    with pytest.raises(BindError, match=r"would wait for stream 0x0 while one of them is being captured\. Bind before"):
        device.executor.on(stream).memory.taken("held", held, "f32")
    assert device.fake.end_capture(stream).operations == []


@pytest.mark.parametrize("call", ["hipGetDevice", "hipStreamIsCapturing"])
def test_memory_that_could_not_be_freed_is_freed_later(device, call):
    held = device.executor.array(np.zeros(4, np.float32))
    device.fake.fail(call)
    del held
    gc.collect()
    assert device.fake.leaks() == {"allocations": 1}
    del_later = device.executor.array(np.zeros(4, np.float32))
    assert device.fake.leaks() == {"allocations": 1}
    del del_later
    gc.collect()
    assert device.fake.leaks() == {}


def test_executors_of_a_device_share_its_modules(device):
    for _ in range(3):
        device.bind(tensors(), executor=HipExecutor(driver=device.fake))()
    assert device.fake.count("hipModuleLoadData") == 2
    assert HipExecutor(driver=device.fake).device is device.executor.device


def test_an_array_of_a_bound_plan_may_be_bound_again(device):
    """The copy of an array of this host belongs to the first plan, whatever becomes of the second."""
    given = given_everything()
    bound = device.bind(given)
    copied = bound.tensors["cache"].value
    with pytest.raises(BindError, match="offsets"):
        device.bind(given | {"cache": copied, "offsets": np.zeros(2, np.int32)})
    device.bind(given | {"cache": copied})
    bound()
    assert (given["out"] == expected(given)).all()


@pytest.mark.parametrize("call", ["hipModuleLaunchKernel", "hipMemcpyAsync"])
def test_a_call_that_fails_waits_for_copies_of_this_host_s_arrays(device, call):
    """Else they could reach arrays that are let go of."""
    bound = device.bind(given_everything())
    device.fake.fail(call, after=1)
    with pytest.raises(HipError, match=f"{call} failed"):
        bound()
    assert [made.name for made in device.fake.calls if made.name != "hipGetDevice"][-1] == "hipStreamSynchronize"


def test_memory_at_address_0(device):
    class Null:
        def __init__(self, rows):
            self.__cuda_array_interface__ = {"data": (0, False), "shape": (rows, 64), "typestr": "<f4", "version": 3}

    with pytest.raises(BindError, match=r"out has 192 elements at address 0\. Pass memory that is allocated"):
        device.bind(tensors() | {"out": Null(SEQUENCES)})
    assert device.executor.memory.taken("out", Null(0), "f32").shape == (0, 64)


def in_a_fork(deed):
    """Return what a deed raises in a forked process, as text; empty for nothing."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            deed()
            said = ""
        except BaseException as error:  # noqa: BLE001 - whatever it is, it is told
            said = f"{type(error).__name__}: {error}"
        os.write(writing, said.encode())
        os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    with os.fdopen(reading, "rb") as pipe:
        return pipe.read().decode()


def test_a_device_does_not_work_in_a_fork(device):
    bound = device.bind(on_the_device(device, tensors()))
    for deed in (bound, lambda: HipExecutor(driver=device.fake)):
        told = in_a_fork(deed)
        assert told.startswith(f"{HipUnavailable.__name__}: device 0 was opened by process {os.getpid()}, of which")

    def let_go():
        nonlocal bound
        frees = device.fake.count("hipFreeAsync")
        del bound
        gc.collect()
        assert device.fake.count("hipFreeAsync") == frees

    assert in_a_fork(let_go) == ""
