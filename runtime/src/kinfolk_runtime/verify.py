"""Run a request's kernels on every scenario of its family in several orders, and compare with the fp64 reference."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

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
    SparseArray,
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
from kinfolk_runtime.executor import DEFAULT, Executor, executor_of, takes_sparse
from kinfolk_runtime.memory import memory_refusals
from kinfolk_runtime.simulator.engine import ENGINES, Simulator
from kinfolk_runtime.simulator.fault import KernelFault
from kinfolk_runtime.simulator.sanitizers import SANITIZERS, Sanitizer

if TYPE_CHECKING:
    from kinfolk.plan import Plan
    from kinfolk.plugins.composition import Composition
    from kinfolk.request import Request
    from kinfolk_runtime.binder import Bound

ORDER_SEEDS: Final = (0, 1, 2)
"""The orders of waves and workgroups that each scenario runs in: ascending under 0, drawn under others."""
ONE_ORDER: Final = (
    "not looked for: races in global memory between waves of one workgroup; "
    "they can show only where outputs of several orders differ, and one was run"
)
"""The note of a run in one order."""
Started = Callable[[str, int], None]


def verify(
    request: Request,
    arch: str,
    flavor: str = DEFAULT_FLAVOR,
    *,
    executor: str | Executor = DEFAULT,
    engine: str = "fast",
    scenarios: Iterable[str] | None = None,
    order_seeds: Sequence[int] = ORDER_SEEDS,
    sanitize: str | Iterable[Sanitizer] = "all",
    started: Started | None = None,
    composition: Composition | None = None,
) -> Report:
    """Dispatch, compile and gate a request, and run it on the family's scenarios: all of them, or those named.

    The simulator runs each scenario under every one of `order_seeds`, which draw its order of waves and workgroups; an
    output's figures are those of the order with its largest margin, and findings name their orders. `sanitize` is what
    it looks for: "all", "none" or names of sanitizers. `started(name, of)` is told each scenario as it begins. A
    refusal, scenarios too large for this host, a fault of the kernel and a wrong output are in the report.
    Raises ValueError for an unknown scenario, engine or sanitizer, or no seed, ToolError where a kernel does not
    compile, ArtifactError where its object is not what it is recorded to be, PluginError where a plugin fails.
    """
    from kinfolk.plugins.composition import compose

    composition = composition or compose(request.family, arch)
    runners = runners_of(executor, engine, order_seeds, sanitize)
    report = Report(
        family=request.family,
        arch=arch,
        flavor=flavor,
        candidate=None,
        executor=runners[0].executor.name,
        request=request.to_dict(),
    )
    try:
        plan = selections.plan(composition, request, flavor)
        report = attrs.evolve(report, candidate=plan.candidate)
        artifact = compile_plan(plan, composition=composition)
        artifact.check(composition)
    except Refused as refused:
        return attrs.evolve(report, refusals=refused.refusals)
    ran = runners[0].executor
    chosen = chosen_scenarios(composition.scenarios_of(plan), scenarios)
    fitting = Fitting.of(composition, chosen, flavor, takes_sparse(ran))
    if excess := memory_refusals(fitting.plans, {scenario.name: scenario.sparse for scenario in fitting.scenarios}):
        return attrs.evolve(report, refusals=excess)
    results: list[ScenarioReport] = []
    for scenario in fitting.scenarios:
        if started:
            started(scenario.name, len(fitting.scenarios))
        results.append(run_scenario(composition, artifact, scenario, runners))
    simulator = ran if isinstance(ran, Simulator) else None
    told = _notes(simulator, len(runners)) if simulator else getattr(ran, "notes", ())
    return attrs.evolve(
        report,
        scenarios=tuple(results),
        kernels=kernel_reports(artifact.kernels),
        engine=simulator.engine if simulator else None,
        sanitizers=tuple(one for one in SANITIZERS if one in simulator.sanitize) if simulator else None,
        notes=(*fitting.notes, *told),
    )


@attrs.frozen(kw_only=True)
class Fitting:
    """The scenarios that a run can hold, the plans of their requests by name, and a note for each that it cannot."""

    scenarios: tuple[Scenario, ...]
    plans: Mapping[str, Plan]
    notes: tuple[str, ...]

    @classmethod
    def of(cls, composition: Composition, scenarios: Iterable[Scenario], flavor: str, sparse: bool) -> Fitting:
        """Leave out scenarios whose own request is refused, and those of sparse memory unless `sparse` can be had."""
        plans: dict[str, Plan] = {}
        notes: list[str] = []
        kept: list[Scenario] = []
        for scenario in scenarios:
            if scenario.sparse and not sparse:
                notes.append(f"{scenario.name} is left out: it needs an executor of memory that exists in part")
                continue
            try:
                plans[scenario.name] = selections.plan(composition, scenario.request, flavor)
            except Refused as refused:
                notes.append(f"{scenario.name} is left out: {'; '.join(each.sentence for each in refused.refusals)}")
            else:
                kept.append(scenario)
        return cls(scenarios=tuple(kept), plans=plans, notes=tuple(notes))


def _notes(simulator: Simulator, orders: int) -> tuple[str, ...]:
    left_out = [one for one in SANITIZERS if one not in simulator.sanitize]
    return (
        *simulator.notes,
        *([f"not looked for: {', '.join(left_out)} (sanitizers)"] if left_out else []),
        *([ONE_ORDER] if orders == 1 else []),
    )


def kernel_reports(kernels: Iterable[CompiledKernel]) -> tuple[KernelReport, ...]:
    """Return the figures of each kernel once."""
    rows = {
        kernel.spec.identity(): KernelReport.of(
            kernel.usage, spec_digest=kernel.spec.digest(), arch=kernel.arch, toolchain=kernel.toolchain
        )
        for kernel in kernels
    }
    return tuple(rows.values())


@attrs.frozen
class Runner:
    """An executor, and the seed of its order of waves; None where the order is not ours to draw."""

    executor: Executor
    order_seed: int | None = None


def runners_of(
    wanted: str | Executor = DEFAULT,
    engine: str = "fast",
    order_seeds: Sequence[int] = ORDER_SEEDS,
    sanitize: str | Iterable[Sanitizer] = "all",
) -> tuple[Runner, ...]:
    """Return the simulator once per order seed, or another executor once.

    ValueError for no seed, an unknown engine or sanitizer.
    """
    if engine not in ENGINES:
        raise ValueError(f"engine is {engine!r}, known: {', '.join(ENGINES)}")
    if wanted != DEFAULT:
        return (Runner(executor_of(wanted)),)
    if not order_seeds or any(type(seed) is not int or seed < 0 for seed in order_seeds):
        raise ValueError(f"order_seeds takes one or more Python ints of at least 0, got {order_seeds!r}")
    simulator = Simulator(engine=engine, sanitize=sanitize)
    return tuple(Runner(simulator.with_order(seed), seed) for seed in dict.fromkeys(order_seeds))


def chosen_scenarios(offered: Sequence[Any], wanted: Iterable[str] | None) -> tuple[Scenario, ...]:
    """Return the scenarios that are wanted, in the family's order; ValueError names those there are."""
    for each in offered:
        if not isinstance(each, Scenario):
            raise PluginError(f"kinfolk_scenarios gave {each!r}, it gives kinfolk.check.Scenario")
    if wanted is None:
        return tuple(offered)
    names = {str(name) for name in wanted}
    known = [scenario.name for scenario in offered]
    if unknown := sorted(names - set(known)):
        raise ValueError(f"no scenario {', '.join(unknown)}; there are: {', '.join(known) or 'none'}")
    return tuple(scenario for scenario in offered if scenario.name in names)


