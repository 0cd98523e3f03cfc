"""Arguments and grids of plans that may lie outside what kernels declare of them.

What a kernel's ranges are proved from must hold for every request that its candidate takes. A plan's expressions are
bounded over the box of launch fields that validators and limits leave; what depends on tensors, such as a stride, is
held to its bounds when tensors are bound.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from kinfolk.check.defect import Defect
from kinfolk.dispatch.interval import Range, bounds_of, reads
from kinfolk.expr import I64_MAX, Expr, Scope
from kinfolk.expr.node import AxisLeaf
from kinfolk.fields import ExactInt, is_launch
from kinfolk.record import fields_of

if TYPE_CHECKING:
    from kinfolk.arch import Arch
    from kinfolk.candidate import Candidate
    from kinfolk.ir.value import Kernel
    from kinfolk.plan import Launch, Plan
    from kinfolk.request import Request
    from kinfolk.spec import Spec

CHECK: Final = "argument_bounds"


def argument_bounds(
    plan: Plan, candidate: Candidate, arch: Arch, kernel_of: Callable[[Spec], Kernel] | None = None
) -> tuple[Defect, ...]:
    """Return a defect for each argument of a candidate's plan that may leave the bounds of its parameter.

    Launch fields may have every value that the request's class and the candidate's limits take beside the plan's other
    fields, as far as intervals tell. With `kernel_of`, grids are held to what kernels claim of them, too.
    """
    scope = Scope(request=plan.request, arch=arch)
    box = _box(plan.request, candidate, scope)
    return tuple(defect for launch in plan.launches for defect in _judged(launch, scope, box, kernel_of))


def _box(request: Request, candidate: Candidate, scope: Scope) -> dict[str, Range]:
    """Return the ranges of the launch fields: what validators take, cut by limits and relations."""
    box: dict[str, Range] = {}
    for field in fields_of(type(request)):
        if is_launch(field) and isinstance(field.validator, ExactInt):
            most = I64_MAX if field.validator.maximum is None else field.validator.maximum
            box[field.name] = Range(field.validator.minimum, most)
    conditions = [limit.condition for limit in candidate.capability]
    conditions += [relation.condition for relation in request.relations]
    for _ in range(2):  # a condition may compare a field with another, which a later one cuts
        for condition in conditions:
            for name in [name for name in box if reads(condition, (name,))]:
                box[name] = _cut(condition, scope, box, name)
    return box


def _cut(condition: Expr, scope: Scope, box: Mapping[str, Range], name: str) -> Range:
    """Return the range of a field without the ends at which a condition holds nowhere in the box."""

    def fails(low: int, high: int) -> bool:
        return bounds_of(condition, scope, {**box, name: Range(low, high)}) == (0, 0)

    low, high = box[name].low, box[name].high
    most = _last(low, high, lambda value: not fails(value, high))
    least = -_last(-most, -low, lambda value: not fails(low, -value))
    return Range(least, most)


def _last(low: int, high: int, holds: Callable[[int], bool]) -> int:
    """Return the last number up to which something holds, `low` where it does for none."""
    if holds(high):
        return high
    while high - low > 1:
        middle = (low + high) // 2
        if holds(middle):
            low = middle
        else:
            high = middle
    return low


def _judged(
    launch: Launch, scope: Scope, box: dict[str, Range], kernel_of: Callable[[Spec], Kernel] | None
) -> Iterator[Defect]:
    where = type(launch.spec).__name__
    for argument, parameter in zip(launch.arguments, launch.spec.parameters(), strict=True):
        if parameter.is_integer and isinstance(argument.value, Expr) and not _reads_tensors(argument.value):
            low, high = parameter.bounds
            found = bounds_of(argument.value, scope, box)
            if found is None or found[0] < low or found[1] > high:
                known = "not known" if found is None else f"{found[0]:,} to {found[1]:,}"
                yield Defect(
                    check=CHECK,
                    where=f"{where}, parameter {parameter.name}",
                    problem=f"a plan passes {argument.value}, which is {known} for requests that the limits take; "
                    f"the kernel declares {low:,} to {high:,}",
                    remedy="add a limit to the candidate's capability, or declare wider bounds",
                )
    if kernel_of is not None:
        yield from _grids(launch, scope, box, kernel_of(launch.spec))


def _grids(launch: Launch, scope: Scope, box: dict[str, Range], kernel: Kernel) -> Iterator[Defect]:
    for op in kernel.walk():
        below, axis = op.attributes.get("below"), op.attributes.get("axis")
        if op.name == "core.block_id" and isinstance(below, int) and below and isinstance(axis, int):
            found = bounds_of(launch.grid[axis], scope, box)
            if found is None or found[1] > below:
                most = "not known" if found is None else f"{found[1]:,}"
                yield Defect(
                    check=CHECK,
                    where=str(op.location),
                    problem=f"the kernel claims at most {below:,} workgroups along {'xyz'[axis]}; the plan's "
                    f"grid is {launch.grid[axis]}, which is {most} at the most",
                    remedy="claim what the plan launches, or limit what it launches",
                )


def _reads_tensors(expr: Expr) -> bool:
    return any(isinstance(leaf, AxisLeaf) for leaf in expr.leaves())
