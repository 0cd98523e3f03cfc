"""A plan with its tensors, checked: what `bind` returns and what launches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

import attrs
import numpy as np

from kinfolk.arch import Arch
from kinfolk.errors import KinfolkError
from kinfolk.plan import Launch, Plan
from kinfolk_runtime.content import check_content
from kinfolk_runtime.executor import Executor, Work, run_contained
from kinfolk_runtime.host_memory import Memory, memory_of
from kinfolk_runtime.simulator.buffers import Buffer
from kinfolk_runtime.tensors import Tensor

if TYPE_CHECKING:
    from kinfolk.ir.value import Kernel
    from kinfolk_runtime.artifact import CompiledKernel
    from kinfolk_runtime.image import Image


class StatusError(KinfolkError, ValueError):
    """A launch counted something wrong in its inputs in a status word; what it counted contributed nothing."""


@attrs.frozen(kw_only=True)
class BoundKernel:
    """The kernel of a launch: its IR, its machine code where it was compiled, its image where a device loads one."""

    kernel: Kernel
    compiled: CompiledKernel | None
    image: Image | None = None


@attrs.frozen
class Unwritten:
    """The elements of an output that no launch wrote: how many, and the index of the first."""

    count: int
    first: tuple[int, ...]


@attrs.frozen(kw_only=True, eq=False)
class Bound:
    """A plan with its tensors, checked; calling it runs the launches and returns the outputs by name.

    `tensors` holds all bindings, those the binder allocated included. With `check_contents` index tensors are looked
    into before every call. Each call zeroes the status words first, and takes outputs and workspaces as never written.
    On an executor with a stream a call returns when all is enqueued there; outputs that are arrays of this host are
    waited for.
    """

    plan: Plan
    arch: Arch
    executor: Executor
    tensors: Mapping[str, Tensor]
    check_contents: bool
    supplied: frozenset[str]
    _kernels: tuple[BoundKernel, ...] = attrs.field(alias="kernels", repr=False)
    _passed: dict[str, Any] = attrs.field(init=False, repr=False, factory=dict[str, Any])

    @property
    def memory(self) -> Memory:
        """Where the tensors lie."""
        return memory_of(self.executor)

    def __call__(self) -> dict[str, Any]:
        """Run every launch in order and return the outputs: arrays, or what was passed for them."""
        if self.check_contents:
            self.look_into_contents()
        try:
            self._passed.update(self.memory.begin(self.plan, self.tensors, self.supplied))
            self._launch()
            return self.memory.finish(self.plan, self.tensors)
        except BaseException:
            self.memory.abandon(self.tensors)
            raise

    def _launch(self) -> None:
        for launch, bound in zip(self.plan.launches, self._kernels, strict=True):
            grid = self.plan.grid(launch, self.tensors)
            if 0 not in grid:
                work = Work(
                    kernel=bound.kernel,
                    compiled=bound.compiled,
                    grid=grid,
                    arguments=self._arguments(launch),
                    image=bound.image,
                )
                run_contained(self.executor, work)

    def look_into_contents(self) -> None:
        """Raise BindError where index tensors would lead a kernel astray; waits for what writes them."""
        scope = self.plan.scope(self.tensors)
        for content in self.plan.contents:
            named = {name for name in vars_of(content) if name in self.tensors}
            held = {name: Tensor(name, self.memory.contents(self.tensors[name])) for name in named}
            check_content(content, held, scope)

    def status(self) -> dict[str, int]:
        """Return the status words of the last call, by binding; 0 is good. Waits for that call."""
        return {
            binding.name: int(np.asarray(self.memory.contents(self.tensors[binding.name])).sum())
            for binding in self.plan.bindings
            if binding.role == "status"
        }

    def unwritten(self) -> dict[str, Unwritten]:
        """Return, per output of which the last call left bytes unwritten, which elements; the simulator alone tells."""
        found: dict[str, Unwritten] = {}
        for name in self.plan.outputs:
            buffer = self._passed.get(name)
            if not isinstance(buffer, Buffer):
                continue
            array = self.tensors[name].array
            if array.size:
                marks = buffer.initialized_bytes()
                shape, strides = (*array.shape, array.itemsize), (*array.strides, 1)
                whole = np.lib.stride_tricks.as_strided(marks, shape, strides).all(axis=-1)
                if missing := int(whole.size - np.count_nonzero(whole)):
                    first = np.unravel_index(int(np.argmin(whole)), whole.shape)
                    found[name] = Unwritten(missing, tuple(int(index) for index in first))
        return found

    def _arguments(self, launch: Launch) -> tuple[Any, ...]:
        values = self.plan.arguments(launch, self.tensors)
        return tuple(
            self._passed[cast("str", value.value)] if value.kind == "pointer" else value.value for value in values
        )


def vars_of(content: object) -> tuple[str, ...]:
    """Return the tensors that a content check names."""
    members = attrs.asdict(cast("Any", content), recurse=False)
    return tuple(value for value in members.values() if isinstance(value, str))
