"""Binding: for every tensor of a plan, and every property of it, one that is wrong in just that, which is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, cast

import attrs
import numpy as np
import numpy.typing as npt

from kinfolk.check import SparseArray
from kinfolk.errors import BindError, KinfolkError, SimulationError
from kinfolk.expr import Scope
from kinfolk.expr.node import Extent
from kinfolk.plan import Binding, Plan
from kinfolk.testing.check import Findings, Outcome
from kinfolk.testing.requests import told
from kinfolk.testing.subject import Subject
from kinfolk_runtime.artifact import Artifact
from kinfolk_runtime.binder import bind
from kinfolk_runtime.conformance.runs import artifact_of
from kinfolk_runtime.conformance.small import run_requests
from kinfolk_runtime.tensors import DTYPES, allocated

Array = npt.NDArray[Any]
Tensors = dict[str, Any]
OTHER: Final = {1: ("i8", "f8E4M3FN"), 2: ("i16", "f16", "bf16"), 4: ("i32", "f32"), 8: ("i64", "f64")}
"""Element types of a size, of which one is another than a binding's."""


@attrs.frozen
class Wrong:
    """Tensors of which one is wrong in one property; `about` says which, `remedy` what would have it refused."""

    name: str
    about: str
    tensors: Mapping[str, Any]
    remedy: str = "Declare the binding as the kernel needs it: shape, strides, alignment, access"


class _Elsewhere:
    """What is no memory of this host."""


def binding(subject: Subject) -> Outcome:
    """Bind the tensors of a scenario, then each with one property wrong: all but the first must be refused."""
    found = Findings("binding", "tensors with one wrong property", each=subject.serving)
    for artifact, tensors in _bindable(subject, found):
        plan = artifact.plan
        _run_tight(artifact, tensors, subject, found)
        for wrong in _wrongs(plan, tensors):
            found.looked_at(of=plan.candidate)
            where, example = f"{plan.candidate}, {wrong.name}", told(plan.request)
            try:
                bind(artifact, wrong.tensors, composition=subject.sharing)
            except BindError as error:
                if wrong.name not in str(error):
                    problem = f"{wrong.about}: refused without naming {wrong.name}: {error}"
                    found.wrong(where, problem, "Name the tensor", example, kind=f"name {wrong.about}")
            except KinfolkError as error:
                problem = f"{wrong.about}: raises {type(error).__name__} in place of BindError: {error}"
                found.wrong(where, problem, wrong.remedy, example, kind=f"class {wrong.about}")
            else:
                found.wrong(where, f"{wrong.about}: it is taken", wrong.remedy, example, kind=wrong.about)
    return found.outcome()


def _bindable(subject: Subject, found: Findings) -> Iterator[tuple[Artifact, Tensors]]:
    """Yield, for each candidate, a compiled plan with tensors that bind: inputs of a scenario, all else allocated."""
    from kinfolk.dispatch import selections

    seen: set[str] = set()
    for request in run_requests(subject):
        for scenario in subject.sharing.scenarios(request):
            if scenario.sparse:
                continue
            plan = selections.plan(subject.sharing, scenario.request, subject.flavor_name)
            if plan.candidate in seen:
                break
            tensors = _tensors(plan, scenario.inputs())
            given = [tensors[each.name] for each in plan.bindings if each.role != "workspace"]
            if any(isinstance(each, SparseArray) or not each.size for each in given):
                continue
            artifact = attrs.evolve(artifact_of(subject, request), plan=plan)
            try:
                bind(artifact, tensors, composition=subject.sharing)
            except BindError as error:
                problem = f"the inputs of scenario {scenario.name} do not bind: {error}"
                remedy = "Let scenarios build what the plan declares"
                found.wrong(plan.candidate, problem, remedy, told(request), kind="inputs")
                continue
            seen.add(plan.candidate)
            yield artifact, tensors


