"""The conformance kit on what the project ships and on the family that is copied; and its command line."""

import json
import sys
from pathlib import Path

import attrs
import pytest
from click.testing import CliRunner

import kinfolk
from kinfolk.cli.conformance_command import command
from kinfolk.dispatch import selections
from kinfolk.plugins.composition import Composition
from kinfolk.plugins.discovery import Offer
from kinfolk.plugins.loading import Loaded, load
from kinfolk.refusal import Refusal
from kinfolk.testing import ArchConformance, Check, FamilyConformance, Outcome, Subject, checks
from kinfolk.testing.bases import Case
from kinfolk_runtime.conformance import small
from kinfolk_runtime.conformance.compiled import no_goldens
from kinfolk_runtime.goldens.place import Place

pytestmark = pytest.mark.needs("mla", "gfx942", "gfx950")

ARCHS = ("gfx942", "gfx950")
TEMPLATE = Path(kinfolk.__file__).parent / "templates/family/src"


class TestMla(FamilyConformance):
    family = "mla"
    archs = ARCHS


class TestRowSoftmax(FamilyConformance):
    """The example as it lies in core, from where `kinfolk new family` copies it: it is not installed."""

    family = "row_softmax"
    archs = ARCHS

    def subject(self, arch, level):
        if str(TEMPLATE) not in sys.path:
            sys.path.append(str(TEMPLATE))  # also where the check of determinism looks in its processes
        from kinfolk_row_softmax import plugin

        offer = Offer(
            kind="family",
            name="row_softmax",
            value="kinfolk_row_softmax.plugin",
            distribution="kinfolk-row-softmax",
            version="0.1.0",
            registered=True,
        )
        return Subject.of_family(Composition(Loaded(offer, plugin), load("arch", arch)), level=level)


class TestGfx942(ArchConformance):
    arch = "gfx942"


class TestGfx950(ArchConformance):
    arch = "gfx950"


def asked(*words):
    return CliRunner().invoke(command, words)


def test_the_command_prints_counts_and_what_each_check_proves():
    done = asked("gfx942")
    assert done.exit_code == 0, done.output
    for check in checks("arch"):
        assert check.name in done.output and check.proves in done.output
    assert done.output.endswith("gfx942: all checks pass\n")


def test_the_document_has_a_row_for_each_check_of_each_arch():
    done = asked("mla", "--check", "strict_types", "--check", "limits", "--json")
    document = json.loads(done.output)
    assert (done.exit_code, document["schema"], document["status"]) == (0, "kinfolk.conformance/1", "pass")
    rows = [(row["arch"], row["check"]) for row in document["results"]]
    assert rows == [(arch, check) for arch in ARCHS for check in ("strict_types", "limits")]
    assert all(row["count"] > 50 and not row["defects"] for row in document["results"])


@pytest.mark.parametrize(
    "words, told",
    [
        (("mle",), "no family or arch 'mle'. Did you mean mla?"),
        (("mla", "--arch", "gfx942", "--check", "limit"), "no check 'limit'. Did you mean limits?"),
        (("gfx942", "--arch", "gfx942"), "gfx942 is an arch: it is checked by itself"),
        (("mla", "--level", "some"), "Invalid value for '--level'"),
    ],
)
def test_a_word_that_is_not_known_ends_with_the_nearest(words, told):
    done = asked(*words)
    assert done.exit_code == 2
    assert told in done.output


def test_goldens_of_a_stranger_s_arch_are_not_missed_and_those_of_a_known_one_are(tmp_path, monkeypatch):
    """Control: an arch that the ledger knows, whose files are gone."""
    subject = Subject.of_family("mla", "gfx942")
    assert no_goldens(subject) == ""
    known = Place.of(subject.composed)
    (tmp_path / "ledger.json").write_text(known.text("ledger.json"))
    monkeypatch.setattr(Place, "of", lambda composed: attrs.evolve(known, folder=tmp_path))
    assert no_goldens(subject) == ""
    subject.arch = attrs.evolve(subject.arch, name="elsewhere")
    assert no_goldens(subject) == (
        "the family keeps no goldens of elsewhere (kinfolk golden bless mla --arch elsewhere --reason '...' makes them)"
    )


