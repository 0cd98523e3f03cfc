"""A family on an arch with one of everything that a bundle can hold; nothing of it is compiled."""

from __future__ import annotations

from types import SimpleNamespace
from typing import ClassVar

import attrs

from kinfolk.candidate import Candidate, Note
from kinfolk.expr import (
    Scope,
    all_of,
    any_of,
    ceil_div,
    const,
    eq,
    extent,
    fact,
    field,
    floor_div,
    is_zero,
    maximum,
    minimum,
    multiple_of,
    ne,
    not_,
    one_of,
    select,
    stride,
)
from kinfolk.fields import ExactBool, ExactFloat, ExactInt, ExactStr, OneOf, Optional, launch_field
from kinfolk.ir.types import BF16, F32, I32, I64, PointerType
from kinfolk.parameters import Parameter
from kinfolk.plan import Argument, Axis, Binding, FloatField, Launch, Plan
from kinfolk.refusal import Limit, Refusal, unmet
from kinfolk.request import Relation, Request
from kinfolk.spec import Spec
from kinfolk_runtime.artifact import argument_layout
from kinfolk_runtime.bundles.document import FILE, text_of
from kinfolk_runtime.bundles.writer import cases_of, document_of

ROWS, COLUMNS, HEADS, SHIFT = field("rows"), field("columns"), field("heads"), field("shift")
PLUGIN = "kinfolk-toy"


