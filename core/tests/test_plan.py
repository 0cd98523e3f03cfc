"""Plans: every contradiction with a kernel's declared parameters is named, every number is an Expr that evaluates."""

import json
from typing import ClassVar

import attrs
import numpy as np
import pytest

from kinfolk.contents import Lengths, Offsets, PageIds
from kinfolk.errors import InternalError
from kinfolk.expr import Scope, TensorGeometry, ceil_div, const, extent, fact, field, from_data, stride
from kinfolk.fields import ExactFloat, ExactInt, launch_field
from kinfolk.ir.types import BF16, F32, I32, PointerType
from kinfolk.parameters import Parameter
from kinfolk.plan import Argument, Axis, Binding, FloatField, Launch, Plan
from kinfolk.request import Request
from kinfolk.spec import Spec


@attrs.frozen(kw_only=True)
class RowRequest(Request):
    family: ClassVar[str] = "rows"
    rows: int = attrs.field(default=5, validator=ExactInt(minimum=0))
    width: int = attrs.field(default=64, validator=ExactInt())
    scale: float = attrs.field(default=0.5, validator=ExactFloat())
    length: int = launch_field(default=100, validator=ExactInt(minimum=0))


@attrs.frozen(kw_only=True)
class RowSpec(Spec):
    width: int = attrs.field(default=64, validator=ExactInt())

    def parameters(self):
        return (
            Parameter(name="x", type=PointerType(BF16), access="read", alignment=16),
            Parameter(name="table", type=PointerType(I32), access="read", alignment=4),
            Parameter(name="out", type=PointerType(F32), access="write", alignment=16),
            Parameter(name="status", type=PointerType(I32), access="readwrite", alignment=4),
            Parameter(name="scale", type=F32),
            Parameter(name="table_stride", type=I32),
        )


def binding(name, role="input", dtype="bf16", shape=(), alignment=16, access="read"):
    return Binding(name=name, role=role, dtype=dtype, shape=shape, alignment=alignment, access=access)


BINDINGS = {
    "x": binding("x", shape=(Axis(field("rows")), Axis(field("width")))),
    "table": binding(
        "table",
        dtype="i32",
        shape=(Axis(field("rows"), stride=None), Axis(ceil_div(field("length"), 16), at_least=True)),
        alignment=4,
    ),
    "out": binding("out", "output", "f32", (Axis(field("rows")), Axis(field("width"))), access="write"),
    "status": binding("status", "status", "i32", (Axis(1),), 4, "readwrite"),
}
ARGUMENTS = {
    "x": Argument("x", "pointer", "x"),
    "table": Argument("table", "pointer", "table"),
    "out": Argument("out", "pointer", "out"),
    "status": Argument("status", "pointer", "status"),
    "scale": Argument("scale", "f32", FloatField("scale")),
    "table_stride": Argument("table_stride", "i32", stride("table", 0)),
}


def plan(bindings=None, arguments=None, request=None, launch=None, **changes):
    bindings = BINDINGS | (bindings or {})
    arguments = ARGUMENTS | (arguments or {})
    parts = {"spec": RowSpec(), "grid": (field("rows"), 1, 1), "block": 64, "arguments": tuple(arguments.values())}
    whole = {
        "request": request or RowRequest(),
        "launches": (Launch(**(parts | (launch or {}))),),
        "bindings": tuple(each for each in bindings.values() if each),
        "outputs": ("out",),
        "contents": (),
    }
    return Plan(**(whole | changes))


TABLE = {"table": TensorGeometry((5, 9), (32, 1))}


def test_a_plan_that_agrees_with_its_kernel_evaluates():
    made = plan()
    [launch] = made.launches
    assert made.grid(launch) == (5, 1, 1)
    values = [(value.name, value.kind, value.value) for value in made.arguments(launch, TABLE)]
    assert values == [
        ("x", "pointer", "x"),
        ("table", "pointer", "table"),
        ("out", "pointer", "out"),
        ("status", "pointer", "status"),
        ("scale", "f32", 0.5),
        ("table_stride", "i32", 32),
    ]


