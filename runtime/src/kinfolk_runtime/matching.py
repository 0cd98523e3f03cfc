"""Checks of tensors against the bindings of a plan: rank, extents, strides, alignment, overlap."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import numpy as np

from kinfolk.check.sparse import SparseArray
from kinfolk.errors import BindError
from kinfolk.expr import Scope
from kinfolk.plan import Binding, Plan
from kinfolk_runtime.executor import Executor, takes_sparse
from kinfolk_runtime.tensors import Array, Tensor


def check_rank(binding: Binding, held: Tensor) -> None:
    """Raise BindError unless a tensor has as many axes as its binding."""
    if len(held.shape) != len(binding.shape):
        raise BindError(
            f"{binding.name} has shape {held.shape}, {len(binding.shape)} axes "
            f"({', '.join(str(axis.extent) for axis in binding.shape)}) are needed."
        )


def check_tensor(binding: Binding, held: Tensor, scope: Scope) -> None:
    """Raise BindError unless a tensor has the extents, strides and alignment of its binding, and may be written."""
    name = binding.name
    for axis, (found, declared) in enumerate(zip(held.shape, binding.shape, strict=True)):
        wanted = declared.extent.integer(scope)
        if found < wanted or (found > wanted and not declared.at_least):
            least = "at least " if declared.at_least else ""
            raise BindError(
                f"{name}: the extent of axis {axis} is {found}, {least}{wanted} ({declared.extent}) is needed; "
                f"its shape is {held.shape}. Pass a tensor of that shape or dispatch for this one."
            )
    steps = held.element_strides
    for axis, (found, expr) in enumerate(zip(steps, binding.strides(), strict=True)):
        wanted = expr.integer(scope)
        if held.value.size and held.shape[axis] > 1 and found != wanted:
            raise BindError(
                f"{name}: the stride of axis {axis} is {found} elements, {wanted} is needed; "
                f"its strides are {tuple(steps)}. Pass a copy in that layout (numpy.ascontiguousarray, or "
                f"`.contiguous()` of a tensor)."
            )
    if held.value.size and held.address % binding.alignment:
        raise BindError(
            f"{name}: its address {held.address:#x} is no multiple of {binding.alignment} bytes, which the kernel's "
            f"accesses need. Allocate it aligned, or slice it at a multiple of that."
        )
    if binding.access != "read":
        _check_written(name, held)


def _check_written(name: str, held: Tensor) -> None:
    if not held.writeable:
        raise BindError(f"{name} is written, the array given is read-only. Pass a writable one.")
    if held.value.size == 0:
        return
    reach = 0
    for step, extent in sorted(zip(held.element_strides, held.shape, strict=True)):
        if extent > 1 and step <= reach:
            raise BindError(
                f"{name} is written, its elements overlap each other (strides {tuple(held.element_strides)}). "
                f"Pass memory of its own for each element."
            )
        reach += (extent - 1) * step


def check_sparse(plan: Plan, bound: Mapping[str, Tensor], runner: Executor) -> None:
    """Raise where memory that exists in part meets an executor that needs all of it."""
    sparse = [binding.name for binding in plan.bindings if isinstance(bound[binding.name].value, SparseArray)]
    if sparse and not takes_sparse(runner):
        raise BindError(
            f"{', '.join(sparse)} exists in part, executor {runner.name} runs on whole memory. Pass the whole "
            f"array, or run it on the simulator."
        )


def check_overlaps(plan: Plan, bound: Mapping[str, Tensor]) -> None:
    """Raise where memory that is written is also reached under another name."""
    parts = {binding.name: bound[binding.name].parts for binding in plan.bindings}
    for binding in plan.bindings:
        if binding.access == "read":
            continue
        for other in plan.bindings:
            if other.name != binding.name and _share(parts[binding.name], parts[other.name]):
                raise BindError(
                    f"{binding.name} is written and shares memory with {other.name}. Pass memory of its own for it."
                )


def _share(a: tuple[Array, ...], b: tuple[Array, ...]) -> bool:
    try:
        return any(np.shares_memory(one, other, cast("Any", 100_000)) for one in a for other in b)
    except np.exceptions.TooHardError:
        return True
