"""One side of a comparison: kernels run as machine code, with what they gave and what that took."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs

from kinfolk.check import Finding
from kinfolk.check.element import Array
from kinfolk.errors import BindError, SimulationError
from kinfolk_runtime.comparison.problem import ObjectLaunch, ProblemError
from kinfolk_runtime.isa import MachineExecutor
from kinfolk_runtime.isa.memory import OBJECT_ALIGNMENT
from kinfolk_runtime.simulator.buffers import Buffer
from kinfolk_runtime.verify import unwritten_findings

if TYPE_CHECKING:
    from kinfolk.arch import Arch
    from kinfolk.machine import Executed
    from kinfolk.plugins.composition import Composition
    from kinfolk.usage import Usage
    from kinfolk_runtime.artifact import Artifact

TIMED_WORKGROUPS = 8
"""Of a compute unit's share, so many are timed; the others count in proportion."""


@attrs.frozen(kw_only=True)
class LaunchFigures:
    """What one launch ran and took. `figures` are integers by name, in the order that tables show them in."""

    kernel: str
    figures: Mapping[str, int]
    bound: str | None

    @classmethod
    def of(cls, usage: Usage, executed: Executed, local_bytes: int) -> LaunchFigures:
        """Put together what the compiled kernel says of itself, what ran, and what the model of time says."""
        timing = executed.trace.timing(workgroups=TIMED_WORKGROUPS) if executed.trace else None
        figures = {
            "instructions": executed.instructions,
            "lane operations": executed.lane_operations,
            "matrix products": executed.products,
            "bytes read": executed.read_bytes,
            "bytes written": executed.written_bytes,
            "workgroup memory": local_bytes,
            **({"conflict clocks": executed.trace.conflict_clocks} if executed.trace else {}),
            **({"clocks": round(timing.clocks_of_grid)} if timing else {}),
            **{name: usage.figures[name] for name in ("vgpr", "agpr", "sgpr") if name in usage.figures},
            "scratch bytes": usage.scratch_bytes,
        }
        return cls(kernel=usage.symbol, figures=figures, bound=timing.spent.bound if timing else None)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON row."""
        named = {name.replace(" ", "_"): value for name, value in self.figures.items()}
        return {"kernel": self.kernel, **named, "bound": self.bound}


@attrs.frozen(kw_only=True, eq=False)
class Side:
    """What one side was, ran and wrote, outputs and status; `findings` are what went wrong with it for itself."""

    name: str
    launches: tuple[LaunchFigures, ...] = ()
    outputs: Mapping[str, Array] = attrs.field(factory=dict[str, Array])
    findings: tuple[Finding, ...] = ()

    @property
    def totals(self) -> dict[str, int]:
        """Figures of all launches: sums, of memory and registers the most of any."""
        found: dict[str, int] = {}
        for launch in self.launches:
            for name, value in launch.figures.items():
                most = name in ("workgroup memory", "vgpr", "agpr", "sgpr", "scratch bytes")
                found[name] = max(found.get(name, 0), value) if most else found.get(name, 0) + value
        return found

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object."""
        return {
            "name": self.name,
            "status": "fail" if self.findings else "pass",
            "launches": [launch.to_dict() for launch in self.launches],
            "findings": [finding.to_dict() for finding in self.findings],
        }


def run_object(
    name: str,
    code: bytes,
    arch: Arch,
    launch: ObjectLaunch,
    tensors: Mapping[str, Array],
    access: Mapping[str, str],
    *,
    traced: bool = True,
) -> Side:
    """Run a kernel of an object on copies of tensors, of which `access` says `in`, `out` or `inout`.

    A fault of the kernel is a finding. Raises as `launched`.
    """
    executor = MachineExecutor(traced=traced)
    try:
        executed, written = launched(name, code, arch, launch, tensors, access, executor)
    except SimulationError as error:
        return Side(name=name, findings=(Finding("simulation", "", str(error)),))
    usage = arch.usage(code, executed.symbol)
    local_bytes = usage.figures.get("lds_bytes", 0) + launch.shape.dynamic_bytes
    return Side(name=name, launches=(LaunchFigures.of(usage, executed, local_bytes),), outputs=written)


def launched(
    name: str,
    code: bytes,
    arch: Arch,
    launch: ObjectLaunch,
    tensors: Mapping[str, Array],
    access: Mapping[str, str],
    executor: MachineExecutor,
) -> tuple[Executed, dict[str, Array]]:
    """Run a kernel of an object on copies of what it writes; return what ran, and these.

    Raises SimulationError for a fault of the kernel, ProblemError for an argument that is no tensor, BindError for
    arguments that do not fit the kernel, ToolError for an object that cannot be read.
    """
    written = {each: tensors[each].copy() for each in access if access[each] != "in"}
    given: list[object] = []
    read_only: list[int] = []
    for number, argument in enumerate(launch.arguments):
        if not isinstance(argument, str):
            given.append(argument.value)
        elif argument in written:
            given.append(Buffer(written[argument], initialized=access[argument] != "out"))
        elif argument in tensors:
            given.append(tensors[argument])
            read_only.append(number)
        else:
            raise ProblemError(
                f"{name}: argument {number} is {argument}; there are {', '.join(tensors) or 'no tensors'}"
            )
    named = given if launch.names is None else dict(zip(launch.names, given, strict=True))
    only = read_only if launch.names is None else [launch.names[number] for number in read_only]
    return executor.launch_object(code, arch, launch.shape, named, symbol=launch.kernel, read_only=only), written


def run_artifact(
    name: str,
    composition: Composition,
    artifact: Artifact,
    inputs: Mapping[str, Any],
    memory: Mapping[str, Array],
    *,
    traced: bool = True,
) -> Side:
    """Run the kernels of a plan on inputs, and on `memory` for what they write; a fault is a finding."""
    from kinfolk_runtime.binder import bind

    executor = MachineExecutor(traced=traced, alignment=OBJECT_ALIGNMENT)
    try:
        bound = bind(artifact, {**inputs, **memory}, executor=executor, composition=composition)
        bound()
    except (SimulationError, BindError) as error:
        code = "bind" if isinstance(error, BindError) else "simulation"
        return Side(name=name, findings=(Finding(code, "", str(error)),))
    return Side(
        name=name,
        launches=tuple(_figures(artifact, executor.executed)),
        outputs=memory,
        findings=tuple(unwritten_findings(bound)),
    )


def _figures(artifact: Artifact, executed: Sequence[Executed]) -> list[LaunchFigures]:
    """Return the figures of the launches that there were: a plan leaves out those that its request does not need."""
    usages = {kernel.symbol: kernel.usage for kernel in artifact.kernels}
    return [
        LaunchFigures.of(usages[each.symbol], each, usages[each.symbol].figures.get("lds_bytes", 0))
        for each in executed
    ]
