"""The HIP executor on a fake device: order, streams, memory, arguments, and every call that can fail."""

from __future__ import annotations

import gc
import struct

import attrs
import numpy as np
import pytest
from hip_toy import TARGET, OnDevice, given_everything
from paged_sum import PAGES, SEQUENCES, expected, plan_of, tensors

from kinfolk.errors import BindError
from kinfolk.expr import field
from kinfolk.plan import Axis
from kinfolk_runtime.device_array import DeviceArray
from kinfolk_runtime.hip import HipError, HipExecutor, HipUnavailable
from kinfolk_runtime.hip.fake import FakeDriver


@pytest.fixture
def device(reference64):
    return OnDevice(reference64)


def test_a_plan_runs_on_arrays_of_the_device(device):
    given = given_everything()
    bound, outputs = device.run(given)
    assert (given["out"] == expected(given)).all()
    assert outputs["out"] is bound.tensors["out"].value.given
    assert bound.status() == {"status": 0}
    assert bound.unwritten() == {}
    assert device.fake.leaks() == {}


def test_outputs_that_are_not_given_are_allocated_on_the_device(device):
    given = tensors()
    bound, outputs = device.run(given)
    assert isinstance(outputs["out"], DeviceArray)
    assert (outputs["out"].numpy() == expected(given)).all()
    assert device.fake.leaks() == {"allocations": 3}
    del bound
    gc.collect()
    assert device.fake.leaks() == {"allocations": 1}
    del outputs
    gc.collect()
    assert device.fake.leaks() == {}


def test_arrays_of_this_host_are_copied_there_and_back(device):
    given = given_everything()
    before = given["cache"].copy()
    bound = device.bind(given)
    outputs = bound()
    assert outputs["out"] is given["out"]
    assert (given["out"] == expected(given)).all()
    given["cache"][...] = 1
    assert (bound()["out"] == expected(given)).all()
    assert not (before == given["cache"]).all()
    del bound, outputs
    gc.collect()
    assert device.fake.leaks() == {}


def test_what_lies_between_the_rows_of_an_output_of_this_host_stays(device):
    """Bytes between rows may be somebody else's, who writes them while the launch runs."""
    plan = plan_of()
    loose = attrs.evolve(plan.binding("out"), shape=(Axis(field("sequences"), stride=None), Axis(64)))
    plan = attrs.evolve(plan, bindings=tuple(loose if one.name == "out" else one for one in plan.bindings))
    wide = np.full((SEQUENCES, 80), 5, np.float32)
    bound = device.bind(given_everything() | {"out": wide[:, :64]}, plan)
    bound.memory.begin(plan, bound.tensors, ())
    device.executor.synchronize()
    wide[:, 64:] = 6
    wide[:, :64] = 7
    bound.memory.finish(plan, bound.tensors)
    assert (wide[:, 64:] == 6).all()
    assert (wide[:, :64] == 5).all()


def test_nothing_runs_before_it_is_waited_for_and_all_in_order(device):
    given = given_everything()
    bound = device.bind(device.adopted(given))
    bound()
    assert (given["out"] == 77).all()
    assert device.fake.launched == []
    device.executor.synchronize()
    assert [one.symbol for one in device.fake.launched] == [launch.spec.symbol() for launch in plan_of().launches]
    assert (given["out"] == expected(given)).all()


def test_all_that_a_plan_does_is_on_the_caller_s_stream(device):
    stream = device.fake.create_stream()
    executor = device.executor.on(stream)
    bound = device.bind(tensors(), executor=executor)
    bound.look_into_contents()
    outputs = bound()
    bound.status()
    outputs["out"].numpy()
    del bound, outputs
    gc.collect()
    used = {call.passed["stream"] for call in device.fake.calls if "stream" in call.passed}
    assert used == {stream}
    device.fake.destroy_stream(stream)
    assert device.fake.leaks() == {}


def test_arguments_lie_where_the_code_object_says(device):
    given = given_everything()
    bound, _ = device.run(given)
    first, second = device.fake.launched
    addresses = [bound.tensors[name].address for name in ("cache", "offsets", "table", "sums", "status")]
    assert first.arguments == struct.pack("<5Q3i", *addresses, 256, 3, PAGES)
    assert second.arguments == struct.pack("<2Qf", bound.tensors["sums"].address, bound.tensors["out"].address, 0.5)
    assert (first.grid, first.block) == ((SEQUENCES, 1, 1), 64)


