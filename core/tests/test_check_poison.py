"""Poison is told from everything a kernel could write, by its bits."""

import ml_dtypes
import numpy as np
import pytest

from kinfolk.check import is_poison, numpy_dtype, poison
from kinfolk.errors import InternalError
from kinfolk.ir.types import SCALARS

FLOATS = [name for name, scalar in SCALARS.items() if scalar.kind == "float"]
WIDE_FLOATS = ["f16", "bf16", "f32", "f64"]


@pytest.mark.parametrize("name", SCALARS)
def test_every_scalar_has_storage_of_its_size_and_a_pattern(name):
    array = poison(name, (3, 5))
    assert array.dtype.itemsize == SCALARS[name].bytes
    assert is_poison(name, array).all()
    array[1, 2] = 0
    assert np.argwhere(~is_poison(name, array)).tolist() == [[1, 2]]


@pytest.mark.parametrize("name", FLOATS)
def test_poisoned_floats_are_nan(name):
    assert np.isnan(poison(name, (4,)).astype(np.float64)).all()


@pytest.mark.parametrize("name", WIDE_FLOATS)
def test_a_nan_that_arithmetic_makes_is_not_poison(name):
    made = np.array([np.nan, -np.nan, np.inf], numpy_dtype(name))
    with np.errstate(invalid="ignore"):
        computed = np.append(made, made[2:] - made[2:])
    assert not is_poison(name, computed).any()


def test_poison_is_found_through_strides():
    array = poison("bf16", (4, 6))[:, ::2]
    array[2] = ml_dtypes.bfloat16(1.0)
    assert is_poison("bf16", array).sum(axis=1).tolist() == [3, 3, 0, 3]


def test_an_empty_array_keeps_the_strides_of_its_shape():
    assert poison("bf16", (0, 16, 512)).strides == np.empty((0, 16, 512), np.uint16).strides


def test_an_unknown_scalar_is_named():
    with pytest.raises(InternalError, match="'bf17'"):
        poison("bf17", (1,))
