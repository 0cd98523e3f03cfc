"""exp2 and log2 as the engines compute them, against numpy in f64; the bounds are measured with little to spare."""

import numpy as np
import pytest

from kinfolk.ir.numpy_lanes import NumpyAlgebra, NumpyLane
from kinfolk.ir.ops import CORE_OPS
from kinfolk.ir.types import F32

EXP2_RELATIVE = 2.6e-7
LOG2_ABSOLUTE, LOG2_ULP = 1.2e-7, 2.0


def run(name, x):
    x = np.asarray(x, np.float32)
    with np.errstate(all="ignore"):
        return CORE_OPS[name].meaning.body(NumpyAlgebra.of_lanes(x.size), NumpyLane(F32, x)).data


def inputs(low, high, count=400_000):
    return np.random.default_rng(0).uniform(low, high, count).astype(np.float32)


@pytest.mark.parametrize("low, high", [(-126, 128), (-1, 1), (-1e-3, 1e-3), (127, 128), (-126, -125), (-20, 0)])
def test_exp2_is_within_its_bound(low, high):
    x = inputs(low, high)
    x = x[(x >= -126) & (x < 128)]
    error = np.abs(run("core.exp2", x) / np.exp2(x.astype(np.float64)) - 1)
    assert error.max() <= EXP2_RELATIVE


def test_the_bound_of_exp2_sees_a_missing_term():
    """Negative control: without its last term the same polynomial breaks the bound."""
    f = inputs(-0.5, 0.5).astype(np.float64)
    terms = [np.log(2.0) ** n / np.prod(np.arange(1, n + 1, dtype=np.float64)) for n in range(6)]
    short = sum(c * f**n for n, c in enumerate(terms))
    assert np.abs(short / np.exp2(f) - 1).max() > 4 * EXP2_RELATIVE


def test_exp2_of_whole_numbers_is_exact():
    whole = np.arange(-126, 128, dtype=np.float32)
    assert (run("core.exp2", whole) == np.exp2(whole.astype(np.float64))).all()


def test_exp2_at_its_ends():
    """Below 2^-126 the result is 0, from 128 on infinite; the neighbours on the other side are not."""
    low, high = np.float32(-126), np.float32(128)
    found = run("core.exp2", [low, np.nextafter(low, np.float32(-200)), -127, -1e30, -np.inf])
    assert found.tolist() == [2.0**-126, 0, 0, 0, 0]
    assert not np.signbit(found).any()
    below = np.nextafter(high, np.float32(0))
    found = run("core.exp2", [below, high, 1e30, np.inf])
    assert np.isfinite(found[0]) and found[0] > 3.4e38 and np.isposinf(found[1:]).all()
    assert np.isnan(run("core.exp2", [np.nan])).all()
    assert run("core.exp2", [0.0, -0.0, 1e-45]).tolist() == [1, 1, 1]


def test_exp2_never_falls_by_more_than_its_error():
    x = np.linspace(-20, 20, 200_001).astype(np.float32)
    found = run("core.exp2", x).astype(np.float64)
    assert (found[1:] >= found[:-1] * (1 - 2 * EXP2_RELATIVE)).all()


def log2_error(x):
    """Errors in units of the larger of the absolute bound and the ulps allowed of the true value."""
    true = np.log2(x.astype(np.float64))
    ulp = np.spacing(np.abs(true).astype(np.float32)).astype(np.float64)
    return np.abs(run("core.log2", x) - true) / np.maximum(LOG2_ABSOLUTE, LOG2_ULP * ulp)


def test_log2_is_within_its_bound_over_all_exponents():
    bits = np.random.default_rng(0).integers(0x00800000, 0x7F800000, 400_000, np.int64).astype(np.uint32)
    assert log2_error(bits.view(np.float32)).max() <= 1


@pytest.mark.parametrize("width", (0.5, 1e-2, 1e-4, 1e-6))
def test_log2_near_one(width):
    x = inputs(1 - width, 1 + width)
    assert log2_error(x).max() <= 1
    near = x[(x != 1) & (np.abs(x - 1) < 1e-3)].astype(np.float64)
    if near.size:
        relative = np.abs(run("core.log2", near.astype(np.float32)) / np.log2(near) - 1)
        assert relative.max() <= 3e-7, "near one the result keeps its relative accuracy"


def test_the_bound_of_log2_sees_a_missing_term():
    """Negative control: the series without its last two terms."""
    mantissa = inputs(0.7072, 1.4142).astype(np.float64)
    s = (mantissa - 1) / (mantissa + 1)
    short = 2 / np.log(2) * sum(s**n / n for n in (1, 3, 5))
    true = np.log2(mantissa)
    ulp = np.spacing(np.abs(true).astype(np.float32)).astype(np.float64)
    assert (np.abs(short - true) / np.maximum(LOG2_ABSOLUTE, LOG2_ULP * ulp)).max() > 1


def test_log2_of_powers_of_two_is_exact():
    whole = np.arange(-126, 128)
    assert run("core.log2", np.exp2(whole.astype(np.float64))).tolist() == whole.tolist()


def test_log2_of_zero_denormals_negatives_and_infinity():
    smallest = np.float32(2.0**-126)
    zeros = [0.0, -0.0, 1e-45, -1e-45, np.nextafter(smallest, np.float32(0)), -np.nextafter(smallest, np.float32(0))]
    assert np.isneginf(run("core.log2", zeros)).all()
    assert run("core.log2", [smallest]).tolist() == [-126]
    assert np.isnan(run("core.log2", [-smallest, -1.0, -3e38, -np.inf, np.nan])).all()
    assert np.isposinf(run("core.log2", [np.inf])).all()


def test_a_softmax_in_base_two_loses_nothing_to_the_pair():
    """log2(exp2(x)) is x to the accuracy of x plus one rounding of the power."""
    x = inputs(-100, 100)
    assert np.abs(run("core.log2", run("core.exp2", x)) - x).max() <= 2e-5
