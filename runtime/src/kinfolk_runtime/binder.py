"""The one binder: tensors meet a plan, everything is checked, then its launches run in order.

outputs = bind(artifact, {"q": q, "cache": cache})()
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, cast

from kinfolk.arch import Arch
from kinfolk.errors import BindError
from kinfolk.expr import Scope
from kinfolk.fields import shown
from kinfolk.ir.value import Kernel
from kinfolk.plan import Binding, Plan
from kinfolk.spec import Spec
from kinfolk_runtime.bound import Bound, BoundKernel, StatusError, Unwritten
from kinfolk_runtime.executor import Executor, admit_of, executor_of, mismatch
from kinfolk_runtime.host_memory import Memory, memory_of
from kinfolk_runtime.launching import check_kernel, check_launch
from kinfolk_runtime.matching import check_overlaps, check_rank, check_sparse, check_tensor
from kinfolk_runtime.steps import check_source
from kinfolk_runtime.tensors import Array, Tensor

if TYPE_CHECKING:
    from kinfolk_runtime.artifact import Artifact, CompiledKernel

__all__ = [
    "Bound",
    "Composed",
    "StatusError",
    "Unwritten",
    "bind",
    "bind_kernels",
    "call",
    "check_status",
    "kernels_of",
]


Lend = Callable[[Binding, Sequence[int], Sequence[int]], "Tensor | None"]
"""What gives the memory of a binding of this shape and these strides, in elements; None to have it allocated."""


class Composed(Protocol):
    """The part of a composition that binding asks."""

    @property
    def arch(self) -> Arch: ...
    def emit(self, spec: Spec) -> Kernel: ...


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
    if changed := plan.staleness():
        raise BindError(f"the plan's request was changed since it was dispatched: {changed}. Dispatch again.")
    kernels = kernels_of(plan, compiled, composition, runner)
    bound = bind_kernels(plan, kernels, composition.arch, tensors, runner, check_contents=check_contents)
    if check_contents:
        bound.look_into_contents()
    return bound


def kernels_of(
    plan: Plan, compiled: tuple[CompiledKernel, ...] | None, composition: Composed, executor: Executor
) -> tuple[BoundKernel, ...]:
    """Return the kernels of a plan, checked against arch and executor, which has loaded them where it loads code.

    Raises BindError naming the kernel, and what the executor raises where it cannot load it.
    """
    arch = composition.arch
    if why := mismatch(executor, arch):
        raise BindError(f"{why}. Dispatch for that arch or choose another executor.")
    if plan.arch != arch.name:
        raise BindError(f"the plan is for {plan.arch}, it is bound for {arch.name}. Dispatch again.")
    machine = compiled or (None,) * len(plan.launches)
    kernels = tuple(
        BoundKernel(kernel=composition.emit(launch.spec) if one is None else one.kernel, compiled=one)
        for launch, one in zip(plan.launches, machine, strict=True)
    )
    for launch, one in zip(plan.launches, kernels, strict=True):
        check_kernel(launch, one.kernel, arch)
    admit = admit_of(executor)
    if admit is None:
        return kernels
    from kinfolk_runtime.image import image_of

    pairs = zip(plan.launches, kernels, strict=True)
    images = tuple(image_of(launch, arch, one.compiled, composition) for launch, one in pairs)
    admit(arch, images)
    return tuple(
        BoundKernel(kernel=one.kernel, compiled=one.compiled, image=image)
        for one, image in zip(kernels, images, strict=True)
    )


def bind_kernels(
    plan: Plan,
    kernels: tuple[BoundKernel, ...],
    arch: Arch,
    tensors: Mapping[str, Any],
    executor: Executor,
    *,
    check_contents: bool = False,
    lend: Lend | None = None,
) -> Bound:
    """Check tensors against a plan whose kernels are checked; raises as `bind`, and then holds no memory.

    `lend` gives the memory of some bindings that are not in `tensors`, and stays its owner.
    """
    plan = plan.with_request(copy.copy(plan.request))  # what is checked here is what is launched
    memory = memory_of(executor)
    held: dict[str, Tensor] = {}
    lent: set[str] = set()
    try:
        _take_tensors(plan, tensors, memory, held)
        for binding in plan.bindings:
            scope = plan.scope(held)
            if binding.name in tensors:
                check_tensor(binding, held[binding.name], scope)
                continue
            shape, strides = _geometry(binding, scope)
            if lend and (found := lend(binding, shape, strides)):
                lent.add(binding.name)
            else:
                found = memory.allocated(binding.name, binding.dtype, shape, strides, binding.alignment)
            held[binding.name] = found
        check_sparse(plan, held, executor)
        check_overlaps(plan, held)
        for launch in plan.launches:
            check_launch(plan, launch, held, arch)
        _expect_grids(plan, kernels, held, executor)
    except BaseException:
        for name in held.keys() - lent:
            memory.release(held[name])
        raise
    return Bound(
        plan=plan,
        arch=arch,
        executor=executor,
        tensors=held,
        check_contents=check_contents,
        supplied=frozenset(tensors),
        kernels=kernels,
    )


def _expect_grids(plan: Plan, kernels: tuple[BoundKernel, ...], held: Mapping[str, Tensor], executor: Executor) -> None:
    """Let an executor that launches code objects raise for grids that it cannot launch."""
    expect: Any = getattr(executor, "expect_grid", None)
    for launch, kernel in zip(plan.launches, kernels, strict=True):
        if expect is not None and kernel.image is not None:
            expect(kernel.image, plan.grid(launch, held))


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
    bound = bind(source, tensors, executor, composition=composition)
    bound.look_into_contents()
    outputs = bound()
    check_status(bound)
    return outputs


def check_status(bound: Bound) -> None:
    """Raise StatusError where a status word of the last call is not 0; waits for that call."""
    for name, count in bound.status().items():
        if count:
            symbols = ", ".join(launch.spec.symbol() for launch in bound.plan.launches)
            raise StatusError(
                f"{symbols}: status word {name} is {count} after the launch: that many index values were out of range "
                f"and contributed nothing"
            )


def _word(name: object) -> str:
    return name if isinstance(name, str) else shown(name)


def _take_tensors(plan: Plan, given: Mapping[str, Any], memory: Memory, bound: dict[str, Tensor]) -> None:
    """Put a tensor of the right type and rank into `bound` for each that was given."""
    names = [binding.name for binding in plan.bindings]
    if not isinstance(cast("object", given), Mapping):
        kind = type(cast("object", given)).__name__
        raise BindError(f"tensors are passed by name, in a mapping, got a {kind}; the plan binds {', '.join(names)}.")
    if unknown := [_word(name) for name in given if name not in names]:
        raise BindError(f"no tensor is named {', '.join(sorted(unknown))}; the plan binds {', '.join(names)}.")
    missing = [binding.name for binding in plan.bindings if binding.role == "input" and binding.name not in given]
    if missing:
        raise BindError(f"input {', '.join(missing)} is missing; the plan takes {', '.join(names)}.")
    for binding in plan.bindings:
        if binding.name in given:
            bound[binding.name] = memory.taken(binding.name, given[binding.name], binding.dtype)
    for binding in plan.bindings:
        if binding.name in bound:
            check_rank(binding, bound[binding.name])


def _geometry(binding: Binding, scope: Scope) -> tuple[list[int], list[int]]:
    """Return the shape and the strides, in elements, of memory that is allocated for a binding."""
    shape = [axis.extent.integer(scope) for axis in binding.shape]
    strides = [1] * len(shape)
    for index in reversed(range(len(shape))):
        stated = binding.shape[index].stride
        if isinstance(stated, str) or stated is None:
            strides[index] = strides[index + 1] * shape[index + 1] if index + 1 < len(shape) else 1
        else:
            strides[index] = stated.integer(scope)
    return shape, strides
