"""Where mutants of one request's kernels are judged: its scenarios with inputs and reference computed once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import attrs

from kinfolk.analysis import analyse
from kinfolk.dispatch import selections
from kinfolk.errors import BindError, IRError, KinfolkError
from kinfolk.ir.verify import verify
from kinfolk.testing.mutation import always_taken
from kinfolk_runtime.artifact import Artifact, CompiledKernel
from kinfolk_runtime.binder import bind
from kinfolk_runtime.compilation import compile as compile_plan
from kinfolk_runtime.mutation.outcome import Kill
from kinfolk_runtime.mutation.work import Tariff, Work
from kinfolk_runtime.products import one_thread
from kinfolk_runtime.simulator.engine import Simulator
from kinfolk_runtime.simulator.entries import Entries
from kinfolk_runtime.simulator.fault import KernelFault
from kinfolk_runtime.simulator.sanitizers import ALL
from kinfolk_runtime.verify import ORDER_SEEDS, Fitting, comparisons, unwritten_findings, written_memory

if TYPE_CHECKING:
    from kinfolk.check import Scenario
    from kinfolk.ir.value import Kernel
    from kinfolk.plugins.composition import Composition
    from kinfolk.request import Request
    from kinfolk.spec import Spec
    from kinfolk_runtime.simulator.entries import Counted

_WATCHED: Final = ALL - {"indirection"}
"""Judged from the IR alone, with the other analyses, after everything that runs."""
_ROUND_LIMITS: Final = tuple(1 << bits for bits in range(10, 31, 4))


class OriginalFails(KinfolkError):
    """A kernel without a mistake fails its own scenarios, so that nothing can be said of its mutants."""


def with_kernel(artifact: Artifact, spec: Spec, kernel: Kernel) -> Artifact:
    """Return an artifact in which `kernel` runs wherever the one of `spec` did; compiled code is as it was."""
    identity = spec.identity()
    kernels = tuple(
        attrs.evolve(each, kernel=kernel) if each.spec.identity() == identity else each for each in artifact.kernels
    )
    return attrs.evolve(artifact, kernels=kernels)


_MOST_REFERENCES: Final = 96
_references: dict[tuple[Request, str], Mapping[str, Any]] = {}


def _expected(
    composition: Composition, request: Request, scenario: str, inputs: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Return the reference of a scenario, which no arch has a part in: computed once in a process."""
    key = (request, scenario)
    if key not in _references:
        if len(_references) == _MOST_REFERENCES:
            del _references[next(iter(_references))]
        with one_thread():
            _references[key] = composition.reference(request, inputs)
    return _references[key]


@attrs.frozen(kw_only=True, eq=False)
class Prepared:
    """A scenario of a request with all that does not depend on the kernel, and what its kernels do as they are.

    `simulator` stops loops of four times the rounds that they take; `counted` says how often each region is entered.
    """

    name: str
    request: Request
    artifact: Artifact
    inputs: Mapping[str, Any]
    expected: Mapping[str, Any]
    simulator: Simulator
    counted: Mapping[str, Counted | None] = attrs.field(factory=dict[str, "Counted | None"])


@attrs.frozen(eq=False)
class Run:
    """What came of a kernel in some scenarios: what noticed it, or in each of them what it did and its original did."""

    kill: Kill | None = None
    works: Sequence[tuple[str, Work, Work]] = ()