def test_modules_are_loaded_once_however_often_they_are_bound(device):
    for _ in range(3):
        device.run(given_everything())
    device.bind(tensors(), executor=device.executor.on(device.fake.create_stream()))
    assert device.fake.count("hipModuleLoadData") == 2
    device.executor.device.unload()
    assert device.fake.modules == []
    device.run(given_everything())
    assert device.fake.count("hipModuleLoadData") == 4


def test_the_device_that_was_current_stays_current(reference64):
    device = OnDevice(reference64, devices=3)
    device.executor = HipExecutor(2, driver=device.fake)
    device.fake.set_device(1)
    outputs = device.bind(tensors())()
    device.executor.synchronize()
    assert (outputs["out"].numpy() == expected(tensors())).all()
    assert device.fake.device() == 1
    assert {call.device for call in device.fake.calls if call.name == "hipModuleLaunchKernel"} == {2}


CALLS_OF_A_RUN = ["hipModuleLoadData", "hipModuleGetFunction", "hipMallocAsync", "hipMemsetAsync", "hipMemcpyAsync"]
CALLS_OF_A_RUN += ["hipModuleLaunchKernel", "hipStreamSynchronize"]


@pytest.mark.parametrize("call", CALLS_OF_A_RUN)
@pytest.mark.parametrize("after", [0, 1])
def test_a_call_that_fails_is_named_and_nothing_is_left(device, call, after):
    device.fake.fail(call, "hipErrorOutOfMemory", after)

    def everything_once():
        bound = device.bind(tensors() | {"out": np.zeros((SEQUENCES, 64), np.float32)})
        bound.look_into_contents()
        bound()
        bound.tensors["sums"].value.numpy()

    with pytest.raises(HipError) as caught:
        everything_once()
    error = caught.value
    assert (error.call, error.code, error.name) == (call, 2, "hipErrorOutOfMemory")
    assert f"{call} failed with hipErrorOutOfMemory (2)" in str(error)
    assert str(error).startswith(error.about)
    assert error.about
    assert f"device 0 ({TARGET})" in error.about
    assert str(error).endswith("dispatch a smaller problem.")
    del caught, error
    gc.collect()
    assert device.fake.leaks() == {}
    outputs = device.bind(tensors())()  # and what failed once is no state
    assert (outputs["out"].numpy() == expected(tensors())).all()


def test_a_kernel_that_the_device_s_hip_does_not_find_unloads_its_module(device):
    device.fake.fail("hipModuleGetFunction", "hipErrorNotFound")
    with pytest.raises(HipError, match=r"hipErrorNotFound \(500\).*compile the plan again"):
        device.bind(tensors())
    assert device.fake.modules == []


def test_a_device_that_is_not_there(reference64):
    fake = OnDevice(reference64, devices=2).fake
    for number in (2, -1):
        with pytest.raises(HipUnavailable, match=f"there is no device {number}, this host has 2"):
            HipExecutor(number, driver=fake)
    with pytest.raises(TypeError, match="device takes a Python int, got True"):
        HipExecutor(True, driver=fake)
    assert HipExecutor(1, driver=fake).target == TARGET


@pytest.mark.parametrize(
    "name, found", [("compute_units", 4), ("lds_bytes", 8192), ("wave_size", 32), ("max_workgroup_size", 512)]
)
def test_a_device_with_other_facts_names_both(reference64, name, found):
    device = OnDevice(reference64, **{name: found})
    declared = device.composed.arch.facts[name]
    with pytest.raises(BindError, match=rf"{name} = {found}, arch toy64 declares {declared}"):
        device.bind(tensors())
    assert device.fake.count("hipModuleLoadData") == 0


TARGETS = {
    "toy64:feature+": "",
    "toy64:other-:feature+": "",
    "toy64:feature-": "for feature+, the device has feature-",
    "toy64": "for feature+, the device has no feature",
    "toy32:feature+": "runs toy32:feature\\+, the plan is for toy64",
}


