"""Runners: what is kept between calls, on the simulator and on a fake device; who takes turns, and who waits."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import threading
import types

import attrs
import numpy as np
import pytest
from hip_toy import OnDevice, given_everything
from paged_sum import PAGES, SEQUENCES, PagedSumRequest, expected, plan_of, tensors

from kinfolk.errors import BindError, ToolError
from kinfolk_runtime import workspace
from kinfolk_runtime.binder import StatusError, kernels_of
from kinfolk_runtime.device_array import DeviceArray
from kinfolk_runtime.runner import Runner
from kinfolk_runtime.simulator import Simulator


class Source:
    """Plans of `paged_sum` on a composition of these tests."""

    request_type = PagedSumRequest

    def __init__(self, composed):
        self.composed, self.arch = composed, composed.arch
        self.made = 0

    def plan(self, request):
        return plan_of(request=request)

    def kernels(self, plan, executor):
        self.made += 1
        return kernels_of(plan, None, self.composed, executor)


class ToyRunner(Runner):
    def __init__(self, composed, executor=None):
        self.source = Source(composed)
        self._begin(self.source, executor)


FIELDS = {"sequences": SEQUENCES, "longest": 9, "pages": PAGES, "scale": 0.5}
REQUEST = PagedSumRequest(**FIELDS)


def inputs():
    return tensors()


def many(count):
    """Return a request and inputs of so many sequences, all of them empty but the first."""
    lengths = [9] + [0] * (count - 1)
    given = tensors() | {
        "offsets": np.cumsum([0, *lengths]).astype(np.int32),
        "table": np.zeros((count, 3), np.int32),
    }
    return PagedSumRequest(**FIELDS | {"sequences": count}), given


@pytest.fixture
def device(reference64):
    return OnDevice(reference64)


@pytest.fixture
def on_device(device):
    return ToyRunner(device.composed, device.executor)


@pytest.fixture
def simulated(device):
    return ToyRunner(device.composed)


def test_arrays_of_this_host_in_and_out_on_the_simulator(simulated):
    given = inputs()
    for request in (REQUEST, FIELDS):
        outputs = simulated(request, given)
        assert isinstance(outputs["out"], np.ndarray)
        assert (outputs["out"] == expected(given)).all()
    out = np.zeros((SEQUENCES, 64), np.float32)
    assert simulated(REQUEST, given, out={"out": out})["out"] is out
    assert (out == expected(given)).all()
    assert simulated.source.made == 1


def test_arrays_of_the_device_in_and_out(device, on_device):
    given = inputs()
    lent = device.adopted(given)
    outputs = on_device(REQUEST, lent)
    assert isinstance(outputs["out"], DeviceArray)
    assert (outputs["out"].numpy() == expected(given)).all()
    out = device.fake.array(np.zeros((SEQUENCES, 64), np.float32))
    assert on_device(REQUEST, lent, out={"out": out}, check=False)["out"] is out
    device.executor.synchronize()
    assert (device.fake.values(out) == expected(given)).all()
    assert device.fake.count("hipModuleLoadData") == 2
    assert on_device.source.made == 1


def allocations(device):
    return [call.passed["size"] for call in device.fake.calls if call.name == "hipMallocAsync"]


def test_a_workspace_is_used_again_and_grows_only_when_it_must(device, on_device):
    counts = []
    for count in (3, 3, 2, 5, 4, 5, 1):
        request, given = many(count)
        out = device.fake.array(np.zeros((count, 64), np.float32))
        before = len(allocations(device))
        on_device(request, device.adopted(given), out={"out": out})
        counts.append(len(allocations(device)) - before)
        assert (device.fake.values(out) == expected_of(given, count)).all()
    assert counts == [2, 0, 0, 1, 0, 0, 0]  # sums and the status word; then sums alone
    assert device.fake.leaks() == {"allocations": 2}
    on_device.forget_streams()
    gc.collect()
    assert device.fake.leaks() == {}


def expected_of(given, count):
    out = np.zeros((count, 64), np.float32)
    for i in range(9):
        out[0] += given["cache"][given["table"][0, i // 4], i % 4].astype(np.float32)
    return out * np.float32(0.5)


def test_each_stream_has_a_workspace(device, on_device):
    streams = [device.fake.create_stream() for _ in range(2)]
    lent = device.adopted(given_everything())
    some = {name: lent[name] for name in ("cache", "offsets", "table")}
    for stream in (*streams, *streams):
        on_device(REQUEST, some, out={"out": lent["out"]}, stream=stream)
    assert [size for size in allocations(device) if size > 4] == [SEQUENCES * 64 * 4] * 2
    launched = [one.stream for one in device.fake.launched]
    assert launched == [stream for stream in (*streams, *streams) for _ in range(2)]


def test_a_step_keeps_the_workspace_that_it_was_bound_to(device, on_device):
    given = given_everything()
    lent = device.adopted(given)
    some = {name: lent[name] for name in ("cache", "offsets", "table")}
    step = on_device.bind(REQUEST, some, out={"out": lent["out"]})
    request, more = many(7)
    on_device(request, device.adopted(more))  # whose workspace takes the place of the step's
    gc.collect()
    device.executor.synchronize()
    for value in (1, 2):
        given["cache"][...] = value
        step()
        assert step.status() == {"status": 0}
        assert (given["out"] == expected(given)).all()
    del step
    gc.collect()
    assert device.fake.leaks() == {"allocations": 2}


def test_a_step_and_an_unchecked_call_wait_for_nothing(device, on_device):
    lent = device.adopted(given_everything())
    some = {name: lent[name] for name in ("cache", "offsets", "table")}
    out = {"out": lent["out"]}
    step = on_device.bind(REQUEST, some, out=out)
    before = len(device.fake.calls)
    step()
    on_device(REQUEST, some, out=out, check=False)
    waiting = {"hipStreamSynchronize", "hipEventSynchronize", "hipMemcpyAsync"}
    assert not waiting & {call.name for call in device.fake.calls[before:]}
    on_device(REQUEST, some, out=out)
    assert waiting & {call.name for call in device.fake.calls[before:]}


def test_contents_and_status_words_are_checked_unless_it_is_said(device, on_device, simulated):
    wrong = inputs()
    wrong["table"][2, 1] = PAGES
    for runner, given in ((simulated, wrong), (on_device, device.adopted(wrong))):
        for ask in (runner, runner.bind):
            with pytest.raises(BindError, match=rf"table\[2, 1\] is page {PAGES}"):
                ask(REQUEST, given)
        runner(REQUEST, given, check=False)
        step = runner.bind(REQUEST, given, check=False)
        step()
        assert step.status() == {"status": 1}
    with pytest.raises(BindError, match=rf"table\[2, 1\] is page {PAGES}"):
        on_device.capture(REQUEST, device.adopted(wrong))


def test_a_status_word_raises(device, simulated, monkeypatch):
    monkeypatch.setattr(simulated.source, "plan", lambda request: attrs.evolve(plan_of(request=request), contents=()))
    wrong = inputs()
    wrong["table"][2, 1] = PAGES
    with pytest.raises(StatusError, match="status word status is 1"):
        simulated(REQUEST, wrong)
    wrong["table"][2, 1] = 0
    simulated(REQUEST, wrong)


def test_a_request_is_captured_with_a_workspace_of_its_own(device, on_device):
    given = given_everything()
    lent = device.adopted(given)
    some = {name: lent[name] for name in ("cache", "offsets", "table")}
    captured = on_device.capture(REQUEST, some, out={"out": lent["out"]})
    other = on_device.bind(REQUEST, some)
    assert captured.bound.tensors["sums"].address != other.bound.tensors["sums"].address
    given["cache"][...] = 3
    captured()
    device.executor.synchronize()
    assert (given["out"] == expected(given)).all()


def test_what_a_runner_refuses(device, on_device, simulated):
    out = np.zeros((SEQUENCES, 64), np.float32)
    with pytest.raises(BindError, match="out takes outputs, which are out; sums is none"):
        simulated(REQUEST, inputs(), out={"sums": out})
    with pytest.raises(BindError, match=r"out is in tensors and in out\. Pass it once"):
        simulated(REQUEST, inputs() | {"out": out}, out={"out": out})
    with pytest.raises(BindError, match="executor simulator has no streams"):
        simulated(REQUEST, inputs(), stream=5)
    with pytest.raises(BindError, match="executor simulator has no graphs"):
        simulated.capture(REQUEST, inputs())
    with pytest.raises(TypeError, match=r"PagedSumRequest\.sequences"):
        simulated(FIELDS | {"sequences": 2.0}, inputs())
    for stream in (True, "0", 1.5, -1, 2**64, np.float32(2), object()):
        with pytest.raises(TypeError, match="stream takes a number, or an object with __cuda_stream__"):
            on_device(REQUEST, inputs(), stream=stream)


def test_what_is_no_mapping_and_no_request_of_the_family(simulated):
    out = np.zeros((SEQUENCES, 64), np.float32)
    for wrong in ([out], out, None):
        with pytest.raises(
            BindError, match=rf"out takes outputs by name, .* got a {type(wrong).__name__}; they are out"
        ):
            simulated(REQUEST, inputs(), out=wrong)
    with pytest.raises(BindError, match="tensors are passed by name, in a mapping, got a list"):
        simulated(REQUEST, [out], out={"out": out})

    class Other(type(REQUEST)):
        """A request of the same name, of somebody else."""

    Other.__name__ = "PagedSumRequest"
    simulated.source.request_type = Other
    for wrong in (None, "sequences=3", REQUEST):
        with pytest.raises(
            TypeError, match=rf"takes a PagedSumRequest of {__name__}, or a mapping of its fields, got "
        ):
            simulated.plan(wrong)
    simulated.source.request_type = PagedSumRequest
    for one in (REQUEST, FIELDS):
        with pytest.raises(TypeError, match="prepare takes several requests, got one: "):
            simulated.prepare(one)
    with pytest.raises(TypeError, match=r"of_bundle takes a Bundle, got 'folder'\. Pass what load_bundle\(folder\)"):
        Runner.of_bundle("folder")


def test_kernels_that_cannot_be_made_are_asked_for_again(simulated, monkeypatch):
    made = simulated.source.kernels

    def fails(plan, executor):
        raise ToolError("no compiler")

    monkeypatch.setattr(simulated.source, "kernels", fails)
    for ask in (simulated, simulated.bind):
        with pytest.raises(ToolError, match="no compiler"):
            ask(REQUEST, inputs())
    monkeypatch.setattr(simulated.source, "kernels", made)
    assert (simulated(REQUEST, inputs())["out"] == expected(inputs())).all()


@pytest.mark.parametrize("hold", [lambda runner: runner._lock, lambda runner: runner._on(None)[1].turn])
def test_a_fork_waits_for_no_thread_that_is_not_there(simulated, hold):
    given = inputs()
    step = simulated.bind(REQUEST, given)
    held, let_go = threading.Event(), threading.Event()

    def holds(lock):
        with lock:
            held.set()
            let_go.wait()

    thread = threading.Thread(target=holds, args=(hold(simulated),))
    thread.start()
    held.wait()
    child = os.fork()
    if child == 0:
        signal.alarm(30)  # which ends it, as something that waits for ever
        right = all((one["out"] == expected(given)).all() for one in (simulated(REQUEST, given), step()))
        os._exit(0 if right else 1)
    status = os.waitpid(child, 0)[1]
    let_go.set()
    thread.join()
    assert status == 0


def test_streams_of_other_libraries(device):
    from kinfolk_runtime.hip.executor import stream_number

    torch = type("Stream", (), {"cuda_stream": 77})()
    protocol = type("Stream", (), {"__cuda_stream__": lambda self: (0, 78)})()
    handle = type("Stream", (), {"__int__": lambda self: 79})()
    number = np.int64(80)
    assert [stream_number(one) for one in (None, 0, 76, torch, protocol, handle)] == [0, 0, 76, 77, 78, 79]
    assert stream_number(number) == 80


def test_a_call_that_fails_keeps_the_workspace_in_order(device, on_device):
    lent = device.adopted(given_everything())
    some = {name: lent[name] for name in ("cache", "offsets", "table")}
    on_device(REQUEST, some, out={"out": lent["out"]})
    with pytest.raises(BindError, match="sums is written and shares memory with out"):
        on_device(REQUEST, some, out={"out": on_device.bind(REQUEST, some).bound.tensors["sums"].value})
    device.fake.fail("hipModuleLaunchKernel")
    with pytest.raises(Exception, match="hipModuleLaunchKernel failed"):
        on_device(REQUEST, some, out={"out": lent["out"]})
    on_device(REQUEST, some, out={"out": lent["out"]})
    assert device.fake.leaks() == {"allocations": 2}


class Slow(Simulator):
    """Lets another thread come between the two launches of a plan."""

    def __init__(self, meeting):
        super().__init__()
        self.meeting = meeting

    def run(self, work):
        super().run(work)
        if work.kernel.parameters[0].name == "cache":
            with contextlib.suppress(threading.BrokenBarrierError):
                self.meeting.wait(0.3)


def in_threads(runner, count):
    """Run a request in so many threads, each on a cache of its own value; return whether all outputs are right."""
    right = []

    def one(value):
        given = inputs()
        given["cache"][...] = value
        for _ in range(2):
            right.append(bool((runner(REQUEST, given)["out"] == expected(given)).all()))

    threads = [threading.Thread(target=one, args=(value,)) for value in range(1, count + 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(right) == 2 * count
    return all(right)


def test_threads_take_turns_on_a_workspace(device, monkeypatch):
    """Two launches of a call with a third of another call between them read that one's sums."""
    assert in_threads(ToyRunner(device.composed, Slow(threading.Barrier(2))), 2)
    monkeypatch.setattr(workspace, "threading", types.SimpleNamespace(RLock=contextlib.nullcontext))
    assert not in_threads(ToyRunner(device.composed, Slow(threading.Barrier(2))), 2)
