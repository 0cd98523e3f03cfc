"""References that judge: each refuses outputs that are wrong everywhere, and none of them runs the kernels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import FrameType
from typing import Any, Final, cast

import numpy as np
import numpy.typing as npt

from kinfolk.check import Expected, Scenario, compare, numpy_dtype
from kinfolk.plan import Plan
from kinfolk.request import Request
from kinfolk.testing.check import Findings
from kinfolk.testing.requests import told
from kinfolk.testing.subject import Subject
from kinfolk.testing.watching import call_watched
from kinfolk_runtime.conformance.small import most_bytes
from kinfolk_runtime.memory import needed_bytes
from kinfolk_runtime.products import one_thread
from kinfolk_runtime.verify import Fitting

KERNELS: Final = ("kinfolk_runtime.simulator", "kinfolk_runtime.executor", "kinfolk.ir.builder")
"""Modules that a reference has no business with: they build and run kernels."""
Array = npt.NDArray[Any]


def judge_references(subject: Subject, requests: Iterable[Request], found: Findings) -> None:
    """Show the reference of each request outputs of which every element is wrong: some scenario must refuse each."""
    for request in requests:
        blind: dict[str, bool] = {}
        scenarios = subject.sharing.scenarios(request)
        fitting = Fitting.of(subject.sharing, scenarios, subject.flavor_name, sparse=False)
        for position, scenario in enumerate(fitting.scenarios):
            plan = fitting.plans[scenario.name]
            if needed_bytes(plan) > most_bytes(subject, plan.candidate):
                continue
            expected, ran = _expected(subject, scenario, watch=not position)
            if ran:
                problem = f"kinfolk_reference runs kernels ({ran}): what it gives is what it must judge"
                found.wrong(plan.candidate, problem, "Compute outputs by definition, another way than the kernel's")
            for name, refused in _refused(plan, expected).items():
                blind[name] = blind.get(name, True) and not refused
            if all(blind.get(name) is False for name in plan.outputs):
                break  # every one is refused by some scenario
        for name in (name for name, taken in blind.items() if taken):
            problem = "every scenario takes an output of which each element is off by its own size, or by 1"
            remedy = "Derive the tolerance from the rounding of each step: one that takes everything tests nothing"
            found.wrong(f"output {name}", problem, remedy, told(request), kind="blind")


def expected_of(subject: Subject, scenario: Scenario) -> Mapping[str, Any]:
    """Return what the reference gives for a scenario of a small request, computed once for all checks."""
    name = f"reference {scenario.name} {scenario.request.to_json()}"
    return subject.once(name, lambda: _computed(subject, scenario.request, scenario.inputs()))


def _computed(subject: Subject, request: Request, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    with one_thread():
        return subject.sharing.reference(request, inputs)


def _expected(subject: Subject, scenario: Scenario, watch: bool) -> tuple[Mapping[str, Any], str]:
    """Return what the reference gives, and which module it built or ran a kernel with, if `watch` and it did."""
    ran = ""

    def seen(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal ran
        name = str(cast("Any", frame.f_globals).get("__name__", ""))
        if event == "call" and not ran and frame.f_code.co_name != "<module>" and name.startswith(KERNELS):
            ran = name

    if not watch:
        return expected_of(subject, scenario), ""
    inputs = scenario.inputs()
    return call_watched(lambda: _computed(subject, scenario.request, inputs), seen), ran


def _refused(plan: Plan, expected: Mapping[str, Any]) -> Mapping[str, bool]:
    """Return, by output that has elements, whether one that is wrong everywhere is refused."""
    found: dict[str, bool] = {}
    for name in plan.outputs:
        one = expected[name]
        if isinstance(one, Expected) and one.value.size:
            dtype = plan.binding(name).dtype
            found[name] = not compare(name, dtype, wrong(one.value, dtype), one).passed
    return found


def wrong(value: Array, dtype: str) -> Array:
    """Return an output in which each element is off: by its own size, by 1 where it is 0, finite where it is not."""
    storage = numpy_dtype(dtype)
    if storage == np.bool_:
        return ~value.astype(np.bool_)
    with np.errstate(over="ignore", invalid="ignore"):
        return np.where(np.isfinite(value), np.where(value == 0.0, 1.0, 2.0 * value), 0.0).astype(storage)
