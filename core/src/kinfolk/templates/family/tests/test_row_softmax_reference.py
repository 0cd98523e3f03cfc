"""The reference against decimal arithmetic and numbers known by heart; its tolerance against one rounding, and two."""

from decimal import Decimal, localcontext

import numpy as np
import pytest

from kinfolk.check import compare, is_poison, numpy_dtype
from kinfolk_row_softmax.reference import row_softmax_findings, row_softmax_reference
from kinfolk_row_softmax.request import RowSoftmaxRequest
from kinfolk_row_softmax.scenarios import ROWS, row_softmax_scenarios


def reference(x, dtype="f32", scale=1.0):
    x = np.asarray(x)
    request = RowSoftmaxRequest(rows=x.shape[0], columns=x.shape[1], dtype=dtype, scale=scale)
    return request, row_softmax_reference(request, {"x": x.astype(numpy_dtype(dtype))})


def test_numbers_known_by_heart():
    _, expected = reference([[0.0, np.log(np.float64(3.0))], [5.0, 5.0], [-np.inf, 2.0]])
    assert expected["y"].value[1:].tolist() == [[0.5, 0.5], [0.0, 1.0]]
    assert expected["y"].value[0] == pytest.approx([0.25, 0.75], rel=1e-7)  # ln 3 is rounded to f32
    assert expected["lse"].value == pytest.approx([np.log(4.0), 5.0 + np.log(2.0), 2.0], rel=1e-7)


@pytest.mark.parametrize("scale", [1.0, 0.1, 7.0])
def test_against_decimal_arithmetic(scale):
    x = np.random.default_rng(3).normal(size=(2, 40)).astype(np.float32) * 9
    _, expected = reference(x, scale=scale)
    with localcontext() as context:
        context.prec = 50
        for row in range(2):
            powers = [(Decimal(float(np.float32(scale))) * Decimal(float(score))).exp() for score in x[row]]
            total = sum(powers)
            assert expected["y"].value[row] == pytest.approx([float(power / total) for power in powers], rel=1e-13)
            assert expected["lse"].value[row] == pytest.approx(float(total.ln()), rel=1e-13)


def test_a_row_without_a_score_is_exact():
    _, expected = reference([[-np.inf, -np.inf], [-np.inf, 0.0]])
    assert expected["y"].value.tolist() == [[0.0, 0.0], [0.0, 1.0]]
    assert expected["lse"].value.tolist() == [-np.inf, 0.0]
    assert expected["y"].tolerance.bound[0].tolist() == [0.0, 0.0]
    assert expected["lse"].tolerance.bound[0] == 0.0
    [finding] = compare("y", "f32", np.array([[0.0, 1e-30], [0.0, 1.0]], np.float32), expected["y"]).findings
    assert finding.code == "inexact"


@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16"])
def test_rounding_passes_and_the_next_number_but_one_does_not(dtype):
    """The tolerance is near one rounding of the output's type; in f32 the arithmetic before it counts."""
    x = np.random.default_rng(5).normal(size=(3, 50))
    _, expected = reference(x, dtype)
    storage = numpy_dtype(dtype)
    rounded = expected["y"].value.astype(storage)
    assert compare("y", dtype, rounded, expected["y"]).passed
    bits = rounded.view(f"u{storage.itemsize}")
    off = (bits + (200 if dtype == "f32" else 2)).view(storage)
    assert not compare("y", dtype, off, expected["y"]).passed
    assert expected["y"].tolerance.bound.max() < 2e-2


def test_rows_that_do_not_sum_to_one_are_found():
    request, expected = reference(np.random.default_rng(6).normal(size=(4, 30)))
    y, lse = expected["y"].value.astype(np.float32), expected["lse"].value.astype(np.float32)
    assert list(row_softmax_findings(request, {"y": y, "lse": lse})) == []
    y[2] *= 1.01
    [finding] = row_softmax_findings(request, {"y": y, "lse": lse})
    assert (finding.code, finding.output) == ("sum", "y")
    assert "1 of 4 rows do not sum to 1, the first is 2" in finding.message


@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16"])
def test_scenarios_are_the_same_on_every_call_and_within_the_contract(dtype):
    request = RowSoftmaxRequest(rows=1000, columns=777, dtype=dtype, scale=0.5)
    for scenario in row_softmax_scenarios(request):
        x, again = scenario.inputs()["x"], scenario.inputs()["x"]
        assert x.shape == (scenario.request.rows, scenario.request.columns)
        assert all(np.array_equal(x[row], again[row]) for row in range(scenario.request.rows))
        assert scenario.request.rows <= ROWS
        assert scenario.request.selection_key() == request.selection_key()
        for row in range(scenario.request.rows):
            wide = x[row].astype(np.float64)
            assert wide.size == scenario.request.columns and not (np.isnan(wide) | np.isposinf(wide)).any()
        if "x" not in scenario.sparse:
            assert is_poison(dtype, x.base[:, x.shape[1] :]).all()
