"""Plans as data, and back: launches, bindings and contents, every number an expression."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, cast

import attrs

from kinfolk.contents import ContentCheck, Lengths, Offsets, PageIds
from kinfolk.expr import Expr, from_data
from kinfolk.plan import CONTIGUOUS, Argument, Axis, Binding, FloatField, Launch, Plan
from kinfolk.remark import Remark
from kinfolk.request import Request
from kinfolk.spec import Spec


def plan_data(plan: Plan) -> dict[str, Any]:
    """Return what a plan does, without the specs of its launches, which a case names."""
    return {
        "launches": [
            {
                "condition": launch.condition.data(),
                "grid": [count.data() for count in launch.grid],
                "block": launch.block,
                "arguments": [argument.data() for argument in launch.arguments],
            }
            for launch in plan.launches
        ],
        "bindings": [_binding_data(binding) for binding in plan.bindings],
        "contents": [_content_data(content) for content in plan.contents],
        "outputs": list(plan.outputs),
        "workspace_bytes": plan.workspace().data(),
        "remarks": [remark.data() for remark in plan.remarks],
    }


def _binding_data(binding: Binding) -> dict[str, Any]:
    return {
        "name": binding.name,
        "role": binding.role,
        "dtype": binding.dtype,
        "element_bytes": binding.element_bytes,
        "alignment": binding.alignment,
        "access": binding.access,
        "memory": binding.memory,
        "means": binding.means,
        "shape": [_axis_data(axis) for axis in binding.shape],
        "strides": [step.data() for step in binding.strides()],
        "minimum_bytes": binding.minimum_bytes().data(),
    }


def _axis_data(axis: Axis) -> dict[str, Any]:
    stride = axis.stride.data() if isinstance(axis.stride, Expr) else axis.stride
    return {"extent": axis.extent.data(), "at_least": axis.at_least, "stride": stride, "called": axis.called}


def _content_data(content: ContentCheck) -> dict[str, Any]:
    members = attrs.asdict(content, recurse=False)
    plain = {name: value.data() if isinstance(value, Expr) else value for name, value in members.items()}
    return {"check": type(content).__name__, **plain}


def plan_from(data: Mapping[str, Any], specs: Sequence[Spec], request: Request) -> Plan:
    """Return the plan that `plan_data` was given, its launches of these specs."""
    launches = (_launch(each, spec) for each, spec in zip(data["launches"], specs, strict=True))
    return Plan(
        request=request,
        launches=tuple(launches),
        bindings=tuple(_binding(each) for each in data["bindings"]),
        contents=tuple(_content(each) for each in data["contents"]),
        outputs=tuple(data["outputs"]),
        remarks=tuple(_remark(each) for each in data["remarks"]),
    )


def _launch(data: Mapping[str, Any], spec: Spec) -> Launch:
    x, y, z = (from_data(count) for count in data["grid"])
    return Launch(
        spec=spec,
        grid=(x, y, z),
        block=data["block"],
        arguments=tuple(_argument(each) for each in data["arguments"]),
        condition=from_data(data["condition"]),
    )


def _remark(data: Mapping[str, Any]) -> Remark:
    numbers = {name: from_data(expr) for name, expr in data["numbers"].items()}
    return Remark(data["text"], from_data(data["when"]), numbers)


def _argument(data: Mapping[str, Any]) -> Argument:
    value: Any = data["value"]
    if isinstance(value, list):
        value = from_data(cast("object", value))
    elif isinstance(value, dict):
        entries = cast("dict[str, str]", value)
        value = FloatField(entries["field"]) if "field" in entries else float.fromhex(entries["float"])
    return Argument(data["name"], data["kind"], value)


def _binding(data: Mapping[str, Any]) -> Binding:
    names = ("name", "role", "dtype", "alignment", "access", "means")
    return Binding(shape=tuple(_axis(each) for each in data["shape"]), **{name: data[name] for name in names})


def _axis(data: Mapping[str, Any]) -> Axis:
    stride: Expr | Literal["contiguous"] | None = None
    if data["stride"] == CONTIGUOUS:
        stride = CONTIGUOUS
    elif data["stride"] is not None:
        stride = from_data(data["stride"])
    return Axis(from_data(data["extent"]), data["at_least"], stride, data["called"])


def _content(data: Mapping[str, Any]) -> ContentCheck:
    kind = {"Offsets": Offsets, "Lengths": Lengths, "PageIds": PageIds}[data["check"]]
    members: dict[str, Any] = {
        name: from_data(cast("object", value)) if isinstance(value, list) else value for name, value in data.items()
    }
    del members["check"]
    return cast("ContentCheck", cast("Any", kind)(**members))
