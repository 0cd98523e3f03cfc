"""Comparisons of two objects on the problem of a file, and of anything with a family on the family's own problem."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np

from kinfolk.check import Expected, Finding, Scenario, Tolerance
from kinfolk.check.element import Array
from kinfolk.dispatch import selections
from kinfolk_runtime.comparison.problem import Problem, ProblemError
from kinfolk_runtime.comparison.report import Compared, differences
from kinfolk_runtime.comparison.sides import Side, run_artifact, run_object
from kinfolk_runtime.verify import comparisons, written_memory

if TYPE_CHECKING:
    from kinfolk.arch import Arch
    from kinfolk.plan import Plan
    from kinfolk.plugins.composition import Composition


@attrs.frozen(kw_only=True)
class ObjectSide:
    """A code object: its file, whose name tells its launch, and its bytes."""

    path: Path
    code: bytes = attrs.field(repr=False)


@attrs.frozen(kw_only=True)
class FamilySide:
    """The kernels of a family's plan; `name` is what was asked for."""

    name: str
    composition: Composition
    plan: Plan


def compare_objects(arch: Arch, problem: Problem, a: ObjectSide, b: ObjectSide, *, traced: bool = True) -> Compared:
    """Run two objects on the problem of a file and compare what they write.

    Raises ProblemError for a launch that the file does not describe or a problem without a tensor that is written,
    BindError for arguments that do not fit a kernel, ToolError for an object that cannot be read.
    """
    access = {name: tensor.access for name, tensor in problem.tensors.items()}
    dtypes = {name: tensor.dtype for name, tensor in problem.tensors.items() if tensor.access != "in"}
    if not dtypes:
        raise ProblemError(f"{problem.path}: no tensor is written; one that is has access out or inout")
    arrays = problem.arrays()
    first, second = (
        run_object(each.path.name, each.code, arch, problem.launch_of(side, each.path), arrays, access, traced=traced)
        for side, each in (("a", a), ("b", b))
    )
    tolerances = {name: problem.tensors[name].bound(array.astype(np.float64)) for name, array in second.outputs.items()}
    found = differences(first, second, dtypes, tolerances)
    return Compared(arch=arch.name, problem=str(problem.path), a=first, b=second, outputs=found)


def compare_on_family(
    arch: Arch,
    scenario: Scenario,
    a: ObjectSide | FamilySide,
    b: ObjectSide | FamilySide,
    problem: Problem | None = None,
    *,
    traced: bool = True,
) -> Compared:
    """Run two sides, of which one is a family, on a scenario of the first family, and judge both by its reference.

    An object's launch is what `problem` says; its arguments are the family's inputs and outputs by name, and tensors of
    the problem. Outputs may lie apart by twice what either may lie from the reference. Raises as `compare_objects`.
    """
    owner = a if isinstance(a, FamilySide) else b
    assert isinstance(owner, FamilySide)
    plan = selections.plan(owner.composition, scenario.request, owner.plan.flavor)
    asked = _Asked(
        arch=arch,
        scenario=scenario,
        inputs=scenario.inputs(),
        problem=problem,
        owner=attrs.evolve(owner, plan=plan),
        traced=traced,
    )
    expected = owner.composition.reference(scenario.request, asked.inputs)
    first, second = (asked.judged(asked.run(side, each), expected) for side, each in (("a", a), ("b", b)))
    dtypes = {name: plan.binding(name).dtype for name in plan.outputs}
    tolerances = {name: Tolerance(2 * expected[name].tolerance.bound) for name in plan.outputs}
    name = f"{owner.name}, scenario {scenario.name}"
    outputs = differences(first, second, dtypes, tolerances)
    return Compared(arch=arch.name, problem=name, a=first, b=second, outputs=outputs)


@attrs.frozen(kw_only=True, eq=False)
class _Asked:
    """What both sides are run on."""

    arch: Arch
    scenario: Scenario
    inputs: Mapping[str, Any]
    problem: Problem | None
    owner: FamilySide
    traced: bool

    def run(self, side: str, wanted: ObjectSide | FamilySide) -> Side:
        """Return what a side gives."""
        from kinfolk_runtime.compilation import compile as compile_plan

        if isinstance(wanted, FamilySide):
            plan = self._plan_of(wanted)
            artifact = compile_plan(plan, composition=wanted.composition)
            artifact.check(wanted.composition)
            memory = written_memory(plan, self.inputs)
            return run_artifact(wanted.name, wanted.composition, artifact, self.inputs, memory, traced=self.traced)
        if self.problem is None:
            raise ProblemError(f"nothing says how {wanted.path} is launched: give a --problem with its [launch]")
        memory = written_memory(self.owner.plan, self.inputs)
        outputs = self.owner.plan.outputs
        access = {**dict.fromkeys(self.inputs, "in"), **{n: "out" if n in outputs else "inout" for n in memory}}
        more = {name: tensor.access for name, tensor in self.problem.tensors.items()}
        if taken := [name for name in more if name in access]:
            raise ProblemError(f"{self.problem.path}: tensor {taken[0]} has the name of one of {self.owner.name}")
        tensors: dict[str, Array] = {**self.inputs, **memory, **self.problem.arrays()}
        launch = self.problem.launch_of(side, wanted.path)
        access |= more
        return run_object(wanted.path.name, wanted.code, self.arch, launch, tensors, access, traced=self.traced)

    def _plan_of(self, wanted: FamilySide) -> Plan:
        """Return the plan of what was asked for, in the scenario of this name that it has itself."""
        own = {each.name: each for each in wanted.composition.scenarios_of(wanted.plan)}
        if self.scenario.name not in own:
            raise ProblemError(f"{wanted.name} has no scenario {self.scenario.name}; it has {', '.join(own) or 'none'}")
        return selections.plan(wanted.composition, own[self.scenario.name].request, wanted.plan.flavor)

    def judged(self, side: Side, expected: Mapping[str, Expected]) -> Side:
        """Return a side with what the reference says of its outputs."""
        if not side.outputs:
            return side
        found: list[Finding] = list(side.findings)
        for comparison in comparisons(self.owner.plan, side.outputs, expected):
            found += comparison.findings
        found += self.owner.composition.check_outputs(self.scenario.request, side.outputs, expected)
        return attrs.evolve(side, findings=tuple(dict.fromkeys(found)))