def flaws():
    changed = attrs.evolve
    x, out, status = (BINDINGS[name] for name in ("x", "out", "status"))
    yield "passes arguments", {"launch": {"arguments": tuple(ARGUMENTS.values())[:-1]}}
    yield "passes arguments", {"launch": {"arguments": tuple(reversed(ARGUMENTS.values()))}}
    yield "argument scale is passed as i32", {"arguments": {"scale": Argument("scale", "i32", const(1))}}
    yield "argument x binds 'y'", {"arguments": {"x": Argument("x", "pointer", "y")}}
    yield "argument x: x holds f16", {"bindings": {"x": changed(x, dtype="f16")}}
    yield "argument x: x is aligned to 8", {"bindings": {"x": changed(x, alignment=8)}}
    yield "argument out: the kernel writes out", {"bindings": {"out": changed(out, role="input", access="read")}}
    yield "reads and writes status", {"bindings": {"status": changed(status, access="write")}}
    yield (
        "out is written and passed twice",
        {
            "bindings": {"table": None, "out": changed(out, access="readwrite", dtype="i32"), "status": None},
            "arguments": {
                "out": Argument("out", "pointer", "out"),
                "table": Argument("table", "pointer", "out"),
                "status": Argument("status", "pointer", "out"),
            },
            "launch": {"spec": AliasSpec()},
        },
    )
    yield "the request has no field 'cap'", {"arguments": {"scale": Argument("scale", "f32", FloatField("cap"))}}
    yield "no launch is passed the bindings spare", {"bindings": {"spare": changed(x, name="spare")}}
    yield "share a name", {"bindings": {"again": x}}
    yield "the plan returns", {"outputs": ()}
    yield "the plan returns", {"outputs": ("out", "x")}
    yield "the plan returns", {"outputs": ("out", "out")}
    yield "launches something", {"launches": ()}
    yield "block of 0", {"launch": {"block": 0}}
    yield "block of 64.0", {"launch": {"block": 64.0}}
    yield "Offsets checks 'out'", {"contents": (Offsets(tensor="out", count=4, max_step=1),)}
    yield "PageIds checks 'cu'", {"contents": (PageIds(table="table", offsets="cu", page_size=16, bound=4),)}
    yield "PageIds checks 'cu'", {"contents": (PageIds(table="table", lengths="cu", page_size=16, bound=4),)}
    yield "Lengths checks 'out'", {"contents": (Lengths(tensor="out", count=4, most=1),)}


@attrs.frozen(kw_only=True)
class AliasSpec(RowSpec):
    def parameters(self):
        return tuple(
            attrs.evolve(parameter, type=PointerType(I32)) if parameter.name == "out" else parameter
            for parameter in RowSpec.parameters(self)
        )


@pytest.mark.parametrize("message, changes", list(flaws()))
def test_a_plan_that_contradicts_itself_says_where(message, changes):
    plan()
    with pytest.raises(InternalError) as caught:
        plan(**changes)
    assert message in str(caught.value)


@pytest.mark.parametrize("given", [{}, {"offsets": "a", "lengths": "b"}], ids=["neither", "both"])
def test_page_ids_are_counted_by_offsets_or_by_lengths(given):
    with pytest.raises(InternalError, match="takes one of offsets and lengths"):
        PageIds(table="table", page_size=16, bound=4, **given)


def test_errors_of_a_launch_name_it():
    with pytest.raises(InternalError, match=r"launch 0 \(row_[0-9a-f]{8}\), argument x"):
        plan(arguments={"x": Argument("x", "pointer", "y")})


@pytest.mark.parametrize(
    "changes",
    [{"role": "input", "access": "write"}, {"role": "output", "access": "read"}, {"alignment": 1}, {"alignment": 24}],
)
def test_a_binding_that_contradicts_itself_is_refused(changes):
    with pytest.raises(InternalError, match="binding x"):
        attrs.evolve(BINDINGS["x"], **changes)


@pytest.mark.parametrize(
    "role, access, memory",
    [
        ("input", "read", "any"),
        ("output", "write", "any"),
        ("output", "readwrite", "device"),
        ("workspace", "readwrite", "device"),
        ("status", "readwrite", "device"),
        ("status", "write", "any"),
    ],
)
def test_what_a_kernel_may_add_to_is_memory_of_the_device_and_the_plan_says_so(role, access, memory):
    bound = binding("x", role, access=access)
    assert bound.memory == bound.data()["memory"] == memory


