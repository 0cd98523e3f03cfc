"""Arguments that follow from what a kernel declares: each kind, and an integer that nobody gave."""

import pytest

from kinfolk.arguments import named_arguments
from kinfolk.errors import InternalError
from kinfolk.expr import const, field
from kinfolk.ir.types import F32, I32, I64, PointerType
from kinfolk.parameters import Parameter
from kinfolk.plan import Argument, FloatField

PARAMETERS = (
    Parameter(name="q", type=PointerType(F32), alignment=4),
    Parameter(name="sink", type=PointerType(F32), alignment=4),
    Parameter(name="scale", type=F32),
    Parameter(name="rows", type=I32),
    Parameter(name="pitch", type=I64),
)
INTEGERS = {"pitch": const(7), "rows": field("num_rows"), "unused": const(1)}


def test_each_kind_is_passed_in_the_order_of_the_parameters():
    assert named_arguments(PARAMETERS, INTEGERS, {"sink": "q"}) == (
        Argument("q", "pointer", "q"),
        Argument("sink", "pointer", "q"),
        Argument("scale", "f32", FloatField("scale")),
        Argument("rows", "i32", field("num_rows")),
        Argument("pitch", "i64", const(7)),
    )


def test_an_integer_that_nobody_gave_is_named():
    with pytest.raises(InternalError, match="parameter rows is an i32, and integers are given for pitch alone"):
        named_arguments(PARAMETERS, {"pitch": const(7)})
