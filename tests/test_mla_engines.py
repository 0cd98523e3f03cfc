"""MLA decode in both engines of the simulator: every output of every scenario is the same, bit for bit."""

import attrs
import numpy as np
import pytest

from kinfolk import compose, dispatch
from kinfolk.check import poison
from kinfolk_runtime import bind
from kinfolk_runtime import compile as compile_plan
from kinfolk_runtime.simulator import Simulator

pytestmark = pytest.mark.needs("mla")

FIELDS = {
    "num_heads": 16,
    "num_seqs": 3,
    "total_q": 3,
    "max_seqlen_q": 1,
    "max_seqlen_k": 70,
    "absorbed_query": True,
}


@pytest.mark.simulate
@pytest.mark.parametrize("arch, num_heads", [("gfx942", 16), ("gfx942", 128), ("gfx950", 16), ("gfx950", 64)])
def test_the_engines_agree_on_every_scenario(arch, num_heads):
    composition = compose("mla", arch)
    given = {**FIELDS, "num_heads": num_heads}
    request = composition.request_type(**given, **composition.request_type.cli_defaults(given))
    artifact = compile_plan(dispatch(request, arch))
    scenarios = composition.scenarios(request)
    assert scenarios
    for seed in (0, 1):
        fast, reference = Simulator(seed, engine="fast"), Simulator(seed, engine="reference")
        for scenario in scenarios[seed::2]:
            made = attrs.evolve(artifact, plan=dispatch(scenario.request, arch))
            left = []
            for simulator in (fast, reference):
                outputs = bind(made, scenario.inputs(), executor=simulator)()
                left.append({name: np.asarray(array) for name, array in outputs.items()})
            assert left[0].keys() == left[1].keys() != set()
            for name, array in left[0].items():
                assert array.tobytes() == left[1][name].tobytes(), (scenario.name, name)
        assert fast.notes == ()


def test_the_comparison_sees_one_bit():
    """Negative control."""
    array = poison("f32", [4])
    other = array.copy()
    other.view(np.uint32)[2] ^= 1
    assert array.tobytes() != other.tobytes()
