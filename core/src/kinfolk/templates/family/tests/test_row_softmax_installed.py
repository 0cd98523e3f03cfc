"""The family as kinfolk finds it where it is installed, on every arch that is installed beside it."""

import attrs
import pytest

import kinfolk
from kinfolk.errors import NoCandidate
from kinfolk.plugins.loading import usable
from kinfolk.testing import FamilyConformance
from kinfolk_row_softmax.request import RowSoftmaxRequest
from kinfolk_runtime.verify import verify

ARCHS = usable("arch")
REQUEST = RowSoftmaxRequest(rows=3, columns=777, dtype="f32", scale=0.7)


class TestConformance(FamilyConformance):
    """What every family must hold, on every arch that is installed; docs/conformance.md says what each check proves."""

    family = "row_softmax"


def test_there_is_an_arch_to_run_on():
    assert ARCHS, "install one, such as kinfolk-gfx942, or all of kinfolk"


@pytest.mark.parametrize("arch", ARCHS)
def test_dispatch_gives_a_plan_or_every_reason(arch):
    plan = kinfolk.dispatch(REQUEST, arch)
    assert plan.candidate == "row_softmax.one_row_each"
    assert plan.grid(plan.launches[0]) == (3, 1, 1)
    assert "kinfolk-row-softmax" in plan.versions
    with pytest.raises(NoCandidate) as caught:
        kinfolk.dispatch(attrs.evolve(REQUEST, dtype="f64"), arch)
    assert [refusal.code for refusal in caught.value.refusals] == ["row_softmax.dtype"]


@pytest.mark.compile
@pytest.mark.simulate
@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16"])
@pytest.mark.parametrize("arch", ARCHS)
def test_compiled_kernels_pass_the_gate_and_every_scenario(arch, dtype):
    report = verify(attrs.evolve(REQUEST, dtype=dtype), arch)
    assert report.status == "pass", report.to_dict()
    assert len(report.scenarios) >= 10
    assert {output.name for scenario in report.scenarios for output in scenario.outputs} == {"y", "lse"}
    [kernel] = report.kernels
    assert (kernel.arch, kernel.scratch_bytes, kernel.scratch_ops) == (arch, 0, 0)
