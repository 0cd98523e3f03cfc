"""The collector of cycles has its own thresholds back, whatever happens meanwhile."""

import gc

import pytest

from kinfolk_runtime.mutation.collecting import SELDOM, collected_seldom


def test_thresholds_are_seldom_inside_and_as_they_were_outside():
    before = gc.get_threshold()
    assert before != SELDOM
    with collected_seldom():
        assert gc.get_threshold() == SELDOM and gc.isenabled()
    assert gc.get_threshold() == before


def test_what_is_raised_inside_leaves_them_as_they_were():
    before = gc.get_threshold()
    with pytest.raises(ZeroDivisionError), collected_seldom():
        raise ZeroDivisionError
    assert gc.get_threshold() == before
