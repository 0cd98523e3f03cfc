"""Memory of this host, where executors without a device of their own run: numpy arrays, shared and not copied."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np

from kinfolk.check.sparse import SparseArray
from kinfolk_runtime.simulator.buffers import Buffer, SparseBuffer
from kinfolk_runtime.tensors import DTYPES, Array, Tensor, allocated, tensor

if TYPE_CHECKING:
    from kinfolk.plan import Plan
    from kinfolk_runtime.executor import Executor


class Memory(Protocol):
    """Where the tensors of a plan lie while an executor runs it, and what the binder does with them there."""

    def taken(self, name: str, value: Any, dtype: str) -> Tensor:
        """Return what a caller passed as a tensor that launches can reach; raise BindError where they cannot."""
        ...

    def allocated(self, name: str, dtype: str, shape: Sequence[int], strides: Sequence[int], alignment: int) -> Tensor:
        """Return new memory, all poison; strides count elements."""
        ...

    def part(self, held: Tensor, dtype: str, shape: Sequence[int], strides: Sequence[int]) -> Tensor:
        """Return allocated bytes from their begin on as a tensor, sharing them; strides count elements."""
        ...

    def contents(self, held: Tensor) -> Array:
        """Return what a tensor holds when all that was enqueued before is done."""
        ...

    def begin(self, plan: Plan, tensors: Mapping[str, Tensor], supplied: Collection[str]) -> dict[str, Any]:
        """Make tensors ready for a call, status words zeroed; return what a launch is passed for each, by name."""
        ...

    def finish(self, plan: Plan, tensors: Mapping[str, Tensor]) -> dict[str, Any]:
        """Return the outputs of a call by name, as the caller holds them."""
        ...

    def abandon(self, tensors: Mapping[str, Tensor]) -> None:
        """See to it that nothing reaches arrays of this host any more, after a call that failed on its way."""
        ...

    def release(self, held: Tensor) -> None:
        """Give back memory that `taken` or `allocated` took, where nothing was bound to it."""
        ...


class HostMemory:
    """Tensors that are numpy arrays, or exist in part."""

    def taken(self, name: str, value: Any, dtype: str) -> Tensor:
        """Return a tensor that shares the caller's memory."""
        return tensor(name, value, dtype)

    def allocated(self, name: str, dtype: str, shape: Sequence[int], strides: Sequence[int], alignment: int) -> Tensor:
        """Return new memory of this process."""
        return Tensor(name, allocated(dtype, shape, strides, alignment))

    def part(self, held: Tensor, dtype: str, shape: Sequence[int], strides: Sequence[int]) -> Tensor:
        """Return a view of bytes."""
        element = DTYPES[dtype]
        steps = tuple(step * element.itemsize for step in strides)
        return Tensor(held.name, np.ndarray(tuple(shape), element, held.array.view(np.uint8), 0, steps))

    def contents(self, held: Tensor) -> Array:
        """Return the array itself."""
        return held.array

    def begin(self, plan: Plan, tensors: Mapping[str, Tensor], supplied: Collection[str]) -> dict[str, Any]:
        """Return a buffer per binding; outputs and workspaces count as never written."""
        buffers: dict[str, Any] = {}
        for binding in plan.bindings:
            value = tensors[binding.name].value
            if isinstance(value, SparseArray):
                buffers[binding.name] = SparseBuffer(value.nbytes, value.ranges())
                continue
            array = tensors[binding.name].array
            if binding.role == "status":
                array[...] = 0
            read_first = binding.role == "output" and binding.access == "readwrite" and binding.name in supplied
            known = binding.role in ("input", "status") or read_first
            buffers[binding.name] = Buffer(array, initialized=known)
        return buffers

    def finish(self, plan: Plan, tensors: Mapping[str, Tensor]) -> dict[str, Any]:
        """Return the outputs' arrays."""
        return {name: tensors[name].array for name in plan.outputs}

    def abandon(self, tensors: Mapping[str, Tensor]) -> None:
        """Do nothing: launches are run to their end."""

    def release(self, held: Tensor) -> None:
        """Do nothing: arrays are freed with their last reference."""


HOST: Final = HostMemory()


def memory_of(executor: Executor) -> Memory:
    """Return where an executor's tensors lie; this host's memory where it does not say."""
    return getattr(executor, "memory", None) or HOST
