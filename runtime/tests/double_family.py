"""y = factor * x, with faults that a test may plant, on an arch without an LLVM: its figures are made up."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar

import attrs
import numpy as np
import pytest

from kinfolk.arch import Arch, LoweredModule
from kinfolk.candidate import Candidate
from kinfolk.check import Expected, Finding, Scenario, Tolerance
from kinfolk.errors import Refused
from kinfolk.expr import ceil_div, field
from kinfolk.fields import ExactInt, launch_field
from kinfolk.hooks import hookimpl
from kinfolk.ir import Kernel, build_kernel
from kinfolk.ir.ops import control, lanes, memory
from kinfolk.ir.types import F32, I32, PointerType
from kinfolk.matrix import MatrixCatalog
from kinfolk.parameters import Parameter
from kinfolk.plan import Argument, Axis, Binding, Launch, Plan
from kinfolk.plugins.composition import Composition
from kinfolk.plugins.discovery import Offer
from kinfolk.plugins.loading import Loaded
from kinfolk.refusal import Limit, Refusal
from kinfolk.request import Request
from kinfolk.spec import Spec
from kinfolk.usage import Usage
from kinfolk_runtime.artifact import Artifact, CompiledKernel, argument_layout, artifact_key, sha256

WAVE = 64


@attrs.frozen(kw_only=True)
class DoubleRequest(Request):
    family: ClassVar[str] = "double"
    factor: int = attrs.field(default=2, validator=ExactInt())
    count: int = launch_field(default=100, validator=ExactInt(minimum=0))


@attrs.frozen(kw_only=True)
class DoubleSpec(Spec):
    factor: int = attrs.field(validator=ExactInt())

    def parameters(self) -> tuple[Parameter, ...]:
        return (
            Parameter(name="x", type=PointerType(F32), alignment=4),
            Parameter(name="y", type=PointerType(F32), access="write", alignment=4),
            Parameter(name="count", type=I32),
        )


def vector(name: str, role: Any, access: Any) -> Binding:
    return Binding(name=name, role=role, dtype="f32", shape=(Axis(field("count")),), alignment=4, access=access)


def plan(request: DoubleRequest, arch: Arch) -> Plan:
    pointers = [Argument(name, "pointer", name) for name in ("x", "y")]
    launch = Launch(
        spec=DoubleSpec(factor=request.factor),
        grid=(ceil_div(field("count"), WAVE), 1, 1),
        block=WAVE,
        arguments=(*pointers, Argument("count", "i32", field("count"))),
    )
    bindings = (vector("x", "input", "read"), vector("y", "output", "write"))
    return Plan(request=request, launches=(launch,), bindings=bindings, outputs=("y",))


CAPABILITY = (Limit("double.factor", "cannot", "factor", field("factor") <= 4, because="b", remedy="r"),)


class Family:
    """y = factor * x. `error` is added to the factor, `past` reads past the end, `first` is the element begun at."""

    def __init__(self, *, error: float = 0.0, past: int = 0, first: int = 0, gate: Iterable[Refusal] = ()) -> None:
        self.error, self.past, self.first, self.gate = error, past, first, tuple(gate)
        self.extra: tuple[Finding, ...] = ()
        self.expected_name = "y"
        self.tampered: Callable[[CompiledKernel], CompiledKernel] = lambda kernel: kernel

    @hookimpl
    def kinfolk_request_type(self) -> type[Request]:
        return DoubleRequest

    @hookimpl
    def kinfolk_candidates(self) -> tuple[Candidate, ...]:
        return (
            Candidate(
                name="double.plain",
                priority=1,
                plugin="double",
                capability=CAPABILITY,
                plan=plan,
                specs=lambda arch, flavor: (DoubleSpec(factor=factor) for factor in range(1, 5)),
            ),
        )

    @hookimpl
    def kinfolk_emit_ir(self, spec: Spec, arch: Arch) -> Kernel:
        assert isinstance(spec, DoubleSpec)

        def body(x: Any, y: Any, count: Any) -> None:
            index = lanes.block_id(axis=0) * WAVE + lanes.thread_id() + self.first

            def store() -> tuple[()]:
                value = memory.load(memory.offset(x, index + self.past)) * (spec.factor + self.error)
                memory.store(memory.offset(y, index), value)
                return ()

            control.if_else(index < count, store)

        return build_kernel(spec.symbol(), spec.parameters(), arch=arch, block=WAVE, body=body)

    @hookimpl
    def kinfolk_scenarios(self, request: Request) -> tuple[Scenario, ...]:
        assert isinstance(request, DoubleRequest)

        def scenario(name: str, asked: DoubleRequest) -> Scenario:
            return Scenario(
                name=name,
                about="normal numbers",
                request=asked,
                build=lambda generator: {"x": generator.standard_normal(asked.count, np.float32)},
            )

        return (scenario("as asked", request), scenario("one", attrs.evolve(request, count=1)))

    @hookimpl
    def kinfolk_reference(self, request: Request, inputs: Mapping[str, Any]) -> dict[str, Any]:
        assert isinstance(request, DoubleRequest)
        value = request.factor * inputs["x"].astype(np.float64)
        return {self.expected_name: Expected(value, Tolerance(np.full(value.shape, 1e-6)))}

    @hookimpl
    def kinfolk_check_outputs(self) -> tuple[Finding, ...]:
        return self.extra


class ArchPlugin:
    @hookimpl
    def kinfolk_arch(self) -> Arch:
        return Arch(
            name="toy",
            target_ids=("toy",),
            wave_size=WAVE,
            facts={"max_grid_x": 16, "max_grid_y": 1, "max_grid_z": 1},
            matrix=MatrixCatalog(()),
            lower_kernel=lambda *_: pytest.fail("nothing is lowered here"),
            read_usage=lambda code, symbol, *_: usage_of(code, symbol),
        )


def composition_of(family: Family) -> Composition:
    """Return the family on the arch, which remembers the family."""

    def loaded(kind: str, name: str, plugin: object) -> Loaded:
        return Loaded(Offer(kind=kind, name=name, value=name, distribution=name, version="0"), plugin)

    composition = Composition(loaded("family", "double", family), loaded("arch", "toy", ArchPlugin()))
    composition.family_plugin = family  # type: ignore[attr-defined]
    return composition


def compile_without_llvm(planned: Plan, *, composition: Composition) -> Artifact:
    """Stand in for the compiler: kernels are emitted, and gated by what the family was given."""
    family = composition.family_plugin  # type: ignore[attr-defined]
    if family.gate:
        raise Refused("gated", family.gate)
    kernels = tuple(compiled(launch.spec, composition) for launch in planned.launches)
    return Artifact(plan=planned, kernels=tuple(family.tampered(kernel) for kernel in kernels))


OBJECT = b"3 registers"


def usage_of(code: bytes, symbol: str) -> Usage:
    """Read an object: its figure is the number it begins with."""
    arguments = argument_layout(DoubleSpec(factor=1).parameters())
    figures = {"registers": int(code.split()[0])}
    return Usage(
        symbol=symbol, target="toy", scratch_bytes=0, scratch_ops=0, figures=figures, arguments=arguments, hidden=()
    )


def compiled(spec: Spec, composition: Composition) -> CompiledKernel:
    module = LoweredModule(symbol=spec.symbol(), text="", triple="", cpu="toy")
    return CompiledKernel(
        spec=spec,
        arch="toy",
        flavor="llvm22",
        kernel=composition.emit(spec),
        module=module,
        object=OBJECT,
        object_sha256=sha256(OBJECT),
        usage=usage_of(OBJECT, spec.symbol()),
        toolchain="made-up",
        key=artifact_key(module, arch="toy", flavor="llvm22", toolchain="made-up"),
    )
