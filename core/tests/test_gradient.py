"""Which family forms the gradients of another's outputs: what may be said of that, and whom it leaves out."""

from typing import Any, ClassVar

import attrs
import pytest

from kinfolk.expr import field
from kinfolk.fields import ExactFloat, ExactInt, ExactStr
from kinfolk.gradient import Gradient, Only
from kinfolk.operand import Operand
from kinfolk.request import Request

RIGHT: dict[str, Any] = {
    "family": "toy_bwd",
    "distribution": "kinfolk-toy-bwd",
    "reads": {"x": "x", "saved": "y"},
    "given": {"dy": "y"},
    "gives": {"x": "dx"},
    "states": {"rows": field("rows")},
    "only": {"bend": Only(0.0, "a bend has no gradient", "Pass 0.0."), "other": Only(field("kind"), "one", "Convert.")},
}


def request_with(**changed: object) -> type[Request]:
    @attrs.frozen(kw_only=True)
    class Toy(Request):
        family: ClassVar[str] = "toy"
        operands: ClassVar[tuple[Operand, ...]] = (
            Operand(name="x", dtype=field("kind"), shape=(field("rows"),)),
            Operand(name="y", dtype=field("kind"), shape=(field("rows"),), output=True),
        )
        gradient: ClassVar[Gradient | None] = Gradient(**{**RIGHT, **changed})

        rows: int = attrs.field(validator=ExactInt())
        kind: str = attrs.field(validator=ExactStr())
        other: str = attrs.field(validator=ExactStr())
        bend: float = attrs.field(validator=ExactFloat())

    return Toy


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"reads": {"x": "z"}}, "has no tensor z"),
        ({"given": {"dy": "x"}}, "has no output x"),
        ({"gives": {"y": "dx"}}, "has no input y"),
        ({"keeps": {"more": True}}, "has no field more"),
        ({"states": {"rows": field("columns") + 1}}, "has no field columns"),
        ({"only": {"bent": Only(0.0, "", "")}}, "has no field bent"),
        ({"only": {"bend": Only(field("kinds"), "", "")}}, "has no field kinds"),
    ],
)
def test_a_gradient_of_what_a_request_has_not_is_refused_when_it_is_declared(changed, said):
    assert request_with().gradient is not None
    with pytest.raises(TypeError, match=f"Toy {said}, as its gradient says"):
        request_with(**changed)


def test_fields_of_another_value_are_refused_each():
    kind = request_with()
    right = {"rows": 3, "kind": "f32", "other": "f32", "bend": 0.0}
    assert kind.gradient is not None
    assert kind.gradient.refusals(kind, right, "toy") == ()
    bend, other = kind.gradient.refusals(kind, right | {"bend": 1.0, "other": "f16"}, "toy")
    assert bend.sentence == "bend is 1.0, supported: 0.0 (a bend has no gradient). Pass 0.0."
    assert (other.code, other.value, other.limit) == ("toy.gradient.other", "f16", "f32")