@pytest.mark.parametrize("target", TARGETS)
def test_code_runs_where_its_target_id_says(reference64, target):
    device = OnDevice(reference64, target=target)
    if not TARGETS[target]:
        device.run(given_everything())
        return
    with pytest.raises(BindError, match=TARGETS[target].replace("feature+,", r"feature\+,")):
        device.bind(tensors())


def test_a_plan_without_machine_code_is_not_launched(device, reference64):
    from paged_sum import Composed

    with pytest.raises(BindError, match=r"no machine code for a device to load. Bind what kinfolk_runtime.compile"):
        device.bind(tensors(), composed=Composed(reference64))


def test_more_threads_than_hip_counts(device):
    from kinfolk_runtime.hip.device import check_threads
    from kinfolk_runtime.image import image_of

    image = image_of(plan_of().launches[0], device.composed.arch, None, device.composed)
    check_threads(image, (2**26 - 1, 1, 1))
    with pytest.raises(BindError, match=r"grid x is 67108864 workgroups of 64 threads, HIP counts at most 4294967295"):
        check_threads(image, (2**26, 1, 1))


def test_threads_are_counted_before_anything_is_launched(device, monkeypatch):
    from kinfolk_runtime.hip import device as devices

    monkeypatch.setattr(devices, "MOST_THREADS", 64 * SEQUENCES)
    device.run(given_everything())
    monkeypatch.setattr(devices, "MOST_THREADS", 64 * SEQUENCES - 1)
    launched = device.fake.count("hipModuleLaunchKernel")
    with pytest.raises(BindError, match="grid x is 3 workgroups of 64 threads"):
        device.bind(tensors())
    assert device.fake.count("hipModuleLaunchKernel") == launched


def event_times(executor):
    start, end = executor.mark(), executor.mark()
    executor.elapsed_ms(start, end)
    executor.forget(start)
    executor.forget(end)


OTHER_CALLS = {
    "hipGetDevice": lambda executor: executor.synchronize(),
    "hipSetDevice": lambda executor: executor.synchronize(),
    "hipModuleUnload": lambda executor: executor.device.unload(),
    "hipEventCreate": event_times,
    "hipEventRecord": event_times,
    "hipEventSynchronize": event_times,
    "hipEventElapsedTime": event_times,
    "hipEventDestroy": event_times,
    "hipStreamWaitEvent": lambda executor: executor.device.order(0, 0),
    "hipStreamSynchronize": lambda executor: executor.synchronize(),
}


@pytest.mark.parametrize("call", OTHER_CALLS)
def test_every_other_call_says_for_which_device(reference64, call):
    device = OnDevice(reference64, devices=2)
    executor = device.executor = HipExecutor(1, driver=device.fake)
    device.bind(tensors())
    device.fake.fail(call, "hipErrorIllegalAddress")
    with pytest.raises(HipError, match=rf"device 1.*{call} failed with hipErrorIllegalAddress \(700\).*kinfolk verify"):
        OTHER_CALLS[call](executor)


def test_the_fake_sees_what_is_freed_too_early(device):
    """The fake is no use if it finds nothing: memory that is freed in front of a launch on its stream."""
    given = tensors()
    bound = device.bind(device.adopted(given))
    bound.tensors["sums"].value.owner.free()
    bound()
    with pytest.raises(HipError, match=r"hipErrorIllegalAddress \(700\).*was freed"):
        device.executor.synchronize()


def test_a_free_that_fails_is_logged(device, caplog):
    bound = device.bind(tensors())
    device.fake.fail("hipFreeAsync", "hipErrorIllegalAddress")
    del bound
    gc.collect()
    assert "memory of device 0 (toy64:feature+:other-) is not freed: device 0: hipFreeAsync failed" in caplog.text


def test_the_fake_sees_a_code_object_of_another_processor(reference64):
    fake = FakeDriver(OnDevice(reference64).composed.arch, target="toy32")
    composed = OnDevice(reference64).composed
    module = fake.load_module(composed.code(plan_of().launches[0]))
    with pytest.raises(HipError, match="hipErrorNoBinaryForGpu"):
        fake.function(module, plan_of().launches[0].spec.symbol())
