"""The conformance kit on what the project ships and on the family that is copied; and its command line."""

import json
import sys
from pathlib import Path

import attrs
import pytest
from click.testing import CliRunner

import kinfolk
from kinfolk.cli.conformance_command import command
from kinfolk.plugins.composition import Composition
from kinfolk.plugins.discovery import Offer
from kinfolk.plugins.loading import Loaded, load
from kinfolk.testing import ArchConformance, Check, FamilyConformance, Outcome, Subject, checks
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
