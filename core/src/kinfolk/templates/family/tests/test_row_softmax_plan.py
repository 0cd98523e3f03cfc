"""What row softmax takes and refuses, and what it launches."""

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kinfolk.expr import TensorGeometry
from kinfolk.fields import FieldError
from kinfolk_row_softmax.candidate import CAPABILITY, ONE_ROW_EACH
from kinfolk_row_softmax.request import RowSoftmaxRequest
from kinfolk_row_softmax.spec import DTYPES, RowSoftmaxSpec

FACTS = {"max_grid_x": 1000, "max_view_bytes": 4096}
GOOD = {"rows": 3, "columns": 700, "dtype": "f32", "scale": 1.0}


@attrs.frozen
class Machine:
    """As much of an arch as limits and plans ask for."""

    wave_size: int = 32
    facts: dict = attrs.field(factory=lambda: dict(FACTS))


def request(**changes):
    return RowSoftmaxRequest(**{**GOOD, **changes})


def refusals(**changes):
    return ONE_ROW_EACH.unmet(CAPABILITY, request(**changes), Machine())


@pytest.mark.parametrize(
    ("field", "value", "error"),
    [
        ("rows", -1, ValueError),
        ("rows", True, TypeError),
        ("columns", 0, ValueError),
        ("columns", 2.0, TypeError),
        ("dtype", "float32", ValueError),
        ("scale", 1, TypeError),
        ("scale", 0.0, ValueError),
        ("scale", float("inf"), ValueError),
        ("scale", -1.0, ValueError),
        ("candidate", "", ValueError),
    ],
)
def test_a_field_takes_exactly_what_it_says(field, value, error):
    with pytest.raises(error, match=rf"RowSoftmaxRequest\.{field}") as caught:
        request(**{field: value})
    assert isinstance(caught.value, FieldError)


@pytest.mark.parametrize(
    ("field", "last_good", "first_bad", "limit"),
    [
        ("rows", 1000, 1001, "at most 1000 (max_grid_x)"),
        ("columns", 1023, 1024, "at most 1023 (min(max_view_bytes // 4 - 1, 536870910))"),
        ("dtype", "f16", "f64", "f32, bf16 or f16"),
    ],
)
def test_each_limit_holds_at_its_edge_and_says_so(field, last_good, first_bad, limit):
    assert refusals(**{field: last_good}) == ()
    [refusal] = refusals(**{field: first_bad})
    assert (refusal.field, refusal.value, refusal.limit) == (field, first_bad, limit)
    assert refusal.code == f"row_softmax.{field}"
    assert refusal.remedy in str(refusal)


def test_every_limit_is_told_at_once():
    assert [refusal.field for refusal in refusals(rows=2000, columns=2000, dtype="f64")] == ["dtype", "rows", "columns"]


@settings(deadline=None)
@given(rows=st.integers(0, 1000), columns=st.integers(1, 1023), dtype=st.sampled_from(DTYPES))
def test_every_admitted_request_maps_into_the_spec_space(rows, columns, dtype):
    space = {spec.identity() for spec in ONE_ROW_EACH.specs(Machine(), "llvm22")}
    asked = request(rows=rows, columns=columns, dtype=dtype)
    assert ONE_ROW_EACH.unmet(CAPABILITY, asked, Machine()) == ()
    assert {launch.spec.identity() for launch in ONE_ROW_EACH.plan(asked, Machine()).launches} <= space


def test_the_spec_space_is_one_per_type():
    specs = list(ONE_ROW_EACH.specs(Machine(), "llvm22"))
    assert [spec.dtype for spec in specs] == list(DTYPES)
    assert len({spec.symbol() for spec in specs}) == len(DTYPES)


@pytest.mark.parametrize("rows", [0, 1, 7])
def test_a_workgroup_takes_each_row(rows):
    plan = ONE_ROW_EACH.plan(request(rows=rows), Machine())
    [launch] = plan.launches
    assert plan.grid(launch) == (rows, 1, 1)
    assert launch.block == 4 * 32
    tensors = {"x": TensorGeometry((rows, 700), (900, 1)), "y": TensorGeometry((rows, 700), (700, 1))}
    passed = {argument.name: argument.value for argument in plan.arguments(launch, tensors)}
    assert passed == {"x": "x", "y": "y", "lse": "lse", "scale": 1.0, "columns": 700, "row_stride": 900}


def test_launch_values_are_no_part_of_the_selection():
    assert request(rows=1).selection_key() == request(rows=9, columns=5, scale=2.0).selection_key()
    assert request(dtype="bf16").selection_key() != request().selection_key()


def test_the_command_line_fills_in_type_and_scale():
    assert RowSoftmaxRequest.cli_defaults({"rows": 1}) == {"dtype": "f32", "scale": 1.0}
    assert RowSoftmaxRequest.cli_defaults({"dtype": "f16"}) == {"scale": 1.0}


def test_a_spec_takes_only_what_a_kernel_can_be_built_for():
    with pytest.raises(ValueError, match=r"RowSoftmaxSpec\.dtype"):
        RowSoftmaxSpec(dtype="f64", waves=4)
    with pytest.raises(ValueError, match=r"RowSoftmaxSpec\.waves"):
        RowSoftmaxSpec(dtype="f32", waves=9)
