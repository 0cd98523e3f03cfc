"""The conformance kit on a family with seeded faults: each is found by the check meant for it, the control passes."""

import sys
from pathlib import Path
from typing import get_args

import attrs
import pytest

import kinfolk
from kinfolk.arch import Facts
from kinfolk.dispatch import selections
from kinfolk.errors import IRError
from kinfolk.matrix import MatrixCatalog
from kinfolk.plugins.composition import Composition
from kinfolk.plugins.discovery import Offer
from kinfolk.plugins.loading import Loaded, load
from kinfolk.refusal import Refusal
from kinfolk.roles import ROLE_FACT
from kinfolk.testing import Subject, run_check
from kinfolk.testing.core_checks import CHECKS as CORE_CHECKS
from kinfolk_runtime.conformance import CHECKS as RUNTIME_CHECKS
from kinfolk_runtime.conformance import runs, small
from kinfolk_runtime.simulator.fault import FaultKind

pytestmark = pytest.mark.needs("gfx942", "gfx950")

FOLDERS = (Path(__file__).parent / "hostile", Path(kinfolk.__file__).parent / "templates/family/src")
for folder in FOLDERS:
    if str(folder) not in sys.path:
        sys.path.append(str(folder))  # also where the check of determinism looks in its processes

from kinfolk_hostile import plugin  # noqa: E402 - it is found by then
from kinfolk_hostile.faults import FAULTS, TOO_MANY  # noqa: E402

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
def test_one_fault_in_every_run_is_told_once_by_the_check_it_is_a_matter_of():
    """A missing barrier: no other check blames what is right, or says that it found nothing to look at."""
    subject = subject_of("no_barrier")
    results = {name: run_check(CHECKS[name], subject) for name in ("reference", "sanitizers", "engines", "binding")}
    [race] = results["sanitizers"].outcome.defects
    assert race.remedy.startswith("Put a barrier between the two accesses")
    assert "more like it, in one_column, exact_block," in race.problem
    for name in ("reference", "engines"):
        [nothing] = results[name].outcome.defects
        assert nothing.remedy == "See the check sanitizers, which tells each fault"
    assert results["binding"].status == "pass", results["binding"].review()


def test_every_kind_of_fault_has_a_remedy_of_its_own():
    """Arguments are the binder's matter: a kernel has no part in them."""
    kinds = {*get_args(FaultKind)} - {"argument"}
    assert kinds <= runs.REMEDIES.keys()
    assert len({*runs.REMEDIES.values(), runs.ACCESS}) == len(runs.REMEDIES) + 1


@pytest.mark.simulate
def test_inputs_that_do_not_bind_are_no_fault_of_the_kernel():
    subject = subject_of("inputs_of_another_shape")
    assert len(run_check(CHECKS["reference"], subject).outcome.defects) == 1
    [nothing] = run_check(CHECKS["sanitizers"], subject).outcome.defects
    assert nothing.problem == "nothing was run: no scenario's inputs bind"
    assert len(run_check(CHECKS["binding"], subject).outcome.defects) == 1


@pytest.mark.simulate
def test_every_kernel_is_run_of_a_family_with_few(control):
    specs = {
        launch.spec.identity()
        for request in small.run_requests(control)
        for launch in selections.plan(control.composed, request, control.flavor_name).launches
    }
    assert specs == {spec.identity() for spec in control.specs}


@pytest.mark.simulate
def test_requests_of_the_slow_engine_are_small_and_have_something_to_do(control):
    [request] = small.smallest_requests(control)
    assert request.rows == 2 and request.columns >= 2


@pytest.mark.simulate
def test_mutants_that_the_scenarios_of_the_control_notice_survive_one_that_sees_nothing(control):
    """The example's own scenarios do not notice every mutant either: those that they do are what counts."""
    survivors = [
        {defect.problem for defect in run_check(CHECKS["mutation"], subject).outcome.defects}
        for subject in (control, subject_of("blind_scenarios"))
    ]
    assert survivors[1] - survivors[0]


def test_a_family_whose_specs_an_arch_refuses_is_told_so_and_is_not_run():
    nothing = Refusal(**{**attrs.asdict(TOO_MANY), "because": "the arch has none of it"})
    composition = subject_of("control").composed
    composition.validate_spec = lambda spec: (nothing,)
    result = run_check(CHECKS["identity"], Subject.of_family(composition))
    assert result.status == "not applicable"
    assert result.inapplicable.startswith("hostile serves nothing on gfx942: vgpr is 1, supported: at most 0 (the arch")


