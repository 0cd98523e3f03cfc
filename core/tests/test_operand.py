"""What tensors state of a request: worked out by hand for each, and never in place of what is given."""

from typing import ClassVar

import attrs
import pytest

from kinfolk.expr import ceil_div, eq, field, not_
from kinfolk.fields import ExactBool, ExactInt, ExactStr
from kinfolk.operand import Operand, forms_of, inputs_of, outputs_of, stated_fields
from kinfolk.request import Request

ROWS, WIDTH, PAIR = field("rows"), field("width"), field("left") + field("right")
OPERANDS = (
    Operand(name="x", dtype=field("dtype"), shape=(ROWS, PAIR), states={"flat": True, "cells": ROWS * PAIR}),
    Operand(name="x", dtype=field("dtype"), shape=(ROWS, 2, PAIR), states={"flat": False}),
    Operand(name="first", dtype="f32", shape=(field("left") - 1,)),
    Operand(name="ends", dtype="i32", shape=(ROWS + 1,)),
    Operand(name="pages", dtype="i32", shape=(ROWS, ceil_div(WIDTH, 16))),
    Operand(name="y", dtype=field("dtype"), shape=(ROWS, PAIR), output=True, when=field("flat")),
    Operand(name="y", dtype=field("dtype"), shape=(ROWS, 2, PAIR), output=True, when=not_(field("flat"))),
    Operand(name="z", dtype="f32", shape=(ROWS,), output=True, when=eq(field("dtype"), "bf16")),
)


@attrs.frozen
class Shaped:
    shape: tuple[int, ...]
    dtype: str = "bf16"


def test_fields_are_read_off_extents_types_and_what_is_passed():
    tensors = {"x": Shaped((5, 48)), "first": Shaped((15,), "f32"), "ends": Shaped((6,), "i32")}
    assert stated_fields(OPERANDS, tensors, {}) == {
        "dtype": "bf16",
        "rows": 5,
        "flat": True,
        "left": 16,
        "right": 32,
        "cells": 5 * 48,
    }


def test_the_number_of_axes_tells_forms_apart():
    assert stated_fields(OPERANDS, {"x": Shaped((5, 48))}, {})["flat"] is True
    assert stated_fields(OPERANDS, {"x": Shaped((5, 2, 48))}, {})["flat"] is False
    with pytest.raises(ValueError, match=r"x has shape \(5,\), \(rows, left \+ right\) or \(rows, 2, left \+ right\)"):
        forms_of(OPERANDS, "x", Shaped((5,)))


def test_a_condition_tells_forms_with_as_many_axes_apart():
    """Where what it asks for is known from elsewhere, in whatever order tensors come; before that nothing is stated."""
    rows = Operand(name="k", dtype="f32", shape=(ROWS, WIDTH), when=field("flat"))
    pages = Operand(name="k", dtype="f32", shape=(field("left"), field("right")), when=not_(field("flat")))
    keys = {"k": Shaped((3, 4), "f32")}
    operands = (rows, pages, *OPERANDS)
    assert stated_fields(operands, keys, {}) == {}
    flat = stated_fields(operands, keys | {"x": Shaped((3, 48))}, {})
    assert flat["width"] == 4 and "left" not in flat
    deep = stated_fields(operands, keys | {"x": Shaped((5, 2, 7))}, {})
    assert (deep["left"], deep["right"], deep["rows"]) == (3, 4, 5) and "width" not in deep


def test_what_does_not_follow_is_left_out():
    """A sum of two that are unknown, and a quotient, state nothing; one of the two given, the sum states the other."""
    tensors = {"x": Shaped((5, 48)), "pages": Shaped((5, 3), "i32")}
    assert stated_fields(OPERANDS, tensors, {}).keys() == {"dtype", "rows", "flat"}
    assert stated_fields(OPERANDS, tensors, {"right": 8})["left"] == 40


def test_what_is_given_stands():
    assert stated_fields(OPERANDS, {"x": Shaped((5, 48))}, {"rows": 7, "dtype": "f16", "flat": False}) == {
        "rows": 7,
        "dtype": "f16",
        "flat": False,
    }


def test_outputs_are_those_whose_condition_holds():
    fields = {"rows": 5, "left": 16, "right": 32, "dtype": "bf16", "flat": True}
    assert inputs_of(OPERANDS) == ("x", "first", "ends", "pages")
    assert [(each.name, each.extents(fields), each.element(fields)) for each in outputs_of(OPERANDS, fields)] == [
        ("y", (5, 48), "bf16"),
        ("z", (5,), "f32"),
    ]
    [output] = outputs_of(OPERANDS, fields | {"flat": False, "dtype": "f16"})
    assert output.extents(fields) == (5, 2, 48)


def test_extents_are_arithmetic():
    with pytest.raises(TypeError, match="arithmetic of fields and numbers"):
        Operand(name="x", dtype="f32", shape=(eq(ROWS, 1),)).extents({"rows": 1})


def declare(*operands: Operand) -> type[Request]:
    @attrs.frozen(kw_only=True)
    class Declared(Request):
        family: ClassVar[str] = "declared"
        operands: ClassVar[tuple[Operand, ...]] = ()
        rows: int = attrs.field(validator=ExactInt())
        dtype: str = attrs.field(validator=ExactStr())
        flat: bool = attrs.field(validator=ExactBool())

    @attrs.frozen(kw_only=True)
    class Kind(Declared):
        pass

    Kind.operands = operands
    Kind.__attrs_init_subclass__()
    return Kind


def test_a_request_whose_operands_are_wrong_is_no_class():
    assert declare(Operand(name="x", dtype=field("dtype"), shape=(ROWS,), states={"flat": True}))
    with pytest.raises(TypeError, match="no field width, as operand x says"):
        declare(Operand(name="x", dtype="f32", shape=(ROWS, WIDTH)))
    with pytest.raises(TypeError, match="no field depth, as operand x says"):
        declare(Operand(name="x", dtype="f32", shape=(ROWS,), states={"depth": 1}))
    with pytest.raises(TypeError, match="operand x is there by rows, which extents state"):
        declare(Operand(name="x", dtype="f32", shape=(ROWS,), when=ROWS > 1))
    for conditions in ((True, True), (True, field("flat")), (field("flat"), field("flat"))):
        with pytest.raises(TypeError, match="forms of x have as many axes, and no two conditions"):
            declare(*(Operand(name="x", dtype="f32", shape=(ROWS,), when=when) for when in conditions))
    assert declare(
        *(Operand(name="x", dtype="f32", shape=(ROWS,), when=when) for when in (field("flat"), not_(field("flat"))))
    )