def run_scenario(
    composition: Composition,
    artifact: Artifact,
    scenario: Scenario,
    runners: Sequence[Runner],
    expected: Mapping[str, Expected] | None = None,
) -> ScenarioReport:
    """Run one scenario of an artifact's request with each runner and judge its outputs.

    `expected` is what the reference gives, where the caller has it already. What goes wrong on the way is a finding.
    """
    return _Run(composition, artifact, runners).scenario(scenario, expected)


@attrs.frozen(eq=False)
class _Run:
    """What all scenarios of a report share."""

    composition: Composition
    artifact: Artifact
    runners: Sequence[Runner]

    def scenario(self, scenario: Scenario, expected: Mapping[str, Expected] | None = None) -> ScenarioReport:
        """Run one scenario in every order; the reference is computed once, if at all."""
        artifact = self._artifact_for(scenario)
        inputs = scenario.inputs()
        if expected is None:
            expected = self.composition.reference(scenario.request, inputs)
        compared: list[Comparison] = []
        found: dict[object, tuple[Finding, list[int | None]]] = {}
        for runner in self.runners:
            memory = written_memory(artifact.plan, inputs)
            try:
                bound = self._launch(artifact, {**inputs, **memory}, runner.executor)
            except (SimulationError, BindError) as error:
                code = "bind" if isinstance(error, BindError) else "simulation"
                finding = Finding(code, "", str(error))
                findings = {_race(error) or finding: finding}
            else:
                here = list(comparisons(artifact.plan, memory, expected))
                judged = list(unwritten_findings(bound))
                judged += [finding for comparison in here for finding in comparison.findings]
                judged += self.composition.check_outputs(scenario.request, memory, expected)
                findings = {finding: finding for finding in judged}
                compared += here
            for key, finding in findings.items():
                found.setdefault(key, (finding, []))[1].append(runner.order_seed)
        return ScenarioReport(
            name=scenario.name,
            outputs=tuple(_worst(artifact.plan, compared)),
            findings=tuple(_with_orders(finding, seeds) for finding, seeds in found.values()),
        )

    def _artifact_for(self, scenario: Scenario) -> Artifact:
        """Return the artifact under the plan of the scenario's own request; its kernels are compiled already."""
        plan = selections.plan(self.composition, scenario.request, self.artifact.plan.flavor)
        made = [kernel.spec.identity() for kernel in self.artifact.kernels]
        if [launch.spec.identity() for launch in plan.launches] != made:
            raise PluginError(f"scenario {scenario.name} asks for other kernels than the request it is of")
        return attrs.evolve(self.artifact, plan=plan)

    def _launch(self, artifact: Artifact, tensors: Mapping[str, Array], executor: Executor) -> Bound:
        from kinfolk_runtime.binder import bind

        bound = bind(artifact, tensors, executor=executor, composition=self.composition)
        bound()
        return bound


