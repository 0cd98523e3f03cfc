"""One kernel in both engines of the simulator: what they leave is the same, or they fail alike."""

from __future__ import annotations

import numpy as np

from kinfolk.errors import SimulationError
from kinfolk_runtime.simulator import Simulator


def run_both(kernel, grid, make_arguments, seed: int = 0, threads: int | None = None, sanitize="all"):
    """Run a kernel in both engines; return what each leaves in its arrays, and the fast simulator."""
    left = []
    fast = Simulator(engine="fast", threads=threads, sanitize=sanitize)
    for simulator in (fast, Simulator(engine="reference", sanitize=sanitize)):
        arguments = make_arguments()
        try:
            simulator.launch(kernel, grid, arguments, seed)
            found = None
        except SimulationError as error:
            found = error
        left.append((arguments, found))
    (got, got_fault), (expected, fault) = left
    assert (got_fault is None) == (fault is None), (got_fault, fault)
    if fault is not None:
        assert str(got_fault) == str(fault)
        assert vars(got_fault) == vars(fault)
    for a, b in zip(got, expected, strict=True):
        if isinstance(a, np.ndarray):
            assert a.tobytes() == b.tobytes()
    return fault, fast
