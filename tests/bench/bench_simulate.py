"""How long the reference engine takes for kernels on inputs of the family's own scenarios."""

import attrs
import pytest

from kinfolk import dispatch
from kinfolk_runtime import bind
from kinfolk_runtime import compile as compile_plan


@pytest.mark.benchmark(group="simulate")
@pytest.mark.parametrize("name", ["exact_page", "ragged"])
def test_simulate(benchmark, composition, plan, name):
    """A launch of the decode kernel: short sequences, and the request's full lengths."""
    [scenario] = [each for each in composition.scenarios(plan.request) if each.name == name]
    artifact = attrs.evolve(compile_plan(plan), plan=dispatch(scenario.request, plan.arch))
    bound = bind(artifact, scenario.inputs())
    benchmark.pedantic(bound, rounds=3, warmup_rounds=1)
