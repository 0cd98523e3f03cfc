"""Fields take exactly what they say: near misses by type and by value, and whole messages."""

import math
import pickle

import attrs
import ml_dtypes
import numpy as np
import pytest

from kinfolk.fields import (
    ExactBool,
    ExactFloat,
    ExactInt,
    Exactly,
    ExactStr,
    FieldError,
    FieldTypeError,
    FieldValueError,
    OneOf,
    Optional,
    TupleOf,
    is_launch,
    launch_field,
)


@attrs.frozen
class Part:
    width: int = attrs.field(validator=ExactInt())


@attrs.frozen(kw_only=True)
class Problem:
    num_heads: int = attrs.field(default=16, validator=ExactInt())
    page_size: int = attrs.field(default=16, validator=ExactInt(minimum=16, maximum=64, step=16))
    causal: bool = attrs.field(default=True, validator=ExactBool())
    scale: float = attrs.field(default=1.0, validator=ExactFloat(minimum=0.0, exclusive_minimum=True))
    cap: float = attrs.field(default=0.0, validator=ExactFloat(maximum=1.0))
    dtype: str = attrs.field(default="bf16", validator=OneOf(("bf16", "f16")))
    pin: str | None = attrs.field(default=None, validator=Optional(ExactStr()))
    widths: tuple[int, ...] = attrs.field(default=(), validator=TupleOf(ExactInt()))
    part: Part = attrs.field(default=Part(1), validator=Exactly((Part,)))
    length: int = launch_field(default=1, validator=ExactInt(minimum=0))


class LateInt(int):
    """A subclass of int, which is not exactly an int."""


WRONG_TYPES = [
    ("num_heads", True),
    ("num_heads", 2.0),
    ("num_heads", np.int64(64)),
    ("num_heads", np.bool_(True)),
    ("num_heads", "64"),
    ("num_heads", None),
    ("num_heads", LateInt(64)),
    ("causal", 1),
    ("causal", "true"),
    ("causal", np.bool_(True)),
    ("scale", 1),
    ("scale", np.float64(1.0)),
    ("scale", ml_dtypes.bfloat16(1.0)),
    ("scale", True),
    ("dtype", None),
    ("dtype", np.str_("bf16")),
    ("pin", 3),
    ("widths", [1]),
    ("widths", (1, True)),
    ("part", 1),
    ("length", False),
]

WRONG_VALUES = [
    ("num_heads", 0),
    ("num_heads", -16),
    ("num_heads", 2**63),
    ("page_size", 0),
    ("page_size", 15),
    ("page_size", 17),
    ("page_size", 80),
    ("scale", 0.0),
    ("scale", -1.0),
    ("scale", math.inf),
    ("scale", math.nan),
    ("cap", 1.0000001),
    ("cap", -math.inf),
    ("dtype", "f32"),
    ("pin", ""),
    ("widths", (1, 0)),
    ("length", -1),
]

RIGHT_VALUES = [
    ("num_heads", 1),
    ("num_heads", 2**63 - 1),
    ("page_size", 16),
    ("page_size", 64),
    ("causal", False),
    ("scale", 5e-324),
    ("cap", 1.0),
    ("cap", -1e300),
    ("dtype", "f16"),
    ("pin", "a"),
    ("widths", (1, 2)),
    ("part", Part(3)),
    ("length", 0),
]


@pytest.mark.parametrize("field, value", WRONG_TYPES)
def test_a_wrong_type_is_a_type_error_that_says_which(field, value):
    with pytest.raises(TypeError) as caught:
        Problem(**{field: value})
    assert not isinstance(caught.value, ValueError)
    error = caught.value
    assert isinstance(error, FieldTypeError)
    assert (error.owner, error.field) == ("Problem", field)
    assert f"Problem.{field} takes " in str(error)
    assert f"got {error.value!r} of type {type(error.value).__name__}" in str(error)


@pytest.mark.parametrize("field, value", WRONG_VALUES)
def test_a_wrong_value_is_a_value_error_that_says_which(field, value):
    with pytest.raises(ValueError, match=rf"Problem\.{field} must be ") as caught:
        Problem(**{field: value})
    assert not isinstance(caught.value, TypeError)
    assert isinstance(caught.value, FieldValueError)
    assert caught.value.rule in str(caught.value)
    assert repr(caught.value.value) in str(caught.value)
    assert caught.value.remedy


@pytest.mark.parametrize("field, value", RIGHT_VALUES)
def test_what_lies_on_the_edge_is_kept_as_it_is(field, value):
    kept = getattr(Problem(**{field: value}), field)
    assert kept is value


def test_whole_messages():
    with pytest.raises(TypeError) as caught:
        Problem(num_heads=True)
    assert str(caught.value) == "Problem.num_heads takes a Python int, got True of type bool. Pass a Python int."
    with pytest.raises(ValueError, match="page_size") as caught:
        Problem(page_size=48 + 1)
    assert str(caught.value) == "Problem.page_size must be a multiple of 16, from 16 to 64, got 49. Pass 64."


def test_a_remedy_is_a_value_that_is_taken():
    """The hint of a range error, read back, must itself pass."""
    for wrong in (-5, 0, 1, 17, 63, 65, 10**9):
        with pytest.raises(FieldValueError) as caught:
            Problem(page_size=wrong)
        Problem(page_size=int(caught.value.remedy.removeprefix("Pass ").removesuffix(".")))


def test_a_field_error_survives_a_process_boundary():
    error = FieldTypeError("Problem", "num_heads", 2.0, "a Python int", "Pass 2.")
    twin = pickle.loads(pickle.dumps(error))
    assert (type(twin), str(twin), twin.value) == (FieldTypeError, str(error), 2.0)
    assert isinstance(twin, FieldError)


def test_one_of_does_not_mix_types():
    with pytest.raises(TypeError):
        OneOf((1, True))
    with pytest.raises(TypeError):
        OneOf((0, 1))(Problem(), attrs.fields(Problem).num_heads, True)


def test_launch_fields_are_marked():
    marked = [field.name for field in attrs.fields(Problem) if is_launch(field)]
    assert marked == ["length"]


class Unprintable:
    def __int__(self):
        raise RuntimeError("no int")

    def __repr__(self):
        raise RuntimeError("no words")


@pytest.mark.parametrize(
    "value, told",
    [(10**5000, "an int of 16610 bits"), (Unprintable(), "a Unprintable that cannot be printed")],
    ids=["endless", "unprintable"],
)
def test_a_value_that_cannot_be_printed_is_told(value, told):
    @attrs.frozen(kw_only=True)
    class Narrow:
        rows: int = attrs.field(validator=ExactInt())

    with pytest.raises(FieldError, match=told) as caught:
        Narrow(rows=value)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("value, remedy", [(2.0, "Pass 16, a Python int."), (2.5, "Pass a Python int.")])
def test_the_hint_of_a_type_error_is_taken_too(value, remedy):
    with pytest.raises(FieldTypeError) as caught:
        Problem(page_size=value)
    assert caught.value.remedy == remedy
    Problem(page_size=16)


def test_a_word_that_is_none_of_the_values_is_told_the_nearest_and_else_all():
    for value, told in (
        ("bfloat16", "Pass 'bf16'."),
        (np.dtype("float16"), "Pass 'f16'."),
        (np.float16, "Pass 'f16'."),
        ("x", "Pass bf16 or f16."),
    ):
        with pytest.raises((TypeError, ValueError)) as caught:
            Problem(dtype=value)
        assert str(caught.value).endswith(f". {told}")
