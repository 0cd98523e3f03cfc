"""Operands: what a request class says of its tensors is what its plans bind, and states what the request is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, cast

import attrs

from kinfolk.operand import disagreements, stated_fields
from kinfolk.plan import Plan
from kinfolk.testing.check import Findings, Outcome
from kinfolk.testing.requests import told
from kinfolk.testing.subject import Subject

REMEDY: Final = "Change the operand or the binding: hosts read fields by the one, kernels are launched by the other"


@attrs.frozen
class _Shaped:
    shape: tuple[int, ...]
    dtype: str


def no_operands(subject: Subject) -> str:
    """Return why there is nothing to look at, or nothing."""
    kind = subject.composed.request_type
    return "" if kind.operands else f"{kind.__name__} declares no operands"


def operands(subject: Subject) -> Outcome:
    """Plan admitted requests: tensors and outputs are those declared, and fields read off them are the request's."""
    found = Findings("operands", "admitted requests", each=subject.serving)
    for request, verdict in subject.requests.admitted(400 if subject.full else 100):
        plan, name = cast("Plan", verdict.plan), verdict.candidate.name
        found.looked_at(of=name)
        for problem in disagreements(plan):
            found.wrong(name, problem, REMEDY, told(request))
        declared = {operand.name for operand in type(request).operands}
        tensors = {tensor: shaped for tensor, shaped in _inputs(plan).items() if tensor in declared}
        stated = stated_fields(type(request).operands, tensors, {})
        if wrong := [field for field in stated if stated[field] != getattr(request, field)]:
            said = ", ".join(f"{field} = {stated[field]!r} for {getattr(request, field)!r}" for field in wrong)
            remedy = "Correct the extents and states of operands"
            found.wrong(name, f"its tensors state {said}", remedy, told(request), kind="states")
    return found.outcome()


def _inputs(plan: Plan) -> Mapping[str, _Shaped]:
    """Return the least tensors that a plan takes as inputs."""
    scope = plan.scope()
    return {
        binding.name: _Shaped(tuple(axis.extent.integer(scope) for axis in binding.shape), binding.dtype)
        for binding in plan.bindings
        if binding.role == "input"
    }
