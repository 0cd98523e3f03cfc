"""A fast engine that stops where the reference engine finds nothing wrong is our defect, said so and never a hang."""

from __future__ import annotations

import numpy as np
import pytest

from kinfolk.errors import InternalError
from kinfolk.ir.ops import lanes, memory
from kinfolk.ir.types import I32
from kinfolk_runtime.simulator import Simulator
from kinfolk_runtime.simulator.fast.engine import FastEngine, Stopped

GRID = (4, 1, 1)


def sound(toy, declare):
    """A kernel without a fault: each workgroup stores to its own place."""

    def body(y):
        memory.store(memory.offset(y, lanes.block_id(axis=0) * toy.wave + lanes.lane_id()), lanes.lane_id())

    return toy.kernel(body, declare("y", I32, "write"))


@pytest.fixture
def stopping(monkeypatch):
    """Return what makes the fast engine stop at some workgroups of a grid, whatever they do."""
    run = FastEngine.run

    def stop_at(*wrong: int) -> None:
        def stopped(self, prepared, memory, values, grid, places, *more):
            found = run(self, prepared, memory, values, grid, places, *more)
            numbers = [number for number, place in enumerate(places) if place in wrong]
            return Stopped(numbers[0], 0, None) if numbers else found

        monkeypatch.setattr(FastEngine, "run", stopped)

    return stop_at


@pytest.mark.parametrize("sanitize", ["all", "none"])
@pytest.mark.parametrize("wrong, named", [((0,), 0), ((3,), 3), ((0, 3), 0), ((1, 2), 1)])
def test_a_workgroup_that_only_the_fast_engine_stops_is_named(any_toy, declare, stopping, sanitize, wrong, named):
    stopping(*wrong)
    simulator = Simulator(sanitize=sanitize)
    with pytest.raises(InternalError, match=rf"toy_kernel: the engines disagree: .* workgroup \({named}, 0, 0\), wave"):
        simulator.launch(sound(any_toy, declare), GRID, [np.zeros(4 * any_toy.wave, np.int32)])


def test_the_kernel_is_sound(any_toy, declare, stopping):
    """The control: nothing is stopped, nothing is said."""
    stopping()
    y = np.zeros(4 * any_toy.wave, np.int32)
    Simulator().launch(sound(any_toy, declare), GRID, [y])
    assert np.array_equal(y, np.tile(np.arange(any_toy.wave, dtype=np.int32), 4))
