"""Scenarios: what they build is arrays by name, the same on every call; anything else is the family's fault by name."""

from types import SimpleNamespace

import numpy as np
import pytest

from kinfolk.check import Scenario, SparseArray
from kinfolk.plugins.faults import HookFault

PART = SparseArray(shape=(2, 3), dtype=np.dtype(np.int32), held={1: np.zeros(3, np.int32)})


def scenario(build, sparse=frozenset()):
    about = SimpleNamespace(family="rows")
    return Scenario(name="ragged", about="a test", request=about, build=build, sparse=sparse)


def leaving(generator):
    raise SystemExit(0)


@pytest.mark.parametrize(
    "build, told",
    [
        (leaving, "raised SystemExit: 0"),
        (lambda generator: {}["absent"], "raised KeyError: 'absent'"),
        (lambda generator: None, "returned None, it returns arrays by name"),
        (lambda generator: {"x": 3}, "returned 3 for 'x', it returns arrays by name"),
        (lambda generator: {3: np.zeros(1)}, r"returned array.* for 3, it returns arrays by name"),
        (lambda generator: {"x": PART}, "returned a sparse array for x; declared as sparse: none"),
    ],
)
def test_a_build_that_gives_no_arrays_is_named(build, told):
    with pytest.raises(HookFault, match=f"family rows: Scenario.build of ragged {told}"):
        scenario(build).inputs()


def test_what_is_declared_as_sparse_is():
    assert scenario(lambda generator: {"x": PART}, frozenset("x")).inputs()["x"] is PART
    with pytest.raises(HookFault, match="returned a whole array for x; declared as sparse: x"):
        scenario(lambda generator: {"x": np.zeros((2, 3))}, frozenset("x")).inputs()


def test_the_same_inputs_on_every_call():
    """Negative control of the above, and the promise."""
    drawn = scenario(lambda generator: {"x": generator.standard_normal(4)})
    assert np.array_equal(drawn.inputs()["x"], drawn.inputs()["x"])
