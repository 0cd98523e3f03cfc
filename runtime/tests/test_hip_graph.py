"""Graphs: a bound plan captured as one, and what cannot be part of one."""

from __future__ import annotations

import gc

import attrs
import numpy as np
import pytest
from hip_toy import OnDevice, given_everything
from paged_sum import expected, plan_of, tensors

from kinfolk.errors import BindError
from kinfolk_runtime.binder import bind
from kinfolk_runtime.hip import HipError
from kinfolk_runtime.hip.graph import capture
from kinfolk_runtime.simulator import Simulator


@pytest.fixture
def device(reference64):
    return OnDevice(reference64)


def test_a_captured_plan_is_launched_again_on_new_values(device):
    given = given_everything()
    captured = capture(device.bind(device.adopted(given)))
    device.executor.synchronize()
    assert device.fake.launched == []
    assert (given["out"] == 77).all()
    for value in (1, 2):
        given["cache"][...] = value
        outputs = captured()
        device.executor.synchronize()
        assert (given["out"] == expected(given)).all()
        assert captured.status() == {"status": 0}
    assert outputs["out"] is captured.bound.tensors["out"].value.given
    assert device.fake.count("hipModuleLaunchKernel") == 2
    assert device.fake.leaks() == {"graphs": 1}
    del captured
    gc.collect()
    assert device.fake.leaks() == {}


def test_a_graph_keeps_its_workspace_alive(device):
    given = given_everything()
    del given["sums"]
    captured = capture(device.bind(device.adopted(given)))
    gc.collect()
    captured()
    device.executor.synchronize()
    assert (given["out"] == expected(given)).all()
    assert device.fake.leaks() == {"allocations": 1, "graphs": 1}
    captured.free()
    with pytest.raises(BindError, match=r"graph of gather_.* was let go of by free\(\)\. Capture it again"):
        captured()
    assert device.fake.count("hipGraphLaunch") == 1
    del captured
    gc.collect()
    assert device.fake.leaks() == {}


def test_contents_are_looked_into_before_the_capture(device):
    given = given_everything()
    given["offsets"][2] = 8
    lent = device.adopted(given)
    bound = bind(plan_of(), lent, device.executor, composition=device.composed)
    with pytest.raises(BindError, match=r"offsets\[2\] - offsets\[1\] is 8 - 9"):
        capture(attrs.evolve(bound, check_contents=True))
    assert device.fake.count("hipStreamBeginCapture") == 0
    capture(bound)()
    given["offsets"][2] = 9
    attrs.evolve(bound, check_contents=True)()
    checked = capture(attrs.evolve(bound, check_contents=True))
    names = [call.name for call in device.fake.calls]
    begin = len(names) - names[::-1].index("hipStreamBeginCapture")
    assert "hipMemcpyAsync" not in names[begin:]
    assert "hipStreamSynchronize" not in names[begin:]
    checked()
    device.executor.synchronize()
    assert (given["out"] == expected(given)).all()


def test_what_cannot_be_captured(device):
    with pytest.raises(BindError, match="cache is an array of this host, which no graph copies"):
        capture(device.bind(given_everything()))
    simulated = bind(plan_of(), tensors(), Simulator(), composition=device.composed)
    with pytest.raises(BindError, match="executor simulator has no graphs"):
        capture(simulated)


def test_nothing_is_allocated_while_a_stream_is_captured(device):
    stream = device.fake.create_stream()
    executor = device.executor.on(stream)
    lent = device.adopted(given_everything())
    bound = device.bind(lent, executor=executor)
    some = {name: one for name, one in lent.items() if name != "sums"}
    device.fake.begin_capture(stream)
    with pytest.raises(BindError, match=r"sums: \d+ bytes would be allocated on a stream that is being captured"):
        device.bind(some, executor=executor)
    with pytest.raises(BindError, match="contents would be read on a stream that is being captured"):
        bound.look_into_contents()
    bound()  # which neither allocates nor waits, so a caller may capture it among other work
    graph = device.fake.end_capture(stream)
    executable = device.fake.instantiate(graph)
    device.fake.launch_graph(executable, stream)
    device.fake.synchronize(stream)
    assert len(device.fake.launched) == 2


def test_memory_let_go_of_during_a_capture_is_freed_after_it(device):
    stream = device.fake.create_stream()
    executor = device.executor.on(stream)
    held = executor.memory.uploaded(np.zeros(4, np.float32))
    device.fake.begin_capture(stream)
    del held
    gc.collect()
    assert device.fake.count("hipFreeAsync") == 0
    assert device.fake.end_capture(stream).operations == []
    device.executor.memory.uploaded(np.zeros(4, np.float32))
    assert device.fake.count("hipFreeAsync") == 2


@pytest.mark.parametrize("call", ["hipGraphDestroy", "hipStreamDestroy"])
def test_a_graph_is_there_whatever_cannot_be_let_go_of(device, call, caplog):
    given = given_everything()
    bound = device.bind(device.adopted(given))
    device.fake.fail(call)
    captured = capture(bound)
    assert f"{call} failed" in caplog.text
    captured()
    device.executor.synchronize()
    assert (given["out"] == expected(given)).all()
    del captured
    gc.collect()
    assert device.fake.leaks() == {{"hipGraphDestroy": "graphs", "hipStreamDestroy": "streams"}[call]: 1}


CALLS = ["hipStreamCreateWithFlags", "hipStreamBeginCapture", "hipModuleLaunchKernel", "hipMemsetAsync"]
CALLS += ["hipStreamEndCapture", "hipGraphInstantiateWithFlags"]


@pytest.mark.parametrize("call", CALLS)
def test_a_capture_that_fails_leaves_nothing(device, call):
    bound = device.bind(device.adopted(given_everything()))
    device.fake.fail(call, "hipErrorOutOfMemory")
    with pytest.raises(HipError) as caught:
        capture(bound)
    assert caught.value.call == call
    assert caught.value.about
    del caught
    gc.collect()
    assert device.fake.leaks() == {}
    captured = capture(bound)
    device.fake.fail("hipGraphLaunch")
    with pytest.raises(HipError, match=r"graph of gather_.*, scale_.* on device 0"):
        captured()
