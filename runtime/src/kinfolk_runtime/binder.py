"""The one binder: tensors meet a plan, everything is checked, then its launches run in order.

outputs = bind(artifact, {"q": q, "cache": cache})()
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol, cast

import attrs
import numpy as np
import numpy.typing as npt

from kinfolk.arch import Arch
from kinfolk.check.sparse import SparseArray
from kinfolk.errors import BindError, KinfolkError
from kinfolk.expr import Scope
from kinfolk.fields import shown
from kinfolk.ir.value import Kernel
from kinfolk.plan import Binding, Launch, Plan
from kinfolk.spec import Spec
from kinfolk_runtime.content import check_content
from kinfolk_runtime.executor import Executor, Work, executor_of, mismatch, run_contained, takes_sparse
from kinfolk_runtime.launching import check_kernel, check_launch
from kinfolk_runtime.simulator.buffers import Buffer, SparseBuffer
from kinfolk_runtime.steps import check_source
from kinfolk_runtime.tensors import Tensor, allocated, tensor

if TYPE_CHECKING:
    from kinfolk_runtime.artifact import Artifact, CompiledKernel

Array = npt.NDArray[Any]
Storage = Buffer | SparseBuffer


class StatusError(KinfolkError, ValueError):
    """A launch counted something wrong in its inputs in a status word; what it counted contributed nothing."""


class Composed(Protocol):
    """The part of a composition that binding asks."""

    @property
    def arch(self) -> Arch: ...
    def emit(self, spec: Spec) -> Kernel: ...


@attrs.frozen(kw_only=True)
class _Bound:
    kernel: Kernel
    compiled: CompiledKernel | None


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
    """

    plan: Plan
    arch: Arch
    executor: Executor
    tensors: Mapping[str, Tensor]
    check_contents: bool
    supplied: frozenset[str]
    _kernels: tuple[_Bound, ...] = attrs.field(alias="kernels", repr=False)
    _buffers: dict[str, Storage] = attrs.field(init=False, repr=False, factory=dict[str, "Storage"])

    def __call__(self) -> dict[str, Array]:
        """Run every launch in order and return the outputs."""
        scope = self.plan.scope(self.tensors)
        if self.check_contents:
            for content in self.plan.contents:
                check_content(content, self.tensors, scope)
        self._buffers.update(self._fresh_buffers())
        for launch, bound in zip(self.plan.launches, self._kernels, strict=True):
            grid = self.plan.grid(launch, self.tensors)
            if 0 not in grid:
                work = Work(kernel=bound.kernel, compiled=bound.compiled, grid=grid, arguments=self._arguments(launch))
                run_contained(self.executor, work)
        return {name: self.tensors[name].array for name in self.plan.outputs}

    def status(self) -> dict[str, int]:
        """Return the status words of the last call, by binding; 0 is good."""
        return {
            binding.name: int(np.asarray(self.tensors[binding.name].array).sum())
            for binding in self.plan.bindings
            if binding.role == "status"
        }

    def unwritten(self) -> dict[str, Unwritten]:
        """Return, per output of which the last call left bytes unwritten, which elements; the simulator alone tells."""
        found: dict[str, Unwritten] = {}
        for name in self.plan.outputs:
            array, buffer = self.tensors[name].array, self._buffers.get(name)
            if isinstance(buffer, Buffer) and array.size:
                marks = buffer.initialized_bytes()
                shape, strides = (*array.shape, array.itemsize), (*array.strides, 1)
                whole = np.lib.stride_tricks.as_strided(marks, shape, strides).all(axis=-1)
                if missing := int(whole.size - np.count_nonzero(whole)):
                    first = np.unravel_index(int(np.argmin(whole)), whole.shape)
                    found[name] = Unwritten(missing, tuple(int(index) for index in first))
        return found

    def _fresh_buffers(self) -> dict[str, Storage]:
        buffers: dict[str, Storage] = {}
        for binding in self.plan.bindings:
            value = self.tensors[binding.name].value
            if isinstance(value, SparseArray):
                buffers[binding.name] = SparseBuffer(value.nbytes, value.ranges())
                continue
            array = value
            if binding.role == "status":
                array[...] = 0
            read_first = binding.role == "output" and binding.access == "readwrite" and binding.name in self.supplied
            known = binding.role in ("input", "status") or read_first
            buffers[binding.name] = Buffer(array, initialized=known)
        return buffers

    def _arguments(self, launch: Launch) -> tuple[Storage | int | float, ...]:
        values = self.plan.arguments(launch, self.tensors)
        return tuple(
            self._buffers[cast("str", value.value)] if value.kind == "pointer" else cast("int | float", value.value)
            for value in values
        )


