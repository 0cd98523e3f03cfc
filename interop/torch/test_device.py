"""Tensors of a device: launched through HIP on torch's stream, on a fake device, since torch here is of the CPU alone.

What the operators call below torch's dispatcher is called here, with tensors that say they are a device's.
"""

from types import SimpleNamespace
from typing import Any

import attrs
import pytest
import torch
from problems import ARCH, DECODE, DENSE, dense, paged

import kinfolk
import kinfolk_runtime
from kinfolk.errors import BindError
from kinfolk.plugins.composition import compose
from kinfolk_runtime.hip import HipExecutor
from kinfolk_runtime.hip.dlpack import ROCM, capsule_of
from kinfolk_runtime.hip.fake import FakeDriver
from kinfolk_runtime.torch import array_of, launching
from kinfolk_runtime.torch.operator import Call

DEVICE = torch.device("cuda", 0)  # what torch for ROCm calls an AMD GPU
FIELDS = {name: value for name, value in DECODE.items() if name != "arch"}


@attrs.frozen(eq=False)
class OnDevice:
    """A tensor that says it lies on a device, over memory of this host that the fake device takes for its own."""

    held: torch.Tensor
    asked: list[Any] = attrs.field(factory=list)
    device: torch.device = DEVICE

    def __getattr__(self, name: str) -> Any:
        return getattr(self.held, name)

    def detach(self) -> "OnDevice":
        return self

    def __dlpack_device__(self) -> tuple[int, int]:
        return ROCM, self.device.index

    def __dlpack__(self, *, stream: Any) -> Any:
        self.asked.append(stream)
        array = array_of(self.held)
        return capsule_of(
            array.ctypes.data,
            array.shape,
            array.strides,
            array.dtype,
            kind=ROCM,
            device=self.device.index,
            owner=self.held,
        )


class TorchForRocm:
    """torch as it is built for ROCm, as far as it is asked here."""

    version = SimpleNamespace(hip="7.2")

    def __init__(self, fake: FakeDriver) -> None:
        self.fake, self.stream = fake, fake.streams.create()
        self.cuda = SimpleNamespace(
            current_device=lambda: 0, current_stream=lambda device: SimpleNamespace(cuda_stream=self.stream)
        )

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)

    def empty(self, extents: list[int], *, dtype: torch.dtype, device: torch.device) -> Any:
        found = torch.empty(extents, dtype=dtype)
        return found if device.type == "cpu" else self.lend(found, device)

    def lend(self, tensor: torch.Tensor, device: torch.device = DEVICE) -> OnDevice:
        self.fake.adopt(array_of(tensor))
        return OnDevice(tensor, device=device)


@pytest.fixture
def fake():
    return FakeDriver(compose("mla", ARCH).arch, target=f"{ARCH}:sramecc+:xnack-")


@pytest.fixture
def rocm(fake, monkeypatch):
    """torch for ROCm on the fake device, which is at a stream of its own."""
    found = TorchForRocm(fake)
    launching.runner_for.cache_clear()
    monkeypatch.setattr(launching, "torch", found)
    monkeypatch.setattr(launching, "hip_executor", lambda index: HipExecutor(index, driver=fake))
    yield found
    launching.runner_for.cache_clear()


def step(mla, rocm, tensors=None, **options):
    given = {name: rocm.lend(tensor.clone()) for name, tensor in (tensors or paged()).items()}
    names = [argument.name for argument in mla.default._schema.arguments if "Tensor" in str(argument.type)]
    call = Call.of(mla_request(), tuple(given.get(name) for name in names), FIELDS | options)
    artifact = kinfolk_runtime.compile(kinfolk.dispatch(mla_request()(**call.fields), ARCH))
    rocm.fake.teach(artifact)
    return call, given


def mla_request():
    return compose("mla", ARCH).request_type


