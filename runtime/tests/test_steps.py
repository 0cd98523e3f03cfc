"""What is passed to the wrong step of dispatch, compile, call: a TypeError that says what to pass."""

from __future__ import annotations

from typing import ClassVar

import attrs
import ml_dtypes
import numpy as np
import pytest

import kinfolk_runtime
from kinfolk.errors import BindError
from kinfolk.fields import ExactInt
from kinfolk.request import Request
from kinfolk_runtime.tensors import tensor


@attrs.frozen(kw_only=True)
class RowsRequest(Request):
    family: ClassVar[str] = "rows"
    rows: int = attrs.field(validator=ExactInt())


@pytest.mark.parametrize(
    "step, passed, said",
    [
        ("compile", RowsRequest(rows=1), "compile takes a Plan, got a RowsRequest. Pass what dispatch returns"),
        ("compile", "rows", "compile takes a Plan, got a str"),
        (
            "call",
            RowsRequest(rows=1),
            "got a RowsRequest. Dispatch and compile it first: call(kinfolk_runtime.compile(",
        ),
        ("bind", RowsRequest(rows=1), "Dispatch and compile it first: bind(kinfolk_runtime.compile(kinfolk.dispatch("),
        ("bind", {}, "bind takes an Artifact or a Plan, got a dict. Pass what compile returns"),
        ("call", RowsRequest, "got RowsRequest. Pass what compile returns"),
    ],
)
def test_what_belongs_to_another_step_is_a_type_error_that_says_what_to_pass(step, passed, said):
    with pytest.raises(TypeError) as caught:
        getattr(kinfolk_runtime, step)(passed, *({} for _ in range(step != "compile")))
    assert said in str(caught.value)


@pytest.mark.parametrize(
    "found, wanted, views, converts",
    [
        (np.uint16, "bf16", True, "ml_dtypes.bfloat16"),
        (np.dtype("V2"), "bf16", True, "ml_dtypes.bfloat16"),
        (np.uint32, "i32", True, "numpy.int32"),
        (np.float16, "bf16", False, "ml_dtypes.bfloat16"),
        (ml_dtypes.bfloat16, "f16", False, "numpy.float16"),
        (np.float32, "bf16", False, "ml_dtypes.bfloat16"),
        (np.int64, "i32", False, "numpy.int32"),
        (np.float32, "i32", False, "numpy.int32"),
        (np.int32, "f32", False, "numpy.float32"),
        (ml_dtypes.float8_e4m3fn, "f8E5M2", False, "ml_dtypes.float8_e5m2"),
        (np.uint8, "f8E4M3FN", True, "ml_dtypes.float8_e4m3fn"),
    ],
)
def test_bits_are_kept_only_where_the_name_alone_can_differ(found, wanted, views, converts):
    array = np.zeros(4, found)
    with pytest.raises(BindError) as caught:
        tensor("x", array, wanted)
    assert (f".view({converts})" in str(caught.value)) == views
    assert (f".astype({converts})" in str(caught.value)) != views
    module, _, name = converts.partition(".")
    kind = getattr({"numpy": np, "ml_dtypes": ml_dtypes}[module], name)
    tensor("x", array.view(kind) if views else array.astype(kind), wanted)


def test_the_runtime_shows_what_it_is_for():
    shown = [name for name in dir(kinfolk_runtime) if not name.startswith("__")]
    assert shown == sorted(kinfolk_runtime.__all__)