def test_where_no_check_is_applicable_nothing_has_passed(monkeypatch):
    monkeypatch.setattr(Place, "names", lambda self: ())
    monkeypatch.setattr(Place, "text", lambda self, name: None)
    done = asked("mla", "--arch", "gfx942", "--check", "goldens")
    assert done.exit_code == 1
    assert done.output.endswith("mla on gfx942: no check was applicable\n")


NONE = Refusal(
    code="mla.none",
    kind="cannot",
    field="arch",
    value="",
    limit="another",
    because="it has none",
    remedy="Take another.",
    plugin="mla",
)


class Refused(FamilyConformance):
    """A family whose every spec is refused on archs `without`."""

    family = "mla"
    without = ARCHS

    def subject(self, arch, level):
        subject = Subject.of_family(Composition(load("family", "mla"), load("arch", arch)), level=level)  # not shared
        if arch in self.without:
            refusal = attrs.evolve(NONE, value=arch)
            subject.composed.validate_spec = lambda spec: (refusal,)
        return subject


class RefusedOnOne(Refused):
    without = ARCHS[:1]


def test_a_family_that_no_arch_has_anything_for_fails_in_pytest_and_one_that_one_arch_refuses_does_not():
    [check] = [check for check in checks("family") if check.name == "identity"]
    told = []
    with pytest.raises(pytest.fail.Exception, match=r"mla serves nothing on gfx942: .* any arch that is asked"):
        Refused().test_conformance(Case(check, "gfx942", "quick"), lambda *row: told.append(row))
    RefusedOnOne().test_conformance(Case(check, "gfx942", "quick"), lambda *row: told.append(row))
    assert all("not applicable, mla serves nothing on gfx942" in words for _, words in told) and len(told) == 2


def empty(subject):
    return Outcome(count=0, unit="stones")


def test_a_stranger_s_check_is_run_with_the_others_and_one_that_looks_at_nothing_fails(monkeypatch):
    """A check is a plugin: this one is offered as its entry point would be."""
    from kinfolk.testing import registry

    stranger = Check(name="stones", proves="that there are stones", of="arch", run=empty)
    offer = Offer(kind="check", name="stones", value="stones:CHECKS", distribution="stones", version="1")
    known = registry.load

    def loaded(kind, name):
        return Loaded(offer, (stranger,)) if name == "stones" else known(kind, name)

    monkeypatch.setattr(registry, "usable", lambda kind: ("core", "runtime", "stones"))
    monkeypatch.setattr(registry, "load", loaded)
    done = asked("gfx942")
    assert done.exit_code == 1
    assert "stones (that there are stones) on gfx942:\ngfx942: checked nothing" in done.output
    assert "again: kinfolk conformance gfx942 --check stones" in done.output
    assert done.output.endswith("gfx942: 1 of 5 checks fail: stones\n")


def fails(subject):
    raise ValueError("the same everywhere")


def test_an_error_that_ends_several_checks_is_told_once(monkeypatch):
    from kinfolk.testing import registry

    broken = tuple(Check(name=name, proves="nothing", of="arch", run=fails) for name in ("one", "two", "three"))
    offer = Offer(kind="check", name="core", value="core:CHECKS", distribution="stones", version="1")
    monkeypatch.setattr(registry, "usable", lambda kind: ("core",))
    monkeypatch.setattr(registry, "load", lambda kind, name: Loaded(offer, broken))
    done = asked("gfx942")
    assert done.output.count("the same everywhere") == 1
    assert "\ntwo: the same as one\n" in done.output and "\nthree: the same as one\n" in done.output
    assert done.output.endswith("3 of 3 checks fail: one, two, three\n")


@pytest.mark.parametrize("arch", ARCHS)
def test_every_kernel_runs_in_the_smallest_requests_of_every_candidate(arch):
    """Of MLA, what combines segments is launched by some numbers of a request alone."""
    subject = Subject.of_family("mla", arch)
    found = {request.candidate: request for request in small.smallest_requests(subject)}
    assert set(found) == set(subject.serving)
    for request in found.values():
        plan = selections.plan(subject.composed, request, subject.flavor_name)
        assert small.kernels_with_work(plan) == len({launch.spec.identity() for launch in plan.launches})
