"""How long the reference engine takes for kernels on inputs of the family's own scenarios."""

import attrs
import numpy as np
import pytest

from kinfolk import dispatch
from kinfolk_runtime import bind
from kinfolk_runtime import compile as compile_plan

TURN = 520 * 1.5e-3 / 350
"""The aim for one wave's turn of the loop, in seconds: some 520 ops, at 1.5 ms for 350."""


@pytest.mark.benchmark(group="simulate")
@pytest.mark.parametrize("name", ["exact_page", "ragged"])
def test_simulate(benchmark, aim, composition, plan, name):
    """A launch of the decode kernel: short sequences, and the request's full lengths."""
    [scenario] = [each for each in composition.scenarios(plan.request) if each.name == name]
    artifact = attrs.evolve(compile_plan(plan), plan=dispatch(scenario.request, plan.arch))
    inputs = scenario.inputs()
    bound = bind(artifact, inputs)
    benchmark.pedantic(bound, rounds=3, warmup_rounds=1)
    launch, _ = artifact.plan.launches
    across, sequences, _ = artifact.plan.grid(launch, bound.tensors)
    turns = int(np.ceil(np.diff(inputs["cu_seqlens_k"]) / plan.request.page_size).sum())
    assert sequences == len(inputs["cu_seqlens_k"]) - 1
    aim(TURN * across * turns * (launch.block // composition.arch.wave_size))
