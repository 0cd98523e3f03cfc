"""Checks of a launch: the kernel against the arch and the plan, grid and arguments for the tensors at hand."""

from __future__ import annotations

from collections.abc import Mapping

from kinfolk.arch import Arch
from kinfolk.errors import BindError, InternalError
from kinfolk.ir.value import Kernel
from kinfolk.plan import Launch, Plan
from kinfolk_runtime.simulator.program import workgroup_bytes
from kinfolk_runtime.tensors import Tensor


def check_kernel(launch: Launch, kernel: Kernel, arch: Arch) -> None:
    """Raise BindError unless a kernel is the one its launch was planned for and fits the arch."""
    symbol, declared = launch.spec.symbol(), launch.spec.parameters()
    if len(kernel.parameters) != len(declared):
        raise BindError(
            f"{symbol}: the kernel takes {len(kernel.parameters)} arguments, the plan passes {len(declared)}."
        )
    for found, wanted in zip(kernel.parameters, declared, strict=True):
        if found != wanted:
            raise BindError(f"{symbol}: the kernel declares {found}, the plan was made for {wanted}. Emit it again.")
    if kernel.block != launch.block:
        raise BindError(f"{symbol}: the kernel is built for {kernel.block} threads, the plan launches {launch.block}.")
    if kernel.wave_size != arch.wave_size:
        raise BindError(
            f"{symbol}: the kernel is built for waves of {kernel.wave_size}, {arch.name} has {arch.wave_size}."
        )
    _at_most(symbol, "block", launch.block, arch, "max_workgroup_size")
    _at_most(symbol, "workgroup memory in bytes", workgroup_bytes(kernel), arch, "lds_bytes")


def check_launch(plan: Plan, launch: Launch, tensors: Mapping[str, Tensor], arch: Arch) -> None:
    """Raise BindError where the grid or an argument does not fit for these tensors."""
    symbol = launch.spec.symbol()
    if launch.condition.holds(plan.scope(tensors)):
        counts = [count.integer(plan.scope(tensors)) for count in launch.grid]
        for axis, count, text in zip("xyz", counts, launch.grid, strict=True):
            if count < 0:
                raise BindError(f"{symbol}: grid {axis} is {text} = {count} workgroups, at least 0 is needed.")
            _at_most(symbol, f"grid {axis}", count, arch, f"max_grid_{axis}")
    try:
        plan.arguments(launch, tensors)
    except InternalError as error:
        raise BindError(f"{symbol}: {error}. Pass smaller tensors or strides.") from error


def _at_most(symbol: str, what: str, value: int, arch: Arch, fact: str) -> None:
    limit = arch.facts.get(fact)
    if type(limit) is int and value > limit:
        raise BindError(
            f"{symbol}: {what} is {value}, {arch.name} has at most {limit} ({fact}). Dispatch a smaller problem."
        )
