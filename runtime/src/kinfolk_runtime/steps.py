"""Which step of dispatch, compile, call comes next, for who passes what belongs to another step."""

from __future__ import annotations

from typing import Any

from kinfolk.plan import Plan
from kinfolk.request import Request


def check_plan(value: Any, step: str) -> Plan:
    """Return a plan; raise TypeError saying how to come to one from what was passed to `step`."""
    if isinstance(value, Plan):
        return value
    raise TypeError(f"{step} takes a Plan, got {_named(value)}. {_towards(value, step)}")


def check_source(value: Any, step: str) -> Any:
    """Return a plan or an artifact; raise TypeError saying how to come to one from what was passed to `step`."""
    from kinfolk_runtime.artifact import Artifact

    if isinstance(value, Plan | Artifact):
        return value
    raise TypeError(f"{step} takes an Artifact or a Plan, got {_named(value)}. {_towards(value, step)}")


def _named(value: object) -> str:
    return value.__name__ if isinstance(value, type) else f"a {type(value).__name__}"


def _towards(value: object, step: str) -> str:
    plan = "kinfolk.dispatch(request, arch)"
    if step == "compile":
        return f"Pass what dispatch returns: compile({plan})."
    first = "Dispatch and compile it first" if isinstance(value, Request) else "Pass what compile returns"
    return f"{first}: {step}(kinfolk_runtime.compile({plan}), tensors)."