def bind(
    source: Artifact | Plan,
    tensors: Mapping[str, Any],
    executor: Executor | str | None = None,
    check_contents: bool = False,
    *,
    composition: Composed | None = None,
) -> Bound:
    """Check tensors against a plan and return what launches it when called; all checks come before the first launch.

    `source` is an artifact, or a plan, whose kernels are then emitted for an executor of IR. `tensors` holds every
    input by name; outputs and workspaces may be given and are allocated otherwise, filled with poison. `executor` is
    an executor, a plugin's name or None for the simulator. Raises BindError naming tensor or argument, the value, and
    what is needed, and ArtifactError where an artifact's parts do not belong together.
    """
    check_source(source, "bind")
    if not isinstance(source, Plan):
        source.check_claims()
    plan, compiled = (source, None) if isinstance(source, Plan) else (source.plan, source.kernels)
    if composition is None:
        from kinfolk_runtime.artifact import composition_of

        composition = composition_of(plan)
    runner = executor_of(executor)
    if why := mismatch(runner, composition.arch):
        raise BindError(f"{why}. Dispatch for that arch or choose another executor.")
    if changed := plan.staleness():
        raise BindError(f"the plan's request was changed since it was dispatched: {changed}. Dispatch again.")
    plan = plan.with_request(copy.copy(plan.request))  # what is checked here is what is launched
    if plan.arch != composition.arch.name:
        raise BindError(f"the plan is for {plan.arch}, it is bound for {composition.arch.name}. Dispatch again.")
    kernels = _kernels(plan, compiled, composition)
    bound = _bound_tensors(plan, tensors)
    _check_sparse(plan, bound, runner)
    scope = plan.scope(bound)
    _check_overlaps(plan, bound)
    for launch, one in zip(plan.launches, kernels, strict=True):
        check_kernel(launch, one.kernel, composition.arch)
        check_launch(plan, launch, bound, composition.arch)
    if check_contents:
        for content in plan.contents:
            check_content(content, bound, scope)
    return Bound(
        plan=plan,
        arch=composition.arch,
        executor=runner,
        tensors=bound,
        check_contents=check_contents,
        supplied=frozenset(tensors),
        kernels=kernels,
    )


def call(
    source: Artifact | Plan,
    tensors: Mapping[str, Any],
    executor: Executor | str | None = None,
    *,
    composition: Composed | None = None,
) -> dict[str, Array]:
    """Run a plan once, its index tensors looked into first, and return the outputs by name.

    Raises BindError before any launch, and StatusError after them where a status word is not 0.
    """
    check_source(source, "call")
    bound = bind(source, tensors, executor, check_contents=True, composition=composition)
    outputs = bound()
    for name, count in bound.status().items():
        if count:
            symbols = ", ".join(launch.spec.symbol() for launch in bound.plan.launches)
            raise StatusError(
                f"{symbols}: status word {name} is {count} after the launch: that many index values were out of range "
                f"and contributed nothing"
            )
    return outputs


def _kernels(plan: Plan, compiled: tuple[CompiledKernel, ...] | None, composition: Composed) -> tuple[_Bound, ...]:
    if compiled is None:
        return tuple(_Bound(kernel=composition.emit(launch.spec), compiled=None) for launch in plan.launches)
    return tuple(_Bound(kernel=one.kernel, compiled=one) for one in compiled)


def _word(name: object) -> str:
    return name if isinstance(name, str) else shown(name)


