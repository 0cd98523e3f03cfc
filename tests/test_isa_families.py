"""Every candidate of every installed family: its machine code gives the bits of its IR, and both meet the reference.

The oracles are the simulator, which knows nothing of machine code, and each family's fp64 reference.
"""

from __future__ import annotations

import importlib.metadata
from functools import cache
from typing import Any

import pytest
from built_once import expected_of, simulator
from isa_edits import edited, instructions_that_ran, other_store

from kinfolk.check import Scenario, compare
from kinfolk.testing.subject import Subject
from kinfolk_runtime.artifact import Artifact
from kinfolk_runtime.binder import bind
from kinfolk_runtime.conformance.runs import artifact_of
from kinfolk_runtime.conformance.small import compared_kernels, smallest_requests
from kinfolk_runtime.isa import MachineExecutor
from kinfolk_runtime.verify import Fitting, Runner, run_scenario

pytestmark = [pytest.mark.compile, pytest.mark.simulate, pytest.mark.needs("gfx942", "gfx950")]

FAMILIES = sorted({entry.name for entry in importlib.metadata.entry_points(group="kinfolk.families")})
ARCHS = ("gfx942", "gfx950")


@cache
def subject_of(family: str, arch: str) -> Subject:
    return Subject.of_family(family, arch)


def fullest(subject: Subject, request: Any) -> tuple[Scenario, Artifact]:
    """Return the scenario of a request in which most of its kernels do something, and what it runs."""
    fitting = Fitting.of(subject.composed, subject.composed.scenarios(request), subject.flavor_name, sparse=True)
    scenario = max(fitting.scenarios, key=lambda each: compared_kernels(fitting.plans[each.name]))
    return scenario, artifact_of(subject, scenario.request)


def outputs(artifact: Artifact, inputs: Any, subject: Subject, executor: Any) -> dict[str, Any]:
    return bind(artifact, inputs, executor=executor, composition=subject.composed)()


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("family", FAMILIES)
def test_machine_code_gives_the_bits_of_the_ir_and_both_meet_the_reference(family: str, arch: str) -> None:
    subject, executor = subject_of(family, arch), MachineExecutor()
    requests = smallest_requests(subject)
    assert requests
    for request in requests:
        scenario, artifact = fullest(subject, request)
        inputs, before = scenario.inputs(), len(executor.executed)
        found = outputs(artifact, inputs, subject, executor)
        assert len(executor.executed) > before
        simulated = outputs(artifact, inputs, subject, simulator())
        expected = expected_of(subject.composed, scenario)
        for name, array in found.items():
            assert array.size and array.tobytes() == simulated[name].tobytes(), (artifact.plan.candidate, name)
            compared = compare(name, artifact.plan.binding(name).dtype, array, expected[name])
            assert compared.passed, compared.findings


@pytest.mark.parametrize("family", FAMILIES)
def test_a_wrong_object_in_the_place_of_a_kernel_is_seen_by_both(family: str) -> None:
    """The control: the first store of a kernel that ran stores another register; later ones may be of rows past the
    last.
    """
    subject = subject_of(family, "gfx942")
    scenario, artifact = fullest(subject, smallest_requests(subject)[0])
    inputs, executor = scenario.inputs(), MachineExecutor(traced=True)
    right = outputs(artifact, inputs, subject, executor)
    number = next(at for at, each in enumerate(artifact.kernels) if each.symbol == executor.executed[-1].symbol)
    wrong = edited(artifact, other_store(instructions_that_ran(executor, artifact, number), 0), number)
    faulty = MachineExecutor()
    found = outputs(wrong, inputs, subject, faulty)
    assert any(found[name].tobytes() != array.tobytes() for name, array in right.items())
    report = run_scenario(subject.composed, wrong, scenario, (Runner(faulty),), expected_of(subject.composed, scenario))
    assert report.status == "fail"
