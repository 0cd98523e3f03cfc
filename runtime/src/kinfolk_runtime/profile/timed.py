"""Run a request's compiled kernels once on one scenario, and say by its arch's model where their time goes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import attrs

from kinfolk.errors import BindError, Refused
from kinfolk.flavor import DEFAULT_FLAVOR
from kinfolk.refusal import Refusal, Status, status_of
from kinfolk.timing import Constant, Timing, sensitivity
from kinfolk_runtime.binder import bind
from kinfolk_runtime.compilation import compile as compile_plan
from kinfolk_runtime.isa.executor import MachineExecutor
from kinfolk_runtime.profile.prepared import check_workgroups, prepared

if TYPE_CHECKING:
    from kinfolk.plugins.composition import Composition
    from kinfolk.request import Request
    from kinfolk_runtime.artifact import CompiledKernel
    from kinfolk_runtime.executor import Work

SCHEMA: Final = "kinfolk.timing/1"
BY: Final = 0.5
"""By how much of itself each constant is lowered and raised where the question is what it matters."""


@attrs.frozen(kw_only=True)
class TimedKernel:
    """One launch: its timing, and per constant the clocks with it lower and higher, over those with it as it is."""

    spec_digest: str
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

    `clock_mhz` is the arch's, None where it does not say.
    """

    family: str
    arch: str
    flavor: str
    candidate: str | None
    request: Mapping[str, Any]
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
    clock = composition.arch.facts.get("clock_mhz")
    found = TimedProfile(
        family=request.family,
        arch=arch,
        flavor=flavor,
        candidate=ready.candidate,
        request=ready.request,
        scenario=ready.scenario.name if ready.scenario else None,
        clock_mhz=clock if isinstance(clock, int) else None,
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
        trace = executed.trace
        if trace is None:
            raise BindError(f"{arch} has no model of the time of its machine code. Run {compiled.symbol} untimed.")
        found = attrs.evolve(found, constants=trace.constants)
        kernels.append(
            TimedKernel(
                spec_digest=compiled.spec.digest(),
                block=compiled.kernel.block,
                timing=trace.timing(workgroups=workgroups, spans=spans),
                sensitivity=sensitivity(trace, BY, workgroups) if sensitive else {},
            )
        )
    return attrs.evolve(found, kernels=tuple(kernels))