def test_it_runs_on_torch_s_stream_and_gives_what_the_simulator_gives(mla, rocm, fake):
    """And of the arch that the device is, which nobody named."""
    expected = mla(**paged(), **DECODE)
    call, given = step(mla, rocm)
    out, lse = call.launch()
    assert torch.equal(out.held, expected[0]) and torch.equal(lse.held, expected[1])
    assert {one.stream for one in fake.launched} == {rocm.stream}
    assert all(each.asked == [rocm.stream] for each in given.values())


def test_without_checks_nothing_is_waited_for(mla, rocm, fake):
    call, _ = step(mla, rocm, check=False)
    out, _ = call.launch()
    assert fake.launched == [] and fake.count("hipStreamSynchronize") == 0
    fake.streams.drain("hipStreamSynchronize", rocm.stream)
    assert torch.equal(out.held, mla(**paged(), **DECODE)[0])


def test_devices_that_are_not_one_or_none_of_ours(mla, rocm):
    call, given = step(mla, rocm)
    other = attrs.evolve(call, tensors={**given, "c_kv": rocm.lend(paged()["c_kv"], torch.device("cuda", 1))})
    with pytest.raises(BindError, match=r"c_kv lies on cuda:1, qa on cuda:0; one device is needed. Move it"):
        other.launch()
    elsewhere = {name: OnDevice(tensor.held, device=torch.device("xpu", 0)) for name, tensor in given.items()}
    with pytest.raises(BindError, match=r"qa lies on xpu:0, kernels run on AMD GPUs"):
        attrs.evolve(call, tensors=elsewhere).launch()
    rocm.version = SimpleNamespace(hip=None)  # torch for CUDA has devices of the same name
    with pytest.raises(BindError, match=r"qa lies on cuda:0, kernels run on AMD GPUs"):
        call.launch()


def test_an_arch_that_is_not_installed(mla, rocm, monkeypatch, fake):
    call, _ = step(mla, rocm)
    other = FakeDriver(compose("mla", ARCH).arch, target="gfx90a")
    monkeypatch.setattr(launching, "hip_executor", lambda index: HipExecutor(index, driver=other))
    with pytest.raises(BindError, match=r"the device is gfx90a, the archs installed are gfx942, gfx950"):
        call.launch()


def test_a_stream_of_this_host_is_no_matter(attention):
    """The control of it all: the same call of tensors of this host has no stream, and runs on the simulator."""
    names = [argument.name for argument in attention.default._schema.arguments if "Tensor" in str(argument.type)]
    tensors = dense()
    call = Call.of(compose("attention_fwd", ARCH).request_type, tuple(tensors.get(name) for name in names), DENSE)
    assert launching.device_of(call.tensors).type == "cpu"
    assert torch.equal(call.launch()[0], attention(**tensors, **DENSE)[0])


def test_a_call_is_part_of_a_graph_after_one_that_made_its_workspace(mla, rocm, fake):
    """As `torch.cuda.graph` captures: outputs are torch's, nothing is allocated or waited for in between."""
    expected = mla(**paged(), **DECODE)[0]
    call, given = step(mla, rocm, check=False)
    call.launch()
    fake.streams.drain("hipStreamSynchronize", rocm.stream)
    fake.begin_capture(rocm.stream)
    out, _ = call.launch()
    graph = fake.instantiate(fake.end_capture(rocm.stream))
    out.held.zero_()
    for sign in (1, -1):
        given["c_kv"].held.copy_(sign * paged()["c_kv"])
        given["qa"].held[..., :512].copy_(sign * paged()["qa"][..., :512])  # the scores stay, the values change sign
        fake.launch_graph(graph, rocm.stream)
        fake.streams.drain("hipStreamSynchronize", rocm.stream)
        assert torch.equal(out.held, sign * expected)


def test_what_waits_is_no_part_of_a_graph(mla, rocm, fake):
    call, _ = step(mla, rocm)
    call.launch()
    fake.begin_capture(rocm.stream)
    with pytest.raises(BindError, match="capture"):
        call.launch()
