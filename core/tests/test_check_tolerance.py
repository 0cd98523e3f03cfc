"""Derived tolerances hold for what they are derived for, and the nearest fault exceeds them."""

import ml_dtypes
import numpy as np
import pytest

from kinfolk.check import Expected, Tolerance, numpy_dtype, unit_roundoff

TYPES = ["f64", "f32", "f16", "bf16", "f8E4M3FN", "f8E4M3FNUZ", "f8E5M2", "f8E5M2FNUZ"]


@pytest.mark.parametrize("name", TYPES)
def test_unit_roundoff_is_half_the_spacing_at_one(name):
    dtype = numpy_dtype(name)
    info = np.finfo(dtype) if name in ("f64", "f32", "f16") else ml_dtypes.finfo(dtype)
    assert unit_roundoff(name) == float(info.eps) / 2


def weighted_sum(weights, values, dropped=0):
    """Compute as a kernel would: weights rounded to bf16, products added in f32, the result rounded to bf16."""
    rounded = weights.astype(ml_dtypes.bfloat16).astype(np.float32)
    total = np.zeros(values.shape[1], np.float32)
    for weight, row in zip(rounded[dropped:], values[dropped:].astype(np.float32), strict=True):
        total = total + weight * row
    return total.astype(ml_dtypes.bfloat16).astype(np.float64)


@pytest.fixture(params=[1, 7, 300], ids=lambda terms: f"{terms}-terms")
def problem(request):
    rng = np.random.default_rng(request.param)
    values = rng.standard_normal((request.param, 64)).astype(ml_dtypes.bfloat16).astype(np.float64)
    weights = rng.random(request.param) + 0.5
    value = weights @ values
    tolerance = Tolerance.weighted_sum(
        value, magnitude=weights @ np.abs(values), terms=len(weights), weight_dtype="bf16", result_dtype="bf16"
    )
    return weights, values, value, tolerance


def test_a_weighted_sum_in_low_precision_keeps_its_tolerance(problem):
    weights, values, value, tolerance = problem
    margins = tolerance.margins(np.abs(weighted_sum(weights, values) - value))
    assert 0.0 < margins.max() <= 1.0


def test_a_weighted_sum_without_one_term_does_not(problem):
    """Negative control: 64 elements of a sum of up to 300 terms, one of which is left out."""
    weights, values, value, tolerance = problem
    assert tolerance.margins(np.abs(weighted_sum(weights, values, dropped=1) - value)).max() > 1.0


def test_an_error_of_the_weights_widens_the_tolerance(problem):
    weights, values, value, tolerance = problem
    wider = Tolerance.weighted_sum(
        value,
        magnitude=weights @ np.abs(values),
        terms=len(weights),
        weight_dtype="bf16",
        result_dtype="bf16",
        weight_error=1e-2,
    )
    assert (wider.bound > tolerance.bound).all()
    off = weighted_sum(weights * 1.01, values)
    assert wider.margins(np.abs(off - value)).max() <= 1.0


def test_a_gate_only_narrows():
    tolerance = Tolerance(np.array([1.0, 3.0])).at_most(np.array([2.0, 2.0]))
    assert tolerance.bound.tolist() == [1.0, 2.0]


def test_margins_at_the_edges():
    margins = Tolerance(np.array([0.0, 0.0, 2.0, 2.0])).margins(np.array([0.0, 1e-300, 2.0, np.inf]))
    assert margins.tolist() == [0.0, np.inf, 1.0, np.inf]


@pytest.mark.parametrize("bound", [-1e-9, np.nan, np.inf])
def test_a_tolerance_is_a_bound(bound):
    with pytest.raises(ValueError, match=r"finite and 0 or more everywhere, it is .* at \(0,\) and not so in 1 of 1"):
        Tolerance(np.array([bound]))


def test_expected_takes_one_tolerance_per_element():
    Expected(np.zeros((2, 3)), Tolerance.exact((2, 3)))
    with pytest.raises(ValueError, match=r"\(3,\)"):
        Expected(np.zeros((2, 3)), Tolerance.exact((3,)))
