"""Run a request's kernels on every scenario of its family, and compare with the fp64 reference."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import attrs
import numpy as np

from kinfolk.check import (
    Comparison,
    Expected,
    Finding,
    KernelReport,
    OutputReport,
    Report,
    Scenario,
    ScenarioReport,
    compare,
    numpy_dtype,
    poison,
)
from kinfolk.check.element import Array
from kinfolk.dispatch import selections
from kinfolk.errors import BindError, PluginError, Refused, SimulationError
from kinfolk.flavor import DEFAULT_FLAVOR
from kinfolk_runtime.artifact import Artifact, CompiledKernel
from kinfolk_runtime.compilation import compile as compile_plan
from kinfolk_runtime.executor import DEFAULT, Executor, executor_of

if TYPE_CHECKING:
    from kinfolk.plan import Plan
    from kinfolk.plugins.composition import Composition
    from kinfolk.request import Request

ENGINES = ("reference",)
Started = Callable[[str, int], None]


def verify(
    request: Request,
    arch: str,
    flavor: str = DEFAULT_FLAVOR,
    *,
    executor: str | Executor = DEFAULT,
    engine: str = "reference",
    scenarios: Iterable[str] | None = None,
    order_seed: int = 0,
    started: Started | None = None,
    composition: Composition | None = None,
) -> Report:
    """Dispatch, compile and gate a request, and run it on the family's scenarios: all of them, or those named.

    `order_seed` draws the simulator's order of waves and workgroups. `started(name, of)` is told each scenario as it
    begins. A refusal, a fault of the kernel and a wrong output are in the report. Raises ValueError for an unknown
    scenario or engine, ToolError where a kernel does not compile, PluginError where a plugin fails.
    """
    from kinfolk.plugins.composition import compose

    composition = composition or compose(request.family, arch)
    runner = _executor(executor, engine, order_seed)
    report = Report(
        family=request.family,
        arch=arch,
        flavor=flavor,
        candidate=None,
        executor=runner.name,
        request=request.to_dict(),
    )
    try:
        plan = selections.plan(composition, request, flavor)
        report = attrs.evolve(report, candidate=plan.candidate)
        artifact = compile_plan(plan, composition=composition)
    except Refused as refused:
        return attrs.evolve(report, refusals=refused.refusals)
    chosen = _chosen(composition.scenarios(request), scenarios)
    results: list[ScenarioReport] = []
    for scenario in chosen:
        if started:
            started(scenario.name, len(chosen))
        results.append(run_scenario(composition, artifact, scenario, runner))
    return attrs.evolve(report, scenarios=tuple(results), kernels=kernel_reports(artifact.kernels))


def kernel_reports(kernels: Iterable[CompiledKernel]) -> tuple[KernelReport, ...]:
    """Return the figures of each kernel once."""
    rows = {
        kernel.spec.identity(): KernelReport.of(
            kernel.usage, spec_digest=kernel.spec.digest(), arch=kernel.arch, toolchain=kernel.toolchain
        )
        for kernel in kernels
    }
    return tuple(rows.values())


def _executor(wanted: str | Executor, engine: str, order_seed: int) -> Executor:
    if engine not in ENGINES:
        raise ValueError(f"engine is {engine!r}, known: {', '.join(ENGINES)}")
    if wanted != DEFAULT:
        return executor_of(wanted)
    from kinfolk_runtime.simulator.engine import Simulator

    return Simulator(order_seed)


def _chosen(offered: Sequence[Any], wanted: Iterable[str] | None) -> tuple[Scenario, ...]:
    """Return the scenarios that are wanted, in the family's order; ValueError names those there are."""
    for each in offered:
        if not isinstance(each, Scenario):
            raise PluginError(f"kinfolk_scenarios gave {each!r}, it gives kinfolk.check.Scenario")
    if wanted is None:
        return tuple(offered)
    names = set(wanted)
    known = [scenario.name for scenario in offered]
    if unknown := sorted(names - set(known)):
        raise ValueError(f"no scenario {', '.join(unknown)}; there are: {', '.join(known) or 'none'}")
    return tuple(scenario for scenario in offered if scenario.name in names)


def run_scenario(
    composition: Composition, artifact: Artifact, scenario: Scenario, executor: Executor
) -> ScenarioReport:
    """Run one scenario of an artifact's request and judge its outputs; what goes wrong on the way is a finding."""
    return _Run(composition, artifact, executor).scenario(scenario)


@attrs.frozen(eq=False)
class _Run:
    """What all scenarios of a report share."""

    composition: Composition
    artifact: Artifact
    executor: Executor

    def scenario(self, scenario: Scenario) -> ScenarioReport:
        """Run one scenario; what goes wrong on the way is a finding of it."""
        artifact = self._artifact_for(scenario)
        inputs = scenario.inputs()
        memory = _memory(artifact.plan, inputs)
        try:
            self._launch(artifact, {**inputs, **memory})
        except (SimulationError, BindError) as error:
            code = "bind" if isinstance(error, BindError) else "simulation"
            return ScenarioReport(name=scenario.name, outputs=(), findings=(Finding(code, "", str(error)),))
        expected = self.composition.reference(scenario.request, inputs)
        compared = list(_comparisons(artifact.plan, memory, expected))
        findings = [finding for comparison in compared for finding in comparison.findings]
        findings += self.composition.check_outputs(scenario.request, memory, expected)
        outputs = tuple(OutputReport.of(comparison) for comparison in compared)
        return ScenarioReport(name=scenario.name, outputs=outputs, findings=tuple(findings))

    def _artifact_for(self, scenario: Scenario) -> Artifact:
        """Return the artifact under the plan of the scenario's own request; its kernels are compiled already."""
        plan = selections.plan(self.composition, scenario.request, self.artifact.plan.flavor)
        made = [kernel.spec.identity() for kernel in self.artifact.kernels]
        if [launch.spec.identity() for launch in plan.launches] != made:
            raise PluginError(f"scenario {scenario.name} asks for other kernels than the request it is of")
        return attrs.evolve(self.artifact, plan=plan)

    def _launch(self, artifact: Artifact, tensors: Mapping[str, Array]) -> None:
        from kinfolk_runtime.binder import bind

        bind(artifact, tensors, executor=self.executor, composition=self.composition)()


def _memory(plan: Plan, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Return the memory that launches write: outputs poisoned, status words 0, which the binder does again."""
    scope = plan.scope(cast("Any", {name: _geometry(array) for name, array in inputs.items()}))
    memory: dict[str, Array] = {}
    for binding in plan.bindings:
        shape = [extent.integer(scope) for extent in binding.extents()] if binding.role != "input" else []
        if binding.role == "output":
            memory[binding.name] = poison(binding.dtype, shape)
        elif binding.role == "status":
            memory[binding.name] = np.zeros(shape, numpy_dtype(binding.dtype))
    return memory


def _geometry(array: Array) -> Any:
    from kinfolk.expr import TensorGeometry

    return TensorGeometry(array.shape, tuple(step // array.itemsize for step in array.strides))


def _comparisons(plan: Plan, memory: Mapping[str, Array], expected: Mapping[str, Any]) -> Iterator[Comparison]:
    for name in plan.outputs:
        reference = expected.get(name)
        if not isinstance(reference, Expected):
            raise PluginError(f"the reference of {plan.candidate} gives {reference!r} for {name}, it gives an Expected")
        yield compare(name, plan.binding(name).dtype, memory[name], reference)


__all__ = ["kernel_reports", "run_scenario", "verify"]
