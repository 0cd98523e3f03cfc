"""Run compiled kernels once, a request's or an object's, and say by their arch's model where their time goes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import attrs

from kinfolk.errors import BindError, Refused
from kinfolk.flavor import DEFAULT_FLAVOR
from kinfolk.refusal import Refusal, Status, status_of
from kinfolk.timing import Constant, Timing, sensitivity
from kinfolk_runtime.binder import bind
from kinfolk_runtime.comparison.sides import launched
from kinfolk_runtime.compilation import compile as compile_plan
from kinfolk_runtime.isa.executor import MachineExecutor
from kinfolk_runtime.profile.prepared import check_workgroups, prepared

if TYPE_CHECKING:
    from pathlib import Path

    from kinfolk.arch import Arch
    from kinfolk.machine import Executed
    from kinfolk.plugins.composition import Composition
    from kinfolk.request import Request
    from kinfolk_runtime.artifact import CompiledKernel
    from kinfolk_runtime.comparison import Problem
    from kinfolk_runtime.executor import Work

SCHEMA: Final = "kinfolk.timing/1"
BY: Final = 0.5
"""By how much of itself each constant is lowered and raised where the question is what it matters."""


@attrs.frozen(kw_only=True)
class TimedKernel:
    """One launch: its timing, and per constant the clocks with it lower and higher, over those with it as it is.

    `block` are the items of a workgroup; `spec_digest` is None for an object that no spec made.
    """

    spec_digest: str | None
    block: int
    timing: Timing
    sensitivity: Mapping[str, tuple[float, float]] = attrs.field(factory=dict[str, tuple[float, float]])

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON row."""
        row: dict[str, Any] = {"spec_digest": self.spec_digest, "block": self.block}
        return {**row, **self.timing.to_dict(), "sensitivity": {n: list(pair) for n, pair in self.sensitivity.items()}}


@attrs.frozen(kw_only=True)
class TimedProfile:
    """What became of a request: refused or failed with reasons, or timed on one scenario, schema `kinfolk.timing/1`.

    Of a code object, family, flavor, candidate and scenario are None, `object` is its path; `arch` is None where it is
    for none that is installed. `clock_mhz` is the arch's, None where it does not say.
    """

    family: str | None = None
    arch: str | None
    flavor: str | None = None
    candidate: str | None = None
    request: Mapping[str, Any] = attrs.field(factory=dict[str, Any])
    object: str | None = None
    scenario: str | None = None
    clock_mhz: int | None = None
    constants: tuple[Constant, ...] = ()
    kernels: tuple[TimedKernel, ...] = ()
    refusals: tuple[Refusal, ...] = ()

    @property
    def status(self) -> Status:
        """`pass`, `refused`, or `fail`, which an error among the refusals is, and a run without a workgroup."""
        return status_of(self.refusals, passed=any(kernel.timing.timed for kernel in self.kernels))

    @property
    def clocks(self) -> float:
        """Clocks of all launches, one after the other, without what lies between them."""
        return sum(kernel.timing.clocks_of_grid for kernel in self.kernels)

    @property
    def microseconds(self) -> float | None:
        """The same at the arch's clock."""
        return self.clocks / self.clock_mhz if self.clock_mhz else None

    def to_dict(self) -> dict[str, Any]:
        """Return the document."""
        return {
            "schema": SCHEMA,
            "status": self.status,
            "family": self.family,
            "arch": self.arch,
            "flavor": self.flavor,
            "candidate": self.candidate,
            "request": dict(self.request),
            "scenario": self.scenario,
            "object": self.object,
            "clocks": self.clocks,
            "clock_mhz": self.clock_mhz,
            "constants": [attrs.asdict(each) for each in self.constants],
            "kernels": [kernel.to_dict() for kernel in self.kernels],
            "refusals": [refusal.to_dict() for refusal in self.refusals],
        }


class _Tracer(MachineExecutor):
    """Keeps what waves issue, and which kernel each launch is of: a plan's launches have conditions."""

    def __init__(self) -> None:
        super().__init__(traced=True)
        self.ran: list[CompiledKernel] = []

    def run(self, work: Work) -> None:
        """Run one launch of a bound artifact."""
        super().run(work)
        assert work.compiled is not None
        self.ran.append(work.compiled)


