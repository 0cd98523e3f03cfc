"""The commands about goldens: what `golden check` tells, that the commands it names work, and what blessing prints."""

from __future__ import annotations

import json
import shlex

import pytest
from click.testing import CliRunner
from goldens_family import ReelSpec, Shop, presses

from kinfolk.plugins.faults import UnknownPlugin
from kinfolk_runtime.cli import golden, resources
from kinfolk_runtime.goldens import GoldenError, check
from kinfolk_runtime.goldens.check import Host
from kinfolk_runtime.goldens.compare import Finding, Where, told

BLESS_FIGURES = "kinfolk resources reel --arch sheet --bless --reason WHY"


@pytest.fixture
def shop(tmp_path, monkeypatch):
    """Return a family of widths 32, 64 and 96 whose goldens are blessed."""
    return Shop.blessed(tmp_path, monkeypatch)


def spec(width):
    return ReelSpec(width=width).digest()


@pytest.fixture
def command(shop, monkeypatch):
    """Return a function that runs a command where `reel` on `sheet` is all that is installed."""
    monkeypatch.setattr("kinfolk.plugins.loading.usable", lambda kind: ("reel",) if kind == "family" else ("sheet",))
    monkeypatch.setattr("kinfolk.plugins.loading.installed", lambda kind: ("press20", "press22", "sheet"))
    monkeypatch.setattr("kinfolk.plugins.composition.compose", lambda family, arch: shop.composition)
    monkeypatch.setattr(Host, "found", classmethod(lambda cls: presses()))
    monkeypatch.setattr("kinfolk_runtime.spec_space.toolchain_for", lambda flavor: presses().toolchains["press22"])
    return lambda module, *words: CliRunner().invoke(module.command, words)


def test_the_command_checks(shop, command):
    result = command(golden, "check", "--require", "press20,press22")
    assert result.exit_code == 0
    assert "pass: 6 kernels by their digests, 6 by their figures" in result.stdout
    shop.arch.columns = 1
    result = command(golden, "check", "reel", "--arch", "sheet", "--json")
    document = json.loads(result.stdout)
    assert (result.exit_code, document["schema"], document["status"]) == (1, "kinfolk.golden/1", "fail")
    assert document["compared"] == {"digests": 6, "figures": 6, "schedules": 0}
    assert {row["code"] for row in document["refusals"]} == {"figures.moved"}
    assert {lane["state"] for lane in document["lanes"]} == {"as blessed", "differs"}
    assert "fail, 6 findings" in command(golden, "check").stdout


def test_the_command_blesses(shop, command):
    shop.arch.mark = ", again"
    assert command(golden, "bless").exit_code == 2
    result = command(golden, "bless", "--reason", "Marked.")
    assert result.exit_code == 0 and "2 files blessed" in result.stdout
    assert f"llvm22 reel_w96 ({spec(96)}): llvm" in result.stdout and "no figures by press99" in result.stderr
    assert command(golden, "check").exit_code == 0
    assert "nothing moved" in command(golden, "bless", "--reason", "Again.").stdout


def test_resources_shows_drift_and_blesses_it(shop, command):
    assert command(resources, "reel").exit_code == 0
    shop.arch.columns = 1
    result = command(resources, "--json")
    document = json.loads(result.stdout)
    assert (result.exit_code, [row["code"] for row in document["refusals"]]) == (1, ["figures.moved"] * 3)
    assert len(document["kernels"]) == 3 and BLESS_FIGURES in document["refusals"][0]["remedy"]
    assert command(resources, "--bless").exit_code == 2
    for words in (("--reason", "x"), ("--bless", "--all"), ("reel", "width=3", "--bless"), ("--bless", "--json")):
        assert command(resources, *words, *(() if "--reason" in words else ("--reason", "x"))).exit_code == 2
    result = command(resources, "--bless", "--reason", "One column more.")
    assert result.exit_code == 0 and "1 file blessed" in result.stdout
    assert "llvm22 by press22-1 reel_w96" in result.stdout
    assert command(resources).exit_code == 0 and command(golden, "check").exit_code == 0


def test_a_toolchain_that_is_not_installed_cannot_be_required(command):
    result = command(golden, "check", "--require", "pres22")
    assert result.exit_code == 2 and "Did you mean press22?" in result.stderr


def test_a_family_that_cannot_be_composed_is_a_finding(shop, command, monkeypatch):
    def compose(family, arch):
        raise GoldenError("no such arch")

    monkeypatch.setattr("kinfolk.plugins.composition.compose", compose)
    result = command(golden, "check", "--json")
    assert {row["code"] for row in json.loads(result.stdout)["refusals"]} == {"plugin.error", "digests.zero"}
    assert command(golden, "bless", "--reason", "x").exit_code == 1


def test_a_name_that_nothing_installed_offers_is_told_once_with_those_that_are(shop, command, monkeypatch):
    def compose(family, arch):
        raise UnknownPlugin("family", family, ("reel", "spool"))

    monkeypatch.setattr("kinfolk.plugins.composition.compose", compose)
    monkeypatch.setattr("kinfolk.plugins.loading.usable", lambda kind: ("sheet", "other"))
    result = command(golden, "check", "real")
    assert (result.exit_code, result.stdout.count("family is real, supported: reel or spool")) == (1, 1)
    assert result.stdout.endswith("Did you mean reel?\n") and "every family" not in result.stdout
    [row] = json.loads(command(golden, "check", "real", "--json").stdout)["refusals"]
    assert (row["code"], row["value"]) == ("family.unknown", "real")
    blessed = command(golden, "bless", "real", "--reason", "x")
    assert blessed.exit_code == 1 and "no family 'real' is installed" in blessed.stderr