@attrs.frozen(kw_only=True)
class ToyRequest(Request):
    family: ClassVar[str] = "toy"
    relations: ClassVar = (
        Relation(
            field="columns",
            condition=COLUMNS * ROWS <= 2**61,
            rule="at most {most}",
            remedy="Pass {most} or fewer.",
            numbers={"most": 2**61 // maximum(ROWS, 1)},
        ),
        Relation(
            field="shift",
            condition=any_of(eq(field("mode"), "plain"), SHIFT * 2**40 + ROWS >= -(2**62)),
            rule="no less than -2**22 {as it stands}",
            remedy="Shift less.",
        ),
    )
    heads: int = attrs.field(validator=ExactInt(minimum=4, maximum=400, step=4))
    mode: str = attrs.field(default="plain", validator=OneOf(("plain", "it's", 'said "so"')))
    tight: bool = attrs.field(default=False, validator=ExactBool())
    level: int = attrs.field(default=2, validator=OneOf((1, 2, 4)))
    rows: int = launch_field(validator=ExactInt(minimum=0))
    columns: int = launch_field(validator=ExactInt())
    shift: int = launch_field(default=0, validator=ExactInt(minimum=-(2**40)))
    scale: float = launch_field(
        default=1.0, validator=ExactFloat(minimum=0.0, maximum=1e39, exclusive_minimum=True, exclusive_maximum=True)
    )
    bias: float = attrs.field(default=0.0, validator=ExactFloat(minimum=-1.0, maximum=1.0))
    tag: str | None = attrs.field(default=None, validator=Optional(ExactStr()))
    candidate: str | None = attrs.field(default=None, validator=Optional(ExactStr()))


@attrs.frozen(kw_only=True)
class ToySpec(Spec):
    width: int = attrs.field(validator=ExactInt())
    split: bool = attrs.field(validator=ExactBool())
    step: int = attrs.field(default=0, validator=ExactInt(minimum=0))

    def parameters(self):
        scalars = (
            Parameter(name="count", type=I32),
            Parameter(name="step", type=I64),
            Parameter(name="half", type=F32),
        )
        if self.step:
            space = Parameter(name="space", type=PointerType(F32), alignment=64)
            return (Parameter(name="half", type=F32), space, *_written("y"), Parameter(name="scale", type=F32))
        read = (Parameter(name="x", type=PointerType(BF16), alignment=16),)
        return (*scalars[:1], *read, *_written("space"), *scalars[1:], *_written("flag"))


def _written(name):
    element = {"space": F32, "y": BF16, "flag": I32}[name]
    alignment = {"space": 64, "y": 16, "flag": 4}[name]
    access = "readwrite" if name == "flag" else "write"
    return (Parameter(name=name, type=PointerType(element), access=access, alignment=alignment),)


def _binding(name, role, dtype, access, alignment, *shape):
    return Binding(name=name, role=role, dtype=dtype, shape=shape, alignment=alignment, access=access)


BINDINGS = (
    _binding("x", "input", "bf16", "read", 16, Axis(ROWS, stride=None), Axis(COLUMNS, at_least=True)),
    _binding("space", "workspace", "f32", "readwrite", 64, Axis(ROWS), Axis(HEADS * 3), Axis(2)),
    _binding("y", "output", "bf16", "write", 16, Axis(ROWS, stride=COLUMNS + HEADS), Axis(COLUMNS)),
    _binding("flag", "status", "i32", "readwrite", 4, Axis(1)),
)


def toy_plan(width, split, request):
    first = Launch(
        spec=ToySpec(width=width, split=split),
        grid=(ceil_div(ROWS, width), select(field("tight"), HEADS, HEADS // 4), 2),
        block=64,
        arguments=(
            Argument("count", "i32", ROWS - SHIFT),
            Argument("x", "pointer", "x"),
            Argument("space", "pointer", "space"),
            Argument("step", "i64", stride("x", 0) * extent("x", -1) - SHIFT),
            Argument("half", "f32", 0.5),
            Argument("flag", "pointer", "flag"),
        ),
    )
    second = Launch(
        spec=ToySpec(width=width, split=split, step=1),
        grid=(minimum(COLUMNS, ROWS, 7) - 3, 1, fact("dies")),
        block=128,
        condition=all_of(ROWS > 0, ne(SHIFT, 1)),
        arguments=(
            Argument("half", "f32", 0.1),
            Argument("space", "pointer", "space"),
            Argument("y", "pointer", "y"),
            Argument("scale", "f32", FloatField("scale")),
        ),
    )
    return Plan(request=request, launches=(first, second), bindings=BINDINGS, outputs=("y",))


def limit(code, name, condition, kind="cannot", remedy="Play otherwise.", **more):
    return Limit(f"toy.{code}", kind, name, condition, because=f"{code} is a toy", remedy=remedy, **more)


NARROW = (
    limit("narrow.heads", "heads", one_of(HEADS, (4, 8, 16))),
    limit("narrow.work", "rows", ROWS * HEADS * COLUMNS - SHIFT <= 2**62 + (2**62 - 1)),
    limit("narrow.tight", "tight", field("tight"), "not_implemented"),
    limit("narrow.bias", "bias", any_of(is_zero("bias"), not_(is_zero("shift")))),
    limit(
        "narrow.columns",
        "columns",
        any_of(multiple_of(COLUMNS, 8), not_(eq(field("mode"), "it's"))),
        remedy="Pass {near}, or {{any}} of {far}.",
        suggestions={"near": COLUMNS // 8 * 8, "far": COLUMNS * COLUMNS * COLUMNS},
    ),
)
WIDE = (
    limit("wide.heads", "heads", all_of(multiple_of(HEADS, 8), fact("most_heads") >= HEADS), "not_validated"),
    limit("wide.rows", "rows", floor_div(ROWS, -3) >= -(2**40)),
    limit("wide.mode", "mode", ne(field("mode"), 'said "so"')),
    limit("wide.shift", "shift", const(5) > SHIFT),
    limit("wide.level", "level", field("level").one_of((2,)), remedy="A {brace} stands."),
)
STOPPED = Refusal(
    code="toy.stopped",
    kind="policy",
    field="mode",
    value="it's",
    limit="plain",
    because="it is stopped",
    remedy="Go.",
    plugin="kinfolk-policy",
)
ADMISSION = (limit("admitted.rows", "rows", ROWS + SHIFT <= 2**62),)
OLD = (limit("old.heads", "heads", HEADS <= 4),)


def planned_narrow(request, arch):
    split = (COLUMNS > 512).holds(Scope(request=request, arch=arch))
    return toy_plan(request.heads, split, request)


def planned_wide(request, arch):
    return toy_plan(request.heads * 2 if request.tight else 7, False, request)


def candidate(name, priority, capability, plan, **more):
    def specs(arch, flavor):
        widths = {4, 7, 8, 16} | {2 * heads for heads in range(4, 401, 4)}
        return (
            ToySpec(width=width, split=split, step=step)
            for width in widths
            for split in (False, True)
            for step in (0, 1)
        )

    given = {
        "name": name,
        "priority": priority,
        "plugin": PLUGIN,
        "capability": capability,
        "plan": plan,
        "specs": specs,
    }
    return Candidate(**given, **more)


NOTES = (Note("slower below 512 columns", COLUMNS < 512), Note("always said"))
SLOWER = (Note("toy.wide is faster from 600 columns on", COLUMNS >= 600, slower=True),)


class ToyComposition:
    """The toy family on an arch of two facts, as dispatch and the writer of bundles see it."""

    family = "toy"

    def __init__(self):
        facts = {"most_heads": 200, "dies": 8, "max_grid_x": 2**31 - 1, "max_grid_y": 65535, "max_workgroup_size": 1024}
        self.arch = SimpleNamespace(name="toyarch", facts=facts, target_ids=("toyarch",))
        self.request_type = ToyRequest
        self.versions = {PLUGIN: "1"}
        self.policy_digests = {"order": "d1"}

    def candidates(self):
        return (
            candidate("toy.wide", 1, WIDE, planned_wide, notes=NOTES),
            candidate("toy.future", -5, OLD, planned_wide, min_llvm=99),
            candidate("toy.narrow", 0, NARROW, planned_narrow, notes=SLOWER),
        )

    def validate_spec(self, spec):
        return unmet((limit("spec.width", "width", field("width") <= 160),), spec, self.arch, PLUGIN)

    def admit(self, request, candidate, plan):
        found = unmet(ADMISSION, request, self.arch, PLUGIN) if candidate.name == "toy.narrow" else ()
        return (*found, *((STOPPED,) if candidate.name == "toy.narrow" and request.mode == "it's" else ()))

    def rank(self, request, survivors):
        return survivors

    def ranking(self):
        return ()


def write_toy(folder):
    """Write the document of the toy's bundle."""
    composition = ToyComposition()
    write_uncompiled(composition, folder)
    return composition


def write_uncompiled(composition, folder):
    """Write the document of a family's bundle, all that requests are judged by; its kernels are places of arguments
    without code.
    """
    found = cases_of(composition, "llvm22", {})
    specs = {launch.spec.digest(): launch.spec for _, each in found for case in each for launch in case.plan.launches}
    kernels = {digest: _kernel(spec) for digest, spec in specs.items()}
    folder.mkdir(exist_ok=True)
    (folder / FILE).write_bytes(text_of(document_of(composition, "llvm22", {}, found, kernels)))


def _kernel(spec):
    places = argument_layout(spec.parameters())
    file = {"file": "none", "sha256": "0" * 64, "bytes": 0}
    return {
        "symbol": spec.symbol(),
        "spec": spec.data(),
        "code": file,
        "ir": file,
        "target": "toyarch",
        "arguments": [
            {
                "name": parameter.name,
                "kind": parameter.kind,
                "element": parameter.type.element.name if parameter.is_pointer else parameter.type.name,
                "access": parameter.access,
                "alignment": parameter.alignment,
                "offset": place.offset,
                "size": place.size,
            }
            for parameter, place in zip(spec.parameters(), places, strict=True)
        ],
        "argument_bytes": max(place.offset + place.size for place in places),
        "figures": {},
        "artifact": "0" * 64,
        "toolchain": "none",
    }