def _bound_tensors(plan: Plan, given: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return a checked tensor per binding: those given, then those allocated."""
    names = [binding.name for binding in plan.bindings]
    if not isinstance(cast("object", given), Mapping):
        kind = type(cast("object", given)).__name__
        raise BindError(f"tensors are passed by name, in a mapping, got a {kind}; the plan binds {', '.join(names)}.")
    if unknown := [_word(name) for name in given if name not in names]:
        raise BindError(f"no tensor is named {', '.join(sorted(unknown))}; the plan binds {', '.join(names)}.")
    missing = [binding.name for binding in plan.bindings if binding.role == "input" and binding.name not in given]
    if missing:
        raise BindError(f"input {', '.join(missing)} is missing; the plan takes {', '.join(names)}.")
    bound = {
        binding.name: tensor(binding.name, given[binding.name], binding.dtype)
        for binding in plan.bindings
        if binding.name in given
    }
    for binding in plan.bindings:
        if binding.name in bound:
            _check_rank(binding, bound[binding.name])
    for binding in plan.bindings:
        scope = plan.scope(bound)
        if binding.name in given:
            _check_tensor(binding, bound[binding.name], scope)
        else:
            bound[binding.name] = Tensor(binding.name, _allocated(binding, scope))
    return bound


def _allocated(binding: Binding, scope: Scope) -> Array:
    shape = [axis.extent.integer(scope) for axis in binding.shape]
    strides = [1] * len(shape)
    for index in reversed(range(len(shape))):
        stated = binding.shape[index].stride
        if isinstance(stated, str) or stated is None:
            strides[index] = strides[index + 1] * shape[index + 1] if index + 1 < len(shape) else 1
        else:
            strides[index] = stated.integer(scope)
    return allocated(binding.dtype, shape, strides, binding.alignment)


def _check_rank(binding: Binding, held: Tensor) -> None:
    if len(held.shape) != len(binding.shape):
        raise BindError(
            f"{binding.name} has shape {held.shape}, {len(binding.shape)} axes "
            f"({', '.join(str(axis.extent) for axis in binding.shape)}) are needed."
        )


def _check_tensor(binding: Binding, held: Tensor, scope: Scope) -> None:
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
                f"its strides are {tuple(steps)}. Pass a copy in that layout (numpy.ascontiguousarray)."
            )
    if held.value.size and held.address % binding.alignment:
        raise BindError(
            f"{name}: its address {held.address:#x} is no multiple of {binding.alignment} bytes, which the kernel's "
            f"accesses need. Allocate it aligned, or slice it at a multiple of that."
        )
    if binding.access != "read":
        _check_written(name, held)


def _check_written(name: str, held: Tensor) -> None:
    if not held.array.flags.writeable:
        raise BindError(f"{name} is written, the array given is read-only. Pass a writable one.")
    if held.array.size == 0:
        return
    reach = 0
    for step, extent in sorted(zip(held.element_strides, held.shape, strict=True)):
        if extent > 1 and step <= reach:
            raise BindError(
                f"{name} is written, its elements overlap each other (strides {tuple(held.element_strides)}). "
                f"Pass memory of its own for each element."
            )
        reach += (extent - 1) * step


def _check_sparse(plan: Plan, bound: Mapping[str, Tensor], runner: Executor) -> None:
    """Raise where memory that exists in part meets an executor that needs all of it."""
    sparse = [binding.name for binding in plan.bindings if isinstance(bound[binding.name].value, SparseArray)]
    if sparse and not takes_sparse(runner):
        raise BindError(
            f"{', '.join(sparse)} exists in part, executor {runner.name} runs on whole memory. Pass the whole "
            f"array, or run it on the simulator."
        )


def _check_overlaps(plan: Plan, bound: Mapping[str, Tensor]) -> None:
    """Raise where memory that is written is also reached under another name."""
    for binding in plan.bindings:
        if binding.access == "read":
            continue
        for other in plan.bindings:
            if other.name != binding.name and _share(bound[binding.name], bound[other.name]):
                raise BindError(
                    f"{binding.name} is written and shares memory with {other.name}. Pass memory of its own for it."
                )


def _share(a: Tensor, b: Tensor) -> bool:
    try:
        return any(np.shares_memory(one, other, cast("Any", 100_000)) for one in a.parts for other in b.parts)
    except np.exceptions.TooHardError:
        return True