def _race(error: Exception) -> object:
    """Return what makes a race the same in another workgroup or order: its kernel and both ops; None for any other."""
    if not isinstance(error, KernelFault) or error.kind != "race":
        return None
    other = (error.other.op, error.other.source) if error.other else None
    return error.kernel, frozenset({(error.op, error.source), other})


def unwritten_findings(bound: Bound) -> Iterator[Finding]:
    """Yield a finding per output with elements that no launch wrote, where the executor looks for them."""
    ran = bound.executor
    looks = "initialisation" in ran.sanitize if isinstance(ran, Simulator) else getattr(ran, "marks_writes", False)
    if not looks:
        return
    for name, left in bound.unwritten().items():
        elements = f"{left.count} of {bound.tensors[name].array.size} elements"
        yield Finding("unwritten", name, f"no launch writes {elements}, the first at {left.first}")


def _worst(plan: Plan, compared: Sequence[Comparison]) -> Iterator[OutputReport]:
    """Yield per output the comparison with the largest margin of all orders, and the largest error of any."""
    for name in plan.outputs:
        of_output = [comparison for comparison in compared if comparison.name == name]
        if of_output:
            worst = max(of_output, key=lambda comparison: comparison.margin)
            largest = max(comparison.max_abs_err for comparison in of_output)
            yield OutputReport.of(attrs.evolve(worst, max_abs_err=largest))


def _with_orders(finding: Finding, seeds: Sequence[int | None]) -> Finding:
    """Return a finding that names the order seeds it was made under."""
    named = ", ".join(str(seed) for seed in seeds if seed is not None)
    if not named:
        return finding
    return attrs.evolve(finding, message=f"{finding.message} [order seed{'s' * (len(seeds) > 1)} {named}]")


def written_memory(plan: Plan, inputs: Mapping[str, Array]) -> dict[str, Array]:
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


def _geometry(array: Array | SparseArray) -> Any:
    from kinfolk.expr import TensorGeometry

    return TensorGeometry(array.shape, tuple(step // array.itemsize for step in array.strides))


def comparisons(plan: Plan, memory: Mapping[str, Array], expected: Mapping[str, Any]) -> Iterator[Comparison]:
    """Yield the comparison of each output with the reference; PluginError where that has no such output."""
    for name in plan.outputs:
        reference = expected.get(name)
        if not isinstance(reference, Expected):
            raise PluginError(f"the reference of {plan.candidate} gives {reference!r} for {name}, it gives an Expected")
        yield compare(name, plan.binding(name).dtype, memory[name], reference)


__all__ = [
    "ENGINES",
    "ONE_ORDER",
    "ORDER_SEEDS",
    "Runner",
    "chosen_scenarios",
    "comparisons",
    "kernel_reports",
    "run_scenario",
    "runners_of",
    "unwritten_findings",
    "verify",
    "written_memory",
]
