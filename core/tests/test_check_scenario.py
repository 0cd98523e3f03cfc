"""Scenarios: what they build is arrays by name, the same on every call; anything else is the family's fault by name."""

from types import SimpleNamespace

import numpy as np
import pytest

from kinfolk.check import Scenario
from kinfolk.plugins.faults import HookFault


def scenario(build):
    return Scenario(name="ragged", about="a test", request=SimpleNamespace(family="rows"), build=build)


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
    ],
)
def test_a_build_that_gives_no_arrays_is_named(build, told):
    with pytest.raises(HookFault, match=f"family rows: Scenario.build of ragged {told}"):
        scenario(build).inputs()


def test_the_same_inputs_on_every_call():
    """Negative control of the above, and the promise."""
    drawn = scenario(lambda generator: {"x": generator.standard_normal(4)})
    assert np.array_equal(drawn.inputs()["x"], drawn.inputs()["x"])