@pytest.mark.parametrize(
    "kind, value", [("pointer", const(1)), ("i32", "x"), ("i64", 3), ("f32", 1), ("f32", const(1)), ("i8", const(1))]
)
def test_an_argument_holds_what_its_kind_holds(kind, value):
    with pytest.raises(InternalError, match="argument a"):
        Argument("a", kind, value)


def test_an_integer_argument_must_fit():
    request = RowRequest(length=2**31)
    fits = {"table_stride": Argument("table_stride", "i32", field("length") - 1)}
    made = plan(arguments=fits, request=request)
    assert made.arguments(made.launches[0])[-1].value == 2**31 - 1
    made = plan(arguments={"table_stride": Argument("table_stride", "i32", field("length"))}, request=request)
    with pytest.raises(InternalError, match=r"table_stride is length = 2147483648, outside i32"):
        made.arguments(made.launches[0])


@pytest.mark.parametrize("rows, width", [(0, 4), (1, 1), (5, 64), (7, 3)])
def test_minimum_bytes_of_contiguous_memory_is_what_numpy_allocates(rows, width):
    made = plan(request=RowRequest(rows=rows, width=width))
    assert made.minimum_bytes("out") == np.zeros((rows, width), np.float32).nbytes
    assert made.minimum_bytes("status") == 4


