"""Where mutants of one request's kernels are judged: its scenarios with inputs and reference computed once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import attrs

from kinfolk.analysis import analyse
from kinfolk.dispatch import selections
from kinfolk.errors import BindError, IRError, KinfolkError
from kinfolk.ir.verify import verify
from kinfolk_runtime.artifact import Artifact, CompiledKernel
from kinfolk_runtime.binder import bind
from kinfolk_runtime.compilation import compile as compile_plan
from kinfolk_runtime.mutation.outcome import Kill
from kinfolk_runtime.simulator.engine import Simulator
from kinfolk_runtime.simulator.fault import KernelFault
from kinfolk_runtime.simulator.sanitizers import ALL
from kinfolk_runtime.verify import ORDER_SEEDS, Fitting, comparisons, unwritten_findings, written_memory

if TYPE_CHECKING:
    from kinfolk.ir.value import Kernel
    from kinfolk.plugins.composition import Composition
    from kinfolk.request import Request
    from kinfolk.spec import Spec

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
        _references[key] = composition.reference(request, inputs)
    return _references[key]


@attrs.frozen(kw_only=True, eq=False)
class Prepared:
    """A scenario of a request with all that does not depend on the kernel."""

    name: str
    request: Request
    artifact: Artifact
    inputs: Mapping[str, Any]
    expected: Mapping[str, Any]


@attrs.frozen(kw_only=True, eq=False, slots=False)
class Bench:
    """The kernels of one request, the scenarios they are run on, and an engine that stops endless loops.

    Scenarios are drawn, and the kernels run on them as they are, when the first mutant is judged: that raises
    OriginalFails where one does not pass, or there is none.
    """

    composition: Composition
    request: Request
    flavor: str
    artifact: Artifact

    @classmethod
    def of(cls, composition: Composition, request: Request, flavor: str) -> Bench:
        """Compile a request's kernels; Refused where the request is, ToolError as `compile`."""
        artifact = compile_plan(selections.plan(composition, request, flavor), composition=composition)
        return cls(composition=composition, request=request, flavor=flavor, artifact=artifact)

    @cached_property
    def scenarios(self) -> Sequence[Prepared]:
        """The request's scenarios with inputs and reference."""
        fitting = Fitting.of(self.composition, self.composition.scenarios(self.request), self.flavor, sparse=True)
        prepared: list[Prepared] = []
        for scenario in fitting.scenarios:
            inputs = scenario.inputs()
            each = Prepared(
                name=scenario.name,
                request=scenario.request,
                artifact=attrs.evolve(self.artifact, plan=fitting.plans[scenario.name]),
                inputs=inputs,
                expected=_expected(self.composition, scenario.request, scenario.name, inputs),
            )
            prepared.append(each)
        return prepared

    @property
    def kernels(self) -> Sequence[CompiledKernel]:
        """The kernels that the request launches, each once."""
        plan = self.artifact.plan
        pairs = zip(plan.launches, self.artifact.kernels, strict=True)
        run = [kernel for launch, kernel in pairs if launch.condition.holds(plan.scope())]
        return list({kernel.spec.identity(): kernel for kernel in run}.values())

    @cached_property
    def known(self) -> Mapping[str, frozenset[str]]:
        """What analyses find in each kernel as it is, by spec."""
        return {
            each.spec.identity(): frozenset(
                defect.check for defect in analyse(each.kernel, arch=self.composition.arch, spec=each.spec)
            )
            for each in self.artifact.kernels
        }

    @cached_property
    def simulator(self) -> Simulator:
        """The engine that mutants run on."""
        return self._limited()

    def _limited(self) -> Simulator:
        """Return an engine whose limit on rounds is at least four times what the kernels need as they are."""
        if not self.scenarios:
            raise OriginalFails(
                f"{self.artifact.plan.candidate} is run on nothing: no scenario of this request can be run. Give "
                f"kinfolk_scenarios one, or `kinfolk mutate {self.request.family}` a request that has some"
            )
        kills: list[Kill] = []
        for round_limit in _ROUND_LIMITS:
            simulator = Simulator(threads=1, sanitize=_WATCHED, round_limit=round_limit)
            try:
                kills = [kill for each in self.scenarios if (kill := self._run(each, each.artifact, simulator))]
            except BindError as error:
                raise OriginalFails(
                    f"{self.artifact.plan.candidate} is not run: inputs of a scenario do not bind ({error}). Look at "
                    f"it with `kinfolk verify {self.request.family}`"
                ) from error
            if not kills:
                return Simulator(threads=1, sanitize=_WATCHED, round_limit=4 * round_limit)
            if all(kill.tool != "limit" for kill in kills):
                break
        told = "; ".join(f"{kill.scenario}: {kill.message} [{kill.by}]" for kill in kills[:3])
        raise OriginalFails(
            f"{self.artifact.plan.candidate} fails as it is, without a mistake put into it ({told}). Look at it with "
            f"`kinfolk verify {self.request.family}`"
        )

    def kill(self, spec: Spec, kernel: Kernel) -> Kill | None:
        """Return the first thing that notices `kernel` in place of the one of `spec`, cheapest first; None for none."""
        return self.run(spec, kernel) or self.look_closer(spec, kernel)

    def run(self, spec: Spec, kernel: Kernel) -> Kill | None:
        """Return what notices a kernel in the verifier, or in a scenario in the ascending order of waves."""
        try:
            verify(kernel)
        except IRError as error:
            return Kill(tool="verifier", kind="", message=str(error))
        return self._first(spec, kernel, self.simulator)

    def look_closer(self, spec: Spec, kernel: Kernel) -> Kill | None:
        """Return what notices a kernel in the analyses, or in a scenario in other orders of waves."""
        return self._analysed(spec, kernel) or self._in_other_orders(spec, kernel)

    def _in_other_orders(self, spec: Spec, kernel: Kernel) -> Kill | None:
        kills = (self._first(spec, kernel, self.simulator.with_order(seed)) for seed in ORDER_SEEDS if seed)
        return next((kill for kill in kills if kill is not None), None)

    def _first(self, spec: Spec, kernel: Kernel, simulator: Simulator) -> Kill | None:
        for each in self.scenarios:
            kill = self._run(each, with_kernel(each.artifact, spec, kernel), simulator)
            if kill is not None:
                return kill
        return None

    def _analysed(self, spec: Spec, kernel: Kernel) -> Kill | None:
        known = self.known[spec.identity()]
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
