"""The conformance kit on a family that is right and unlike the others: nothing is held against it.

Its specs have no fields and its requests only numbers of launches, none to pin a candidate; outputs are of two types;
one candidate has two launches and a third in their place, by a condition; waves are of 64 lanes, and of 32.
"""

import sys
from pathlib import Path

import attrs
import pytest

import kinfolk
from kinfolk.dispatch import selections
from kinfolk.plugins.composition import Composition
from kinfolk.plugins.discovery import Offer
from kinfolk.plugins.loading import Loaded, load
from kinfolk.testing import Subject, run_check
from kinfolk.testing.core_checks import CHECKS as CORE_CHECKS
from kinfolk_runtime.conformance import CHECKS as RUNTIME_CHECKS
from kinfolk_runtime.conformance import small

pytestmark = pytest.mark.needs("gfx942")

FOLDERS = (Path(__file__).parent / "unusual", Path(kinfolk.__file__).parent / "templates/arch/src")
for folder in FOLDERS:
    if str(folder) not in sys.path:
        sys.path.append(str(folder))  # also where the check of determinism looks in its processes

from kinfolk_unusual import plugin  # noqa: E402 - it is found by then

CHECKS = {
    check.name: check for check in (*CORE_CHECKS, *RUNTIME_CHECKS) if (check.of, check.level) == ("family", "quick")
}
ARCHS = ("gfx942", "toy_simt")


def offered(kind, name, package):
    distribution = package.replace("_", "-")
    value = f"{package}.plugin"
    return Offer(kind=kind, name=name, value=value, distribution=distribution, version="0.1.0", registered=True)


def subject_on(arch):
    if arch == "toy_simt":
        from kinfolk_toy_simt import plugin as toy

        loaded = Loaded(offered("arch", arch, "kinfolk_toy_simt"), toy)
    else:
        loaded = load("arch", arch)
    return Subject.of_family(Composition(Loaded(offered("family", "tally", "kinfolk_unusual"), plugin), loaded))


@pytest.fixture(scope="module")
def subjects():
    """Return the family on each arch; kernels and runs are shared."""
    return {arch: subject_on(arch) for arch in ARCHS}


def marked(check):
    return () if check.needs == "pure" else getattr(pytest.mark, check.needs)


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("name", [pytest.param(name, marks=marked(check)) for name, check in CHECKS.items()])
def test_nothing_is_held_against_it(subjects, name, arch):
    result = run_check(CHECKS[name], subjects[arch])
    expected = {
        "goldens": "the family keeps no goldens (",
        "spec_fields": "its specs have none",
        "operands": "TallyRequest declares no operands",
    }
    assert result.inapplicable.startswith(expected.get(name, ""))
    assert result.status == ("not applicable" if name in expected else "pass"), result.review()


@pytest.mark.simulate
def test_every_kernel_of_every_candidate_is_run_and_has_mutants(subjects):
    """Of the candidate with a condition no request launches all three."""
    subject = subjects["gfx942"]
    for requests in (small.run_requests(subject), small.mutation_requests(subject)):
        ran = set()
        for request in requests:
            plan = selections.plan(subject.composed, request, subject.flavor_name)
            launched = [launch for launch in plan.launches if launch.condition.holds(plan.scope())]
            ran |= {(plan.candidate, type(launch.spec).__name__) for launch in launched}
        halves = {("tally.halved", name) for name in ("HalfSpec", "JoinSpec", "RowSpec")}
        assert ran == {("tally.whole", "RowSpec"), *halves}


def test_a_candidate_that_no_request_goes_to_is_told_as_that():
    """Control: without the limit that leaves short rows to it, the other takes all that it admits."""
    subject = subject_on("gfx942")
    whole, halved = subject.composed.candidates()
    taken = attrs.evolve(halved, capability=halved.capability[:-1])
    subject.composed.candidates = lambda: (whole, taken)
    result = run_check(CHECKS["limits"], subject)
    assert "tally.whole: no request is found for which it is chosen: others take all that it admits" in result.review()