@pytest.mark.parametrize("what, said", [("why", "why. Mend it."), ("why.", "why. Mend it."), ("so?", "so? Mend it.")])
def test_a_finding_ends_its_sentence_once(what, said):
    assert str(Finding(code="x", where=Where(kind="digests"), what=what, mend="Mend it.")).endswith(f": {said}")


def findings(shop, host=None):
    return check([shop.composition], host or presses()).findings


def test_kernels_that_differ_alike_are_told_in_one_sentence_a_lane(shop, command):
    shop.family.widths = tuple(range(1, 61))
    shop.arch.columns = 1
    assert command(golden, "bless", "--reason", "Sixty.").exit_code == 0
    shop.arch.columns = 3
    result = command(golden, "check")
    lines = [line for line in result.stdout.splitlines() if "moved" in line]
    assert lines == [
        f"reel on sheet, llvm{flavor} by press{flavor}-1: 60 kernels: reel_w1 ({spec(1)}): columns moved from 2 to 4; "
        f"likewise reel_w2 ({spec(2)}) from 3 to 5, reel_w3 ({spec(3)}) from 4 to 6, reel_w4 ({spec(4)}) from 5 to 7 "
        f"and 56 more. If that is meant: {BLESS_FIGURES}"
        for flavor in (20, 22)
    ]
    assert "fail, 120 findings" in result.stdout
    rows = json.loads(command(golden, "check", "--json").stdout)["refusals"]
    assert [sum(f"reel_w{width} " in row["because"] for row in rows) for width in (1, 60)] == [2, 2]
    assert len(rows) == 120


def test_what_differs_otherwise_is_told_apart(shop):
    shop.family.widths = (32, 64, 96, 128, 160)
    shop.arch.mark = ", again"
    shop.family.raises = (64, 96)
    sentences = list(told(each for each in findings(shop) if each.where.section == "llvm22"))
    said = ("torn paper", "llvm moved", "nobody has blessed")
    assert [sum(word in each for each in sentences) for word in said] == [1, 1, 1] and len(sentences) == 3
    assert "2 kernels: reel_w64" in sentences[0] and "likewise reel_w96" in sentences[0]
    assert "likewise" in next(each for each in sentences if "nobody has blessed" in each)
    assert "likewise" not in next(each for each in sentences if "llvm moved" in each)


def damaged_ledger(shop):
    (shop.folder / "ledger.json").write_text("{")


def torn_ledger(shop):
    path = shop.folder / "ledger.json"
    data = json.loads(path.read_text())
    data["entries"][-1]["before"] = "0" * 64
    path.write_text(json.dumps(data))


def stranger(shop):
    (shop.folder / "notes.json").write_text("{}")


def of_another_arch(shop):
    text = (shop.folder / "sheet.digests.json").read_text().replace('"sheet"', '"scroll"')
    (shop.folder / "scroll.digests.json").write_text(text)


def unexplained(shop):
    (shop.folder / "ledger.json").unlink()


CASES = {
    "moved": (lambda shop: setattr(shop.arch, "mark", ", again"), True),
    "drifted": (lambda shop: setattr(shop.arch, "columns", 1), True),
    "new": (lambda shop: setattr(shop.family, "widths", (32, 64, 96, 128)), True),
    "gone": (lambda shop: (shop.folder / "sheet.figures.json").unlink(), True),
    "unexplained": (unexplained, True),
    "garbled ledger": (damaged_ledger, False),
    "torn ledger": (torn_ledger, False),
    "stranger": (stranger, False),
    "of another arch": (of_another_arch, False),
}


@pytest.mark.parametrize("change, mends", CASES.values(), ids=CASES)
def test_a_command_that_a_finding_names_runs_and_mends_it(shop, command, change, mends):
    change(shop)
    assert command(golden, "check").exit_code == 1
    named = {remedy.partition("kinfolk ")[2] for each in findings(shop) if "WHY" in (remedy := each.remedy)}
    assert bool(named) is mends, "a blessing is named where it mends and nowhere else"
    for words in map(shlex.split, sorted(named)):
        result = command({"golden": golden, "resources": resources}[words[0]], *words[1:])
        assert result.exit_code == 0, result.output
    assert (command(golden, "check").exit_code == 0) is mends


def test_what_no_blessing_mends_says_what_does(shop, command):
    for change, said in (
        (stranger, "notes.json is no file of goldens. Delete it."),
        (of_another_arch, "it can be blessed where the arch is installed."),
        (damaged_ledger, "Restore ledger.json from version control: nothing can be blessed before."),
    ):
        change(shop)
        assert said in command(golden, "check").stdout


def test_a_required_toolchain_is_named_without_a_command_that_is_none(shop):
    [finding] = check([shop.composition], presses(), required=["press99"]).findings
    assert str(finding).startswith("every family on every arch: press99 is required: ")
    assert str(finding).endswith("Buy one. kinfolk doctor says how to get it.")
