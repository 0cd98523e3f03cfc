"""Kernels that tests share: each compiled, emitted and prepared once in a process, whatever requests run on it."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from kinfolk.check import Expected, Scenario, ScenarioReport
from kinfolk.dispatch import dispatch
from kinfolk.flavor import DEFAULT_FLAVOR
from kinfolk.plugins.composition import Composition
from kinfolk_runtime.artifact import Artifact
from kinfolk_runtime.compilation import compile as compile_plan
from kinfolk_runtime.simulator import Simulator
from kinfolk_runtime.verify import Runner, run_scenario

MOST = 12
"""So many artifacts are kept: the text of a kernel takes megabytes."""
_built: dict[tuple[Any, ...], Artifact] = {}
_references: dict[tuple[Any, ...], Mapping[str, Expected]] = {}


def artifact_of(request: Any, arch: str, flavor: str = DEFAULT_FLAVOR) -> Artifact:
    """Return a request's plan with its kernels, those of another request where that has the same. To be asked before
    a fault is planted in what emits them.
    """
    plan = dispatch(request, arch, flavor)
    key = (arch, flavor, *(launch.spec.identity() for launch in plan.launches))
    found = _built.pop(key, None) or compile_plan(plan)
    _built[key] = found
    if len(_built) > MOST:
        del _built[next(iter(_built))]
    return attrs.evolve(found, plan=plan)


def expected_of(composition: Composition, scenario: Scenario) -> Mapping[str, Expected]:
    """Return the reference of one of a family's scenarios, which no arch has a part in."""
    key = (composition.family, scenario.request, scenario.name)
    if key not in _references:
        _references[key] = composition.reference(scenario.request, scenario.inputs())
    return _references[key]


@functools.cache
def simulator(sanitize: str = "all") -> Simulator:
    """Return the simulator that all tests of a process share, in which a kernel is prepared once."""
    return Simulator(sanitize=sanitize)


@functools.cache
def runners(order_seeds: Sequence[int] = (0,)) -> tuple[Runner, ...]:
    """Return it in orders of waves, by default in one."""
    return tuple(Runner(simulator().with_order(seed), seed) for seed in order_seeds)


def judged(
    composition: Composition, artifact: Artifact, name: str, ran_by: Sequence[Runner] | None = None
) -> ScenarioReport:
    """Run a scenario of an artifact's request, by default on the simulator in one order of waves."""
    [scenario] = [each for each in composition.scenarios(artifact.plan.request) if each.name == name]
    expected = expected_of(composition, scenario)
    return run_scenario(composition, artifact, scenario, runners() if ran_by is None else ran_by, expected)