@attrs.frozen(kw_only=True, eq=False, slots=False)
class Bench:
    """The kernels of one request, the scenarios they are run on, and an engine that stops endless loops.

    A scenario is drawn, and the kernels run on it as they are, when the first mutant gets there: that raises
    OriginalFails where they do not pass, or there is none. What analyses find in kernels as they are is `analysed`, by
    spec.
    """

    composition: Composition
    request: Request
    flavor: str
    artifact: Artifact
    _analysed: dict[str, frozenset[str]] = attrs.field(alias="analysed")
    _entries: Entries = attrs.field(factory=Entries)
    _prepared: list[Prepared] = attrs.field(factory=list[Prepared])
    _tariffs: dict[Kernel, Tariff] = attrs.field(factory=dict[Any, Tariff])
    _taken: dict[str, Kernel | None] = attrs.field(factory=dict[str, Any])
    _right_without: set[tuple[str, str]] = attrs.field(factory=set[tuple[str, str]])

    @classmethod
    def of(cls, composition: Composition, request: Request, flavor: str, analysed: dict[str, frozenset[str]]) -> Bench:
        """Compile a request's kernels; Refused where the request is, ToolError as `compile`.

        `analysed` is shared by benches whose kernels of one spec are one kernel.
        """
        artifact = compile_plan(selections.plan(composition, request, flavor), composition=composition)
        return cls(composition=composition, request=request, flavor=flavor, artifact=artifact, analysed=analysed)

    @cached_property
    def _fitting(self) -> Fitting:
        fitting = Fitting.of(self.composition, self.composition.scenarios(self.request), self.flavor, sparse=True)
        if not fitting.scenarios:
            raise OriginalFails(
                f"{self.artifact.plan.candidate} is run on nothing: no scenario of this request can be run. Give "
                f"kinfolk_scenarios one, or `kinfolk mutate {self.request.family}` a request that has some"
            )
        return fitting

    def scenarios(self) -> Iterator[Prepared]:
        """Yield the request's scenarios with inputs and reference, each made when it is first asked for."""
        for number, scenario in enumerate(self._fitting.scenarios):
            if number == len(self._prepared):
                self._prepared.append(self._prepare(scenario))
            yield self._prepared[number]

    def _prepare(self, scenario: Scenario) -> Prepared:
        inputs = scenario.inputs()
        each = Prepared(
            name=scenario.name,
            request=scenario.request,
            artifact=attrs.evolve(self.artifact, plan=self._fitting.plans[scenario.name]),
            inputs=inputs,
            expected=_expected(self.composition, scenario.request, scenario.name, inputs),
            simulator=self._simulator,
        )
        return self._as_it_is(each)

    @property
    def kernels(self) -> Sequence[CompiledKernel]:
        """The kernels that the request launches, each once."""
        plan = self.artifact.plan
        pairs = zip(plan.launches, self.artifact.kernels, strict=True)
        run = [kernel for launch, kernel in pairs if launch.condition.holds(plan.scope())]
        return list({kernel.spec.identity(): kernel for kernel in run}.values())

    def _known(self, spec: Spec) -> frozenset[str]:
        """Return what analyses find in the kernel of a spec as it is."""
        identity = spec.identity()
        if identity not in self._analysed:
            kernel = next(each.kernel for each in self.artifact.kernels if each.spec.identity() == identity)
            found = analyse(kernel, arch=self.composition.arch, spec=spec)
            self._analysed[identity] = frozenset(defect.check for defect in found)
        return self._analysed[identity]

    @cached_property
    def _simulator(self) -> Simulator:
        return Simulator(threads=1, sanitize=_WATCHED, entries=self._entries)

    def _as_it_is(self, scenario: Prepared) -> Prepared:
        """Return a scenario with a limit on rounds that its kernels keep as they are, and what they do."""
        kill: Kill | None = None
        for round_limit in _ROUND_LIMITS:
            self._entries.clear()
            limited = attrs.evolve(scenario, simulator=self._simulator.with_round_limit(round_limit))
            try:
                kill = self._run(limited, scenario.artifact, limited.simulator)
            except BindError as error:
                raise OriginalFails(
                    f"{self.artifact.plan.candidate} is not run: inputs of a scenario do not bind ({error}). Look at "
                    f"it with `kinfolk verify {self.request.family}`"
                ) from error
            if kill is None:
                kernels = {each.spec.identity(): each.kernel for each in self.artifact.kernels}
                counted = {identity: self._entries.take(kernel) for identity, kernel in kernels.items()}
                simulator = self._simulator.with_round_limit(4 * round_limit)
                return attrs.evolve(limited, simulator=simulator, counted=counted)
            if kill.tool != "limit":
                break
        assert kill is not None
        raise OriginalFails(
            f"{self.artifact.plan.candidate} fails as it is, without a mistake put into it ({kill.scenario}: "
            f"{kill.message} [{kill.by}]). Look at it with `kinfolk verify {self.request.family}`"
        )

    def kill(self, spec: Spec, kernel: Kernel) -> Kill | None:
        """Return the first thing that notices `kernel` in place of the one of `spec`, cheapest first; None for none."""
        return (
            self.glance(spec, kernel)
            or self.run(spec, kernel).kill
            or self.analysed(spec, kernel)
            or self.in_other_orders(spec, kernel)
        )

    def glance(self, spec: Spec, kernel: Kernel) -> Kill | None:
        """Return what notices a kernel in the verifier, or in the first scenario in the ascending order of waves."""
        try:
            verify(kernel)
        except IRError as error:
            return Kill(tool="verifier", kind="", message=str(error))
        first = next(self.scenarios())
        return self._run(first, with_kernel(first.artifact, spec, kernel), first.simulator)

    def run(self, spec: Spec, kernel: Kernel) -> Run:
        """Return what notices a kernel in the scenarios in the ascending order of waves, or what it does in them."""
        identity = spec.identity()
        original = next(each.kernel for each in self.artifact.kernels if each.spec.identity() == identity)
        before, after = self._tariff(original), Tariff.of(kernel, original)
        works: list[tuple[str, Work, Work]] = []
        for each in self.scenarios():
            self._entries.clear()
            kill = self._run(each, with_kernel(each.artifact, spec, kernel), each.simulator)
            if kill is not None:
                return Run(kill)
            counted, known = self._entries.take(kernel), each.counted[identity]
            if counted is not None and known is not None:
                works.append((each.name, after.work(counted), before.work(known)))
        return Run(None, works)

    def without_short_cuts(self, spec: Spec, kernel: Kernel) -> Kill | None:
        """Return what notices a kernel in the scenarios where none of its short cuts is taken.

        Raises OriginalFails where its original does not pass so: then what is marked as a short cut is none.
        """
        changed, original = always_taken(kernel), self._without_short_cuts(spec)
        if changed is None or original is None:
            return None
        for each in self.scenarios():
            if (spec.identity(), each.name) not in self._right_without:
                kill = self._run(each, with_kernel(each.artifact, spec, original), each.simulator)
                if kill is not None:
                    raise OriginalFails(
                        f"{original.name}: a branch that is marked cold and writes nothing may be taken at any time, "
                        f"but with all of them taken it fails ({kill.scenario}: {kill.message} [{kill.by}])"
                    )
                self._right_without.add((spec.identity(), each.name))
            kill = self._run(each, with_kernel(each.artifact, spec, changed), each.simulator)
            if kill is not None:
                return attrs.evolve(kill, scenario=f"{kill.scenario}, cold branches taken")
        return None

    def _without_short_cuts(self, spec: Spec) -> Kernel | None:
        identity = spec.identity()
        if identity not in self._taken:
            [kernel] = {id(k.kernel): k.kernel for k in self.artifact.kernels if k.spec.identity() == identity}.values()
            self._taken[identity] = always_taken(kernel)
        return self._taken[identity]

    def _tariff(self, kernel: Kernel) -> Tariff:
        if kernel not in self._tariffs:
            self._tariffs[kernel] = Tariff.of(kernel, kernel)
        return self._tariffs[kernel]

    def in_other_orders(self, spec: Spec, kernel: Kernel) -> Kill | None:
        """Return what notices a kernel in a scenario in other orders of waves."""
        for seed in ORDER_SEEDS:
            for each in self.scenarios() if seed else ():
                kill = self._run(each, with_kernel(each.artifact, spec, kernel), each.simulator.with_order(seed))
                if kill is not None:
                    return kill
        return None

    def analysed(self, spec: Spec, kernel: Kernel) -> Kill | None:
        """Return what an analysis holds against a kernel, and not against the one of `spec`."""
        known = self._known(spec)
        for defect in analyse(kernel, arch=self.composition.arch, spec=spec):
            if defect.check not in known:
                return Kill(tool="analysis", kind=defect.check, message=str(defect))
        return None

    def _run(self, scenario: Prepared, artifact: Artifact, simulator: Simulator) -> Kill | None:
        memory = written_memory(artifact.plan, scenario.inputs)
        tensors = {**scenario.inputs, **memory}
        try:
            bound = bind(artifact, tensors, executor=simulator, composition=self.composition)
            bound()
        except KernelFault as fault:
            tool = "limit" if fault.kind == "limit" else "sanitizer" if fault.kind in ALL else "claim"
            kind = "" if tool == "limit" else fault.kind
            return Kill(tool=tool, kind=kind, message=str(fault), scenario=scenario.name)
        found = [
            *unwritten_findings(bound),
            *(each for one in comparisons(artifact.plan, memory, scenario.expected) for each in one.findings),
        ]
        found = found or list(self.composition.check_outputs(scenario.request, memory, scenario.expected))
        if not found:
            return None
        return Kill(tool="comparison", kind=found[0].code, message=str(found[0]), scenario=scenario.name)
