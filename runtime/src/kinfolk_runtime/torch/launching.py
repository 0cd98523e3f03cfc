"""Tensors of torch handed to runners: the arch and the executor that a device has, the stream that torch is at."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kinfolk.errors import BindError
from kinfolk.flavor import DEFAULT_FLAVOR
from kinfolk.plugins.composition import arch_of
from kinfolk.plugins.loading import load, usable
from kinfolk.request import Request
from kinfolk_runtime.executor import Executor
from kinfolk_runtime.runner import Runner
from kinfolk_runtime.torch.library import ELEMENTS, dtype_of, torch

if TYPE_CHECKING:
    from kinfolk.plan import Plan


def device_of(tensors: Mapping[str, Any]) -> Any:
    """Return the one device of all tensors; raise BindError where there are two, or kernels run on none such."""
    devices = {name: tensor.device for name, tensor in tensors.items()}
    first = next(iter(devices))
    if other := next((name for name in devices if devices[name] != devices[first]), None):
        raise BindError(
            f"{other} lies on {devices[other]}, {first} on {devices[first]}; one device is needed. Move it: "
            f"`.to({str(devices[first])!r})`."
        )
    device = devices[first]
    if device.type == "cpu" or (device.type == "cuda" and torch.version.hip):
        return device
    raise BindError(
        f"{first} lies on {device}, kernels run on AMD GPUs, which are devices `cuda` of torch for ROCm, and on the "
        f"simulator, for tensors of this host. Move it: `.to('cpu')`."
    )


def runner_on(family: str, arch: str | None, flavor: str | None, device: Any) -> Runner:
    """Return the runner of a family for tensors of a device, the same for each call.

    Raises BindError where no arch is named for the simulator, or none that is installed is the device's.
    """
    index = None if device.type == "cpu" else torch.cuda.current_device() if device.index is None else device.index
    return runner_for(family, arch, flavor or DEFAULT_FLAVOR, index)


@functools.cache
def runner_for(family: str, arch: str | None, flavor: str, index: int | None) -> Runner:
    """Return the runner of a family on the device of a number, or on the simulator; raises as `runner_on`."""
    executor = None if index is None else hip_executor(index)
    return Runner(family, arch or _arch_on(executor), executor=executor, flavor=flavor)


def hip_executor(index: int) -> Executor:
    """Return the executor of a device by its number."""
    from kinfolk_runtime.hip import HipExecutor

    return HipExecutor(index)


def _arch_on(executor: Executor | None) -> str:
    """Return the arch of an executor's device."""
    archs = usable("arch")
    if executor is None or executor.target is None:
        raise BindError(
            f"arch is needed for tensors of this host, where the simulator runs any. Pass arch, one of "
            f"{', '.join(archs)}."
        )
    processor = executor.target.partition(":")[0]
    for name in archs:
        if processor in {one.partition(":")[0] for one in arch_of(load("arch", name)).target_ids}:
            return name
    raise BindError(f"the device is {executor.target}, the archs installed are {', '.join(archs)}. Install its arch.")


def launch(
    runner: Runner,
    request: Request,
    tensors: Mapping[str, Any],
    device: Any,
    check: bool,
    out: Sequence[Any] | None = None,
) -> list[Any]:
    """Run a request on tensors, on torch's current stream where they lie on a device, and return the outputs: those of
    `out`, in the order of the plan, or new tensors there.

    With `check` index tensors are looked into first and status words after; each waits for the device. Raises as a
    Runner does, and BindError for tensors that torch alone could read.
    """
    plan = runner.plan(request)
    if out is None:
        written = {name: _empty(plan, name, device) for name in plan.outputs}
    elif len(out) != len(plan.outputs):
        raise BindError(
            f"out has {len(out)} tensors, the outputs are {', '.join(plan.outputs)}. Pass one for each, in that order."
        )
    else:
        written = dict(zip(plan.outputs, out, strict=True))
    for binding in plan.bindings:
        for passed in (tensors, written):
            if binding.name in passed:
                _expect_readable(binding.name, passed[binding.name], binding.dtype)
    for name, tensor in written.items():
        if tensor.requires_grad or tensor.device != device:
            wrong = (
                "needs a gradient, which kernels know nothing of" if tensor.requires_grad else "is on another device"
            )
            raise BindError(f"{name} is written, and {wrong}. Pass `torch.empty(..., device={str(device)!r})`.")
    given = {name: tensor.detach() for name, tensor in tensors.items()}
    stream = None if device.type == "cpu" else torch.cuda.current_stream(device)
    runner(request, given, out=written, stream=stream, check=check)
    return list(written.values())


def _empty(plan: Plan, name: str, device: Any) -> Any:
    binding, scope = plan.binding(name), plan.scope()
    extents = [axis.extent.integer(scope) for axis in binding.shape]
    return torch.empty(extents, dtype=dtype_of(binding.dtype), device=device)


def _expect_readable(name: str, tensor: Any, element: str) -> None:
    """Raise BindError, in torch's words, for a tensor of another dtype, or that is not laid out in strides."""
    if ELEMENTS.get(tensor.dtype) != element:
        wanted = dtype_of(element)
        raise BindError(
            f"{name}: dtype is {tensor.dtype}, {wanted} ({element}) is needed. Convert it: `.to({wanted})`."
        )
    if tensor.layout is not torch.strided:
        raise BindError(f"{name} is laid out as {tensor.layout}, in strides is needed. Pass `.to_dense()`.")