@pytest.mark.parametrize("rows, length, columns, pitch", [(5, 100, 9, 32), (1, 1, 1, 1), (4, 64, 4, 4), (3, 0, 5, 8)])
def test_minimum_bytes_of_a_strided_table_spans_what_the_kernel_may_read(rows, length, columns, pitch):
    made = plan(request=RowRequest(rows=rows, length=length))
    memory = np.zeros((rows, pitch), np.int32)
    table = memory[:, : -(-length // 16)]
    expected = 0 if table.size == 0 else np.lib.array_utils.byte_bounds(table)
    expected = expected and expected[1] - expected[0]
    geometry = {"table": TensorGeometry((rows, columns), (pitch, 1))}
    assert made.minimum_bytes("table", geometry) == expected


def test_a_row_pitch_of_a_table_with_spare_columns_is_its_own():
    loose = binding("t", shape=(Axis(3), Axis(4, at_least=True)), dtype="i32", alignment=4)
    tensors = {"t": TensorGeometry((3, 9), (9, 1))}
    assert [step.evaluate(Scope(tensors=tensors)) for step in loose.strides()] == [9, 1]
    assert loose.minimum_bytes().evaluate(Scope(tensors=tensors)) == 4 * (2 * 9 + 4)


def test_workspaces_lie_one_after_the_other():
    @attrs.frozen(kw_only=True)
    class WorkSpec(Spec):
        def parameters(self):
            return tuple(
                Parameter(name=name, type=PointerType(F32), access=access, alignment=alignment)
                for name, access, alignment in (("a", "readwrite", 4), ("b", "readwrite", 64), ("out", "write", 4))
            )

    made = Plan(
        request=RowRequest(rows=5),
        launches=(
            Launch(
                spec=WorkSpec(),
                grid=(1, 1, 1),
                block=1,
                arguments=tuple(Argument(name, "pointer", name) for name in ("a", "b", "out")),
            ),
        ),
        bindings=(
            binding("a", "workspace", "f32", (Axis(field("rows")),), 4, "readwrite"),
            binding("b", "workspace", "f32", (Axis(field("rows") * 4),), 64, "readwrite"),
            binding("out", "output", "f32", (Axis(1),), 4, "write"),
        ),
        outputs=("out",),
    )
    assert made.workspace_bytes() == 64 + 128
    assert plan().workspace_bytes() == 0


def test_a_launch_whose_condition_does_not_hold_has_an_empty_grid():
    made = plan(launch={"condition": field("length") > 100})
    assert made.grid(made.launches[0]) == (0, 0, 0)
    longer = made.with_request(RowRequest(length=101))
    assert longer.grid(longer.launches[0]) == (5, 1, 1)


def test_another_request_gives_other_numbers_and_the_same_rest():
    made = plan(arch="toy", flavor="llvm22", candidate="rows.one")
    other = made.with_request(RowRequest(rows=7))
    assert other == attrs.evolve(made, request=RowRequest(rows=7))
    assert (other.grid(other.launches[0]), made.grid(made.launches[0])) == ((7, 1, 1), (5, 1, 1))
    assert other.launches is made.launches


def test_a_plan_that_tells_other_things_is_made_as_it_would_be_anew():
    made = plan()
    versions = {"a": "1"}
    other = made.telling(arch="toy", notes=("slow",), versions=versions, facts={"n": 2})
    assert other == attrs.evolve(made, arch="toy", notes=("slow",), versions=versions, facts={"n": 2})
    versions["a"] = "2"
    assert other.versions == {"a": "1"}
    assert (made.arch, made.notes, made.versions) == ("", (), {})


def test_facts_travel_with_the_plan():
    grid = (ceil_div(field("rows"), fact("per_group")), 1, 1)
    made = plan(launch={"grid": grid}, facts={"per_group": 2})
    assert made.grid(made.launches[0]) == (3, 1, 1)


def test_json_holds_trees_that_evaluate_to_the_same_numbers():
    made = plan(
        contents=(Offsets(tensor="table", count=field("rows"), last=field("length"), max_step=1),), versions={"a": "1"}
    )
    data = json.loads(made.to_json())
    scope = made.scope(TABLE)
    [launch] = data["launches"]
    assert [from_data(count).evaluate(scope) for count in launch["grid"]] == [5, 1, 1]
    assert from_data(launch["arguments"][-1]["value"]).evaluate(scope) == 32
    assert launch["arguments"][-2]["value"] == {"field": "scale"}
    assert RowSpec.from_data(launch["spec"]) == RowSpec()
    sizes = {each["name"]: from_data(each["minimum_bytes"]).evaluate(scope) for each in data["bindings"]}
    assert sizes == {name: made.minimum_bytes(name, TABLE) for name in BINDINGS}
    assert data["bindings"][1]["free_strides"] == [0]
    assert [each["memory"] for each in data["bindings"]] == ["any", "any", "any", "device"]
    assert data["contents"][0]["check"] == "Offsets"
    assert RowRequest.from_data(data["request"]) == made.request
    assert made.to_json() == plan(contents=made.contents, versions={"a": "1"}).to_json()


def test_every_expression_of_a_plan_is_listed():
    made = plan(
        launch={"grid": (fact("a"), fact("b"), 1), "condition": fact("c") > 0},
        arguments={"table_stride": Argument("table_stride", "i32", fact("d"))},
        bindings={"x": binding("x", shape=(Axis(fact("e")), Axis(extent("x", 1), stride=fact("f"))))},
        contents=(PageIds(table="table", offsets="table", page_size=fact("g"), bound=fact("h")),),
    )
    names = {leaf.name for expr in made.expressions() for leaf in expr.leaves() if leaf.tag == "fact"}
    assert names == set("abcdefgh")
    declared = {leaf.name for expr in made.declared() for leaf in expr.leaves() if leaf.tag == "fact"}
    assert declared == names  # what is derived reads no other fact


def test_an_argument_keeps_the_bounds_that_its_kernel_declares(monkeypatch):
    made = plan(request=RowRequest(length=48))
    declared = made.launches[0].spec.parameters()

    def most(limit):
        return tuple(
            attrs.evolve(each, minimum=1, maximum=limit) if each.name == "table_stride" else each for each in declared
        )

    made = plan(arguments={"table_stride": Argument("table_stride", "i32", field("length"))}, request=made.request)
    monkeypatch.setattr(type(made.launches[0].spec), "parameters", lambda spec: most(48))
    assert made.arguments(made.launches[0])[-1].value == 48
    monkeypatch.setattr(type(made.launches[0].spec), "parameters", lambda spec: most(47))
    with pytest.raises(InternalError, match=r"table_stride is length = 48, its kernel takes 1 to 47"):
        made.arguments(made.launches[0])
