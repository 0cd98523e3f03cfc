"""Products in one thread, by what numpy's own library says of itself, found in its wheel's folder."""

import ctypes
import glob
import os

import numpy as np
import pytest

from kinfolk_runtime import products
from kinfolk_runtime.products import one_thread


@pytest.fixture
def library():
    """Yield numpy's OpenBLAS with two threads, and put back how many it had."""
    [path] = glob.glob(os.path.join(os.path.dirname(np.__file__), "..", "numpy.libs", "*openblas*"))
    found = ctypes.CDLL(path)
    before = found.scipy_openblas_get_num_threads64_()
    found.scipy_openblas_set_num_threads64_(2)
    yield found
    found.scipy_openblas_set_num_threads64_(before)


def test_there_is_one_thread_inside_and_as_many_as_before_outside(library):
    assert library.scipy_openblas_get_num_threads64_() == 2
    with one_thread():
        assert library.scipy_openblas_get_num_threads64_() == 1
        with one_thread():
            pass
        assert library.scipy_openblas_get_num_threads64_() == 1
    assert library.scipy_openblas_get_num_threads64_() == 2


def test_blocks_of_two_threads_that_overlap_leave_as_many_as_before(library):
    """The first one entered is the first one left, as no one thread could."""
    first, second = one_thread(), one_thread()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert library.scipy_openblas_get_num_threads64_() == 1, "the second one is not left yet"
    second.__exit__(None, None, None)
    assert library.scipy_openblas_get_num_threads64_() == 2


def test_what_is_raised_inside_leaves_as_many_as_before(library):
    with pytest.raises(ZeroDivisionError), one_thread():
        raise ZeroDivisionError
    assert library.scipy_openblas_get_num_threads64_() == 2


def test_another_library_is_left_as_it_is(library, monkeypatch):
    """Control: the number does not go by itself."""
    monkeypatch.setattr(products, "_LINKED", ("no module",))
    products._threads.cache_clear()
    with one_thread():
        assert library.scipy_openblas_get_num_threads64_() == 2
    products._threads.cache_clear()