@pytest.mark.parametrize("lost", [True, False])
def test_a_candidate_that_lacks_one_kind_of_spec_is_a_note_and_one_that_lacks_some_specs_of_it_is_not(lost):
    """The other kind is legal: what reduces, say. Control: with one spec of the kind left, refusing all is a fault."""
    nothing = Refusal(**{**attrs.asdict(TOO_MANY), "because": "the arch has none of it"})
    subject = subject_of("two_kinds")
    kept = subject.specs[0]
    wrong = attrs.evolve(TOO_MANY, code="hostile.of_no_spec")

    def validate(spec):
        return (nothing,) if type(spec) is type(kept) and (lost or spec != kept) else ()

    subject.composed.validate_spec = validate
    subject.composed.admit = lambda request, candidate, plan: () if lost else (wrong,)
    limits = run_check(CHECKS["limits"], Subject.of_family(subject.composed))
    told = [note for note in limits.outcome.notes if "serves nothing on gfx942: vgpr is 1" in note]
    assert bool(told) is lost
    assert any("no request is found" in defect.problem for defect in limits.outcome.defects) is not lost


def test_a_limit_that_others_imply_is_a_note_and_one_that_no_request_breaks_is_not():
    result = run_check(CHECKS["limits"], subject_of("implied_limit"))
    assert result.status == "pass", result.review()
    [note] = result.outcome.notes
    assert note.startswith("hostile.one_row_each: who breaks the limit of rows (rows <= 1099511627776) breaks others")
    assert "it decides nothing" in run_check(CHECKS["limits"], subject_of("dead_limit")).review()


def test_every_check_has_a_fault_or_a_reason():
    """Engines have their own test above; goldens are the subject of tests of their own."""
    seeded = {fault.check for fault in SEEDED.values()}
    assert seeded | {"engines", "goldens"} == CHECKS.keys()


def rounded(arch):
    """Return an arch with a fact that no expression computes with."""
    return attrs.evolve(arch, facts={**arch.facts.declared, "clock_ghz": 2.1})


def turned(arch):
    """Return an arch with an atom whose first lane holds what the second holds."""
    first, *others = arch.matrix
    shape = first.shape
    rows = shape.a.rows.copy()
    rows[0] = rows[1]
    meaning = attrs.evolve(shape, a=attrs.evolve(shape.a, rows=rows))
    atom = attrs.evolve(first, op=attrs.evolve(first.op, meaning=meaning))
    return attrs.evolve(arch, matrix=MatrixCatalog((atom, *others)))


def speechless(arch, name="core.rint"):
    """Return an arch that refuses an op when it is lowered, and does not say so before."""
    lower = arch.lower_kernel

    def lowered(kernel, arch, spec, llvm):
        if any(op.name == name for op in kernel.walk()):
            raise IRError("no rounding here")
        return lower(kernel, arch, spec, llvm)

    return attrs.evolve(arch, lower_kernel=lowered)


class Mistaken(Facts):
    """Facts that say that there is an op in a role where there is none."""

    def __getitem__(self, name):
        return True if name.startswith(ROLE_FACT) else super().__getitem__(name)


def boastful(arch):
    """Return an arch whose facts say that it has an op in every role, without the ops."""
    plain = attrs.evolve(arch, roles={})
    object.__setattr__(plain, "facts", Mistaken(arch.facts.declared, arch.wave_size, arch.matrix, ()))
    return plain


ARCH_CHECKS = {check.name: check for check in (*CORE_CHECKS, *RUNTIME_CHECKS) if check.of == "arch"}
ARCH_FAULTS = {
    "arch_facts": (rounded, "fact clock_ghz: is 2.1 of type float"),
    "arch_atoms": (turned, "elements are held by no lane"),
    "arch_ops": (speechless, "op core.rint: is legal and is not lowered: no rounding here"),
    "arch_roles": (boastful, "its fact does not say whether there is an op"),
}


@pytest.mark.parametrize("name", ARCH_FAULTS)
def test_a_seeded_fault_of_an_arch_is_found_by_the_check_meant_for_it(name):
    spoil, words = ARCH_FAULTS[name]
    arch = load("arch", "gfx942").plugin.kinfolk_arch()
    assert run_check(ARCH_CHECKS[name], Subject(name="gfx942", arch=arch)).status == "pass"
    result = run_check(ARCH_CHECKS[name], Subject(name="gfx942", arch=spoil(arch)))
    assert result.status == "fail"
    assert words in result.review()


@pytest.mark.parametrize(
    "name", ["core.barrier", "core.meet", "core.atomic_add", "core.view_store", "gfx942.stage", "gfx942.wait_staged"]
)
def test_an_op_that_accesses_memory_or_waits_is_lowered_too(name):
    arch = load("arch", "gfx942").plugin.kinfolk_arch()
    result = run_check(ARCH_CHECKS["arch_ops"], Subject(name="gfx942", arch=speechless(arch, name)))
    assert {defect.where for defect in result.outcome.defects} >= {f"gfx942, op {name}"}


def test_no_op_of_an_arch_is_left_out():
    for name in ("gfx942", "gfx950"):
        result = run_check(ARCH_CHECKS["arch_ops"], Subject.of_arch(name))
        assert (result.status, result.outcome.notes) == ("pass", ())


def test_every_check_of_archs_has_a_fault():
    assert ARCH_FAULTS.keys() == ARCH_CHECKS.keys()