def timed(
    request: Request,
    arch: str,
    flavor: str = DEFAULT_FLAVOR,
    *,
    scenario: str | None = None,
    workgroups: int | None = None,
    sensitive: bool = False,
    spans: bool = False,
    composition: Composition | None = None,
) -> TimedProfile:
    """Dispatch, compile and gate a request, run its kernels on one scenario of the family, by default the first.

    Every workgroup runs; at most `workgroups` of one compute unit's are timed. `sensitive` times each launch again with
    every constant half lower and half higher, `spans` keeps what each wave did when. Refusals are in the profile.
    Raises ValueError for an unknown scenario or a `workgroups` below 1, BindError where the arch does not say how its
    machine code is run and timed, ToolError where a kernel does not compile, SimulationError where one breaks a rule of
    the machine.
    """
    from kinfolk.plugins.composition import compose

    check_workgroups(workgroups)
    composition = composition or compose(request.family, arch)
    ready = prepared(composition, request, flavor, scenario)
    found = TimedProfile(
        family=request.family,
        arch=arch,
        flavor=flavor,
        candidate=ready.candidate,
        request=ready.request,
        scenario=ready.scenario.name if ready.scenario else None,
        clock_mhz=_clock_mhz(composition.arch),
        refusals=ready.refusals,
    )
    if ready.plan is None or ready.scenario is None:
        return found
    try:
        artifact = compile_plan(ready.plan, composition=composition)
    except Refused as refused:
        return attrs.evolve(found, refusals=refused.refusals)
    executor = _Tracer()
    bind(artifact, ready.scenario.inputs(), executor=executor, composition=composition)()
    kernels: list[TimedKernel] = []
    for compiled, executed in zip(executor.ran, executor.executed, strict=True):
        spec, block = compiled.spec.digest(), compiled.kernel.block
        constants, kernel = _kernel(arch, executed, spec, block, workgroups, sensitive, spans)
        found = attrs.evolve(found, constants=constants)
        kernels.append(kernel)
    return attrs.evolve(found, kernels=tuple(kernels))


def timed_object(
    path: Path,
    code: bytes,
    arch: Arch,
    problem: Problem,
    *,
    workgroups: int | None = None,
    sensitive: bool = False,
    spans: bool = False,
) -> TimedProfile:
    """Run the kernel of a code object that `problem` says on its tensors, and say where its time goes.

    `workgroups`, `sensitive` and `spans` are those of `timed`. Raises ValueError for a `workgroups` below 1,
    ProblemError for a launch that the problem does not describe, BindError for arguments that do not fit the kernel,
    ToolError for an object that cannot be read, SimulationError where it breaks a rule of the machine.
    """
    check_workgroups(workgroups)
    launch = problem.launch_of("a", path)
    access = {name: tensor.access for name, tensor in problem.tensors.items()}
    executor = MachineExecutor(traced=True)
    executed, _ = launched(path.name, code, arch, launch, problem.arrays(), access, executor)
    items = math.prod(launch.shape.block)
    constants, kernel = _kernel(arch.name, executed, None, items, workgroups, sensitive, spans)
    clock = _clock_mhz(arch)
    return TimedProfile(arch=arch.name, object=str(path), clock_mhz=clock, constants=constants, kernels=(kernel,))


def _kernel(
    arch: str,
    executed: Executed,
    spec_digest: str | None,
    block: int,
    workgroups: int | None,
    sensitive: bool,
    spans: bool,
) -> tuple[tuple[Constant, ...], TimedKernel]:
    """Return what the model says of a launch, and the constants that it counts with."""
    trace = executed.trace
    if trace is None:
        raise BindError(f"{arch} has no model of the time of its machine code. Run {executed.symbol} untimed.")
    return trace.constants, TimedKernel(
        spec_digest=spec_digest,
        block=block,
        timing=trace.timing(workgroups=workgroups, spans=spans),
        sensitivity=sensitivity(trace, BY, workgroups) if sensitive else {},
    )


def _clock_mhz(arch: Arch) -> int | None:
    clock = arch.facts.get("clock_mhz")
    return clock if isinstance(clock, int) else None
