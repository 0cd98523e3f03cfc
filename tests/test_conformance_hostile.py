"""The conformance kit on a family with seeded faults: each is found by the check meant for it, the control passes."""

import sys
from pathlib import Path

import pytest

import kinfolk
from kinfolk.plugins.composition import Composition
from kinfolk.plugins.discovery import Offer
from kinfolk.plugins.loading import Loaded, load
from kinfolk.testing import Subject, run_check
from kinfolk.testing.core_checks import CHECKS as CORE_CHECKS
from kinfolk_runtime.conformance import CHECKS as RUNTIME_CHECKS
from kinfolk_runtime.conformance import runs

pytestmark = pytest.mark.needs("gfx942")

FOLDERS = (Path(__file__).parent / "hostile", Path(kinfolk.__file__).parent / "templates/family/src")
for folder in FOLDERS:
    if str(folder) not in sys.path:
        sys.path.append(str(folder))  # also where the check of determinism looks in its processes

from kinfolk_hostile import plugin  # noqa: E402 - it is found by then
from kinfolk_hostile.faults import FAULTS  # noqa: E402

CHECKS = {check.name: check for check in (*CORE_CHECKS, *RUNTIME_CHECKS) if check.of == "family"}
SEEDED = {name: fault for name, fault in FAULTS.items() if fault.check}


def subject_of(name):
    offer = Offer(
        kind="family",
        name="hostile",
        value=f"kinfolk_hostile.plugin:{name}",
        distribution="kinfolk-hostile",
        version="0.1.0",
        registered=True,
    )
    return Subject.of_family(Composition(Loaded(offer, getattr(plugin, name)), load("arch", "gfx942")))


def marked(check):
    return () if check.needs == "pure" else getattr(pytest.mark, check.needs)


@pytest.fixture(scope="module")
def control():
    """Return the family without a fault; its kernels and runs are shared."""
    return subject_of("control")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=marked(check)) for name, check in CHECKS.items() if check.level == "quick"]
)
def test_the_control_passes(control, name):
    result = run_check(CHECKS[name], control)
    assert result.status == ("not applicable" if name == "goldens" else "pass"), result.review()


@pytest.mark.parametrize("name", [pytest.param(name, marks=marked(CHECKS[SEEDED[name].check])) for name in SEEDED])
def test_a_seeded_fault_is_found_by_the_check_meant_for_it(name):
    result = run_check(CHECKS[SEEDED[name].check], subject_of(name))
    assert result.status == "fail"
    assert SEEDED[name].words in result.review()
    assert f"kinfolk conformance hostile --arch gfx942 --check {SEEDED[name].check}" in result.review()


@pytest.mark.simulate
def test_engines_that_differ_in_one_bit_are_found(monkeypatch):
    """No family can seed this one: the engines are kinfolk's."""
    outputs = runs._outputs

    def flipped(plan, inputs, subject, simulator):
        found = outputs(plan, inputs, subject, simulator)
        if simulator.engine == "reference" and found["y"].size:
            found["y"].view("u1").reshape(-1)[0] ^= 1
        return found

    monkeypatch.setattr(runs, "_outputs", flipped)
    result = run_check(CHECKS["engines"], subject_of("control"))
    assert "output y: 1 of" in result.review()


@pytest.mark.simulate
def test_mutants_that_the_scenarios_of_the_control_notice_survive_one_that_sees_nothing(control):
    """The example's own scenarios do not notice every mutant either: those that they do are what counts."""
    survivors = [
        {defect.problem for defect in run_check(CHECKS["mutation"], subject).outcome.defects}
        for subject in (control, subject_of("blind_scenarios"))
    ]
    assert survivors[1] - survivors[0]


def test_every_check_has_a_fault_or_a_reason():
    """Engines have their own test above; goldens are the subject of tests of their own."""
    seeded = {fault.check for fault in SEEDED.values()}
    assert seeded <= CHECKS.keys()
    assert CHECKS.keys() - seeded <= {"engines", "goldens", "spec_fields"}
