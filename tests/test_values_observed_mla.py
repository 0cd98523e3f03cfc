"""What the analyses say a value may be, against what it is in a kernel of attention on the reference engine."""

from __future__ import annotations

import attrs
import numpy as np
import pytest

from kinfolk.analysis import Subject
from kinfolk.arch import Arch
from kinfolk.dispatch import dispatch
from kinfolk.ir import Kernel
from kinfolk.plugins.composition import compose
from kinfolk_runtime.binder import bind

pytestmark = [pytest.mark.simulate, pytest.mark.needs("mla", "gfx942", "gfx950")]

FIELDS = {"num_heads": 16, "num_seqs": 2, "total_q": 2, "max_seqlen_q": 1, "max_seqlen_k": 70, "absorbed_query": True}


@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
def test_every_number_of_a_run_is_in_its_set(arch, sibling):
    composition = compose("mla", arch)
    given = {**FIELDS, "candidate": "mla.decode"}
    request = composition.request_type(**given, **composition.request_type.cli_defaults(given))
    scenario = composition.scenarios(request)[0]
    plan = dispatch(attrs.evolve(scenario.request, candidate="mla.decode"), arch)
    decode = plan.launches[0].spec
    kernel = composition.emit(decode)
    subject = Subject(kernel=kernel, arch=composition.arch)
    simulator = sibling("observed_values", "runtime/tests").ObservedValues(subject.values, subject.values_by_wave)

    @attrs.frozen
    class Emitted:
        """A composition that hands out the kernel that was analysed."""

        arch: Arch
        kernel: Kernel

        def emit(self, spec):
            return self.kernel if spec == decode else composition.emit(spec)

    inputs = scenario.build(np.random.default_rng(0))
    bind(plan, inputs, executor=simulator, composition=Emitted(composition.arch, kernel))()
    assert simulator.outside == [] and simulator.observed > 1000