def _tensors(plan: Plan, inputs: Mapping[str, Any]) -> Tensors:
    """Return inputs as they are but aligned as declared, and new memory for what launches write."""
    tensors: Tensors = {}
    scope = plan.scope(cast("Any", {name: _Geometry(array) for name, array in inputs.items()}))
    for each in plan.bindings:
        if each.name in inputs:
            given: Any = inputs[each.name]
            steps = [step // given.itemsize for step in given.strides]
            tensors[each.name] = given
            if isinstance(given, np.ndarray) and given.size:
                tensors[each.name] = allocated(each.dtype, cast("Array", given).shape, steps, each.alignment)
                tensors[each.name][...] = given
        else:
            shape = [extent.integer(scope) for extent in each.extents()]
            steps = [1] * len(shape)
            for axis in reversed(range(len(shape) - 1)):
                steps[axis] = steps[axis + 1] * shape[axis + 1]
            tensors[each.name] = allocated(each.dtype, shape, steps, each.alignment)
    return tensors


class _Geometry:
    """Shape and element strides of an array, as expressions read them."""

    def __init__(self, array: Any) -> None:
        self.shape: tuple[int, ...] = tuple(array.shape)
        self.element_strides: tuple[int, ...] = tuple(step // array.itemsize for step in array.strides)


def _wrongs(plan: Plan, tensors: Tensors) -> Iterator[Wrong]:
    scope = plan.scope(cast("Any", {name: _Geometry(array) for name, array in tensors.items()}))
    for each in plan.bindings:
        array = cast("Array", tensors[each.name])
        if not array.size:
            continue  # a workspace that these sizes need nothing of
        for about, value in _wrong_values(each, array, scope):
            yield Wrong(each.name, about, {**tensors, each.name: value})
        if each.role == "input":
            without = {name: held for name, held in tensors.items() if name != each.name}
            yield Wrong(each.name, "it is missing", without)
        if each.access != "read":
            yield from _wrong_outputs(each, array, plan, tensors)
    yield Wrong("no_such_tensor", "one more is passed", {**tensors, "no_such_tensor": np.zeros(4, np.float32)})


def _wrong_values(each: Binding, array: Array, scope: Scope) -> Iterator[tuple[str, Any]]:
    """Yield what is wrong, and a value that is wrong in that alone."""
    other = next(DTYPES[name] for name in OTHER[array.itemsize] if DTYPES[name] != array.dtype)
    yield f"element type {other.name}", array.view(other)
    yield "one axis too many", array[None]
    yield "an object that is no array", _Elsewhere()
    yield "a list of numbers", [0.0]
    for axis, declared in enumerate(each.shape):
        if any(isinstance(leaf, Extent) for leaf in declared.extent.leaves()):
            continue  # as long as the caller makes it
        least = declared.extent.integer(scope)
        if least > 0:
            yield f"axis {axis} one element too short", array[_cut(array, axis, least - 1)]
        if not declared.at_least:
            yield f"axis {axis} one element too long", _strided(each, array, axis, longer=1)
        if array.shape[axis] > 1 and declared.stride is not None:
            yield f"axis {axis} with another stride", _strided(each, array, axis, wider=True)
        if array.shape[axis] > 1:
            yield f"axis {axis} backwards", np.flip(array, axis)
    if each.alignment > array.itemsize:
        yield f"an address off by {array.itemsize} bytes", _displaced(each, array)


def _cut(array: Array, axis: int, extent: int) -> tuple[slice, ...]:
    return tuple(slice(0, extent) if index == axis else slice(None) for index in range(array.ndim))


def _run_tight(artifact: Artifact, tensors: Tensors, subject: Subject, found: Findings) -> None:
    """Run with every input cut to the least extents that are declared: whatever binds must be enough."""
    plan = artifact.plan
    scope = plan.scope(cast("Any", {name: _Geometry(array) for name, array in tensors.items()}))
    least = {each.name: tensors[each.name] for each in plan.bindings if each.role == "input"}
    for each in plan.bindings:
        for axis, declared in enumerate(each.shape):
            if each.role == "input" and declared.at_least:
                array = least[each.name]
                least[each.name] = array[_cut(array, axis, declared.extent.integer(scope))]
    found.looked_at()
    where, example = f"{plan.candidate}, the least tensors", told(plan.request)
    try:
        bind(artifact, least, composition=subject.sharing)()
    except SimulationError as error:
        if not _runs(artifact, tensors, subject):
            return  # no matter of extents: the check of sanitizers tells it
        remedy = "Declare at least the extents that the kernel reaches"
        found.wrong(where, f"tensors of the least declared extents bind, and then: {error}", remedy, example)
    except BindError as error:
        found.wrong(where, f"tensors of the least declared extents are refused: {error}", "Declare them alike", example)


def _runs(artifact: Artifact, tensors: Tensors, subject: Subject) -> bool:
    try:
        bind(artifact, tensors, composition=subject.sharing)()
    except SimulationError:
        return False
    return True


def _wrong_outputs(each: Binding, array: Array, plan: Plan, tensors: Tensors) -> Iterator[Wrong]:
    locked = array.view()
    locked.flags.writeable = False
    yield Wrong(each.name, "it is read-only", {**tensors, each.name: locked})
    for axis, extent in enumerate(array.shape):
        if extent > 1:
            steps = list(array.strides)
            steps[axis] = 0
            folded = np.lib.stride_tricks.as_strided(array, array.shape, steps, writeable=True)
            yield Wrong(each.name, f"its elements overlap along axis {axis}", {**tensors, each.name: folded})
    for other in plan.bindings:
        if other.name != each.name and tensors[other.name].size:
            shared = _over(tensors[other.name], array, each)
            yield Wrong(each.name, f"it shares memory with {other.name}", {**tensors, **shared(other)})


def _over(under: Array, array: Array, each: Binding) -> Callable[[Binding], Tensors]:
    """Return what gives both tensors in one piece of memory, which begins as the stricter of them needs it."""

    def made(other: Binding) -> Tensors:
        size, step = max(_reach(under), _reach(array)), max(each.alignment, other.alignment)
        memory = allocated("i8", (size,), (1,), step)
        return {
            name: np.lib.stride_tricks.as_strided(
                memory[: _reach(held)].view(held.dtype), held.shape, held.strides, writeable=True
            )
            for name, held in ((other.name, under), (each.name, array))
        }

    return made


def _reach(array: Array) -> int:
    """Return the bytes from an array's first element to the end of its last."""
    return sum((extent - 1) * step for extent, step in zip(array.shape, array.strides, strict=True)) + array.itemsize


def _strided(each: Binding, array: Array, axis: int, longer: int = 0, wider: bool = False) -> Array:
    """Return new memory like an array's, longer along an axis, or with more between its elements there."""
    shape = [extent + longer * (index == axis) for index, extent in enumerate(array.shape)]
    steps = [step // array.itemsize for step in array.strides]
    if longer:
        steps = [1] * len(shape)
        for index in reversed(range(len(shape) - 1)):
            steps[index] = steps[index + 1] * shape[index + 1]
        for index, declared in enumerate(each.shape):
            if declared.stride is None:
                steps[index] = max(steps[index], array.strides[index] // array.itemsize)
    if wider:
        unit = max(1, each.alignment // array.itemsize)
        for index in range(axis + 1):
            steps[index] = steps[index] * 2 if index < axis else steps[index] + unit
    return allocated(each.dtype, shape, steps, each.alignment)


def _displaced(each: Binding, array: Array) -> Array:
    """Return new memory like an array's, which begins one element behind what the alignment asks for."""
    steps = [step // array.itemsize for step in array.strides]
    memory = allocated(each.dtype, (_reach(array) // array.itemsize + 1,), (1,), each.alignment)
    return np.lib.stride_tricks.as_strided(memory[1:], array.shape, [step * array.itemsize for step in steps])
