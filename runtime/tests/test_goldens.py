"""Goldens and blessed figures: each way in which they can fail fails, in words that name what and the way out."""

from __future__ import annotations

import json
import shutil

import pytest
from goldens_family import PACKAGES, REFUSED, ReelSpec, Shop, presses

from kinfolk.flavor import Flavor
from kinfolk.flavor import _registered as registered_flavors
from kinfolk_runtime.goldens import GoldenError, bless, check
from kinfolk_runtime.goldens.document import text_digest
from kinfolk_runtime.spec_space import sampled

DIGESTS, FIGURES, LEDGER = "sheet.digests.json", "sheet.figures.json", "ledger.json"
BLESS = "kinfolk golden bless reel --arch sheet --reason WHY"
BLESS_FIGURES = "kinfolk resources reel --arch sheet --bless --reason WHY"


@pytest.fixture
def shop(tmp_path, monkeypatch):
    """Return a family of widths 32, 64 and 96 whose goldens are blessed."""
    return Shop.blessed(tmp_path, monkeypatch)


def checked(shop, host=None, **more):
    return check([shop.composition], host or presses(), **more)


def codes(shop, host=None, **more):
    return [finding.code for finding in checked(shop, host, **more).findings]


def edit(shop, name, change):
    """Change a file as JSON data, written as the project writes it where it can be read."""
    path = shop.folder / name
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))


def explain(shop, name):
    """Make the ledger end at what a file is now, so that only its content is at fault."""

    def change(data):
        entry = [entry for entry in data["entries"] if entry["file"] == name][-1]
        entry["after"] = text_digest((shop.folder / name).read_text())

    edit(shop, LEDGER, change)


def rows(data, flavor="llvm22"):
    return next(section["rows"] for name, section in data["sections"].items() if name.startswith(flavor))


def spec(width):
    return ReelSpec(width=width).digest()


def test_what_was_blessed_passes_and_blessing_it_again_writes_nothing(shop):
    report = checked(shop)
    assert report.passed and not report.findings
    assert (report.compared("digests"), report.compared("figures")) == (6, 6)
    assert {lane.state for lane in report.lanes} == {"as blessed"}
    before = {path.name: path.read_bytes() for path in shop.folder.iterdir()}
    assert set(before) == {DIGESTS, FIGURES, LEDGER}
    assert bless([shop.composition], presses(), "Again.") == ()
    assert {path.name: path.read_bytes() for path in shop.folder.iterdir()} == before


def test_a_spec_that_nobody_has_blessed_is_missing(shop):
    shop.family.widths = (32, 64, 96, 128)
    found = [str(each) for each in checked(shop).findings if each.code == "digests.missing"]
    assert len(found) == 2
    assert found[0] == (
        f"reel on sheet, llvm20: reel_w128 ({spec(128)}): nobody has blessed its digests. If that is meant: {BLESS}"
    )
    assert "figures.missing" in codes(shop)


def test_a_family_that_nobody_has_blessed_is_missing_whole(shop):
    shutil.rmtree(shop.folder)
    report = checked(shop)
    assert not report.passed and report.compared("digests") == 0
    assert [each.code for each in report.findings] == ["digests.missing", "digests.missing", "digests.zero"]
    said = str(report.findings[0])
    assert f"reel_w32 ({spec(32)}) to reel_w96 ({spec(96)})" in said and said.endswith(BLESS)


def test_a_row_that_nobody_has_is_too_much(shop):
    shop.family.widths = (32, 64)
    report = checked(shop)
    assert [each.code for each in report.findings] == ["digests.extra"] * 2 + ["figures.extra"] * 2
    assert f"reel_w96 ({spec(96)}): it is blessed, and nobody has such a kernel" in str(report.findings[-1])
    assert str(report.findings[-1]).endswith(BLESS_FIGURES)


@pytest.mark.parametrize("name, kind", [(DIGESTS, "digests"), (FIGURES, "figures")])
def test_a_file_that_was_cut_says_so_and_what_is_gone(shop, name, kind):
    edit(shop, name, lambda data: rows(data).pop())
    explain(shop, name)
    found = checked(shop).findings
    assert [each.code for each in found][:2] == [f"{kind}.truncated", f"{kind}.missing"]
    assert "it holds 2 rows of the 3 it says" in found[0].what and "llvm22" in str(found[0])
    assert spec(96) in str(found[1])


def test_a_row_that_is_there_twice_is_too_much(shop):
    edit(shop, DIGESTS, lambda data: rows(data).append(rows(data)[0]))
    explain(shop, DIGESTS)
    assert {"digests.truncated", "digests.extra"} <= set(codes(shop))


def test_another_order_is_a_failure_of_its_own(shop):
    shop.family.widths = (32, 96, 64)
    report = checked(shop)
    assert {each.code for each in report.findings} == {"digests.reordered", "figures.reordered"}
    assert f"reel_w96 ({spec(96)}): the order of the spec space moved: where reel_w64 is blessed" in str(
        report.findings[0]
    )


@pytest.mark.parametrize("swapped", [False, True])
def test_the_order_behind_a_sample_is_blessed_too(tmp_path, monkeypatch, swapped):
    monkeypatch.syspath_prepend(str(tmp_path))
    shop = Shop.opened(tmp_path, f"golden_reel_{next(PACKAGES)}", *range(100, 400))
    bless([shop.composition], presses(), "First.")
    assert checked(shop).compared("figures") == 128
    widths = list(shop.family.widths)
    kept = {each.width for each in sampled([ReelSpec(width=width) for width in widths])}
    first, second = [place for place, width in enumerate(widths) if width not in kept][:2]
    widths[first], widths[second] = widths[second], widths[first]
    if swapped:
        shop.family.widths = widths
    assert codes(shop) == (["digests.reordered"] * 2 + ["figures.reordered"] * 2 if swapped else [])


def test_a_comparison_of_nothing_is_a_failure(shop):
    shop.family.widths = ()
    report = checked(shop)
    assert not report.passed and "digests.zero" in {each.code for each in report.findings}
    assert "no candidate has a spec" in str(report.findings[0])
    nothing = check([], presses())
    assert not nothing.passed and [each.code for each in nothing.findings] == ["digests.zero"]
    with pytest.raises(GoldenError, match="no candidate has a spec"):
        bless([shop.composition], presses(), "Nothing.")
    with pytest.raises(GoldenError, match="nothing to bless"):
        bless([], presses(), "Nothing.")


def test_code_that_moved_is_named_with_both_digests(shop):
    shop.arch.mark = ", again"
    report = checked(shop)
    assert {each.code for each in report.findings} == {"digests.moved"}
    finding = report.findings[0]
    assert (finding.field, finding.spec, len(report.findings)) == ("llvm", spec(32), 6)
    assert f"llvm moved from {finding.was[:12]} to {finding.now[:12]}" in str(finding)
    [digests, figures] = bless([shop.composition], presses(), "Marked.")
    assert f"llvm20 reel_w32 ({spec(32)}): llvm {finding.was[:12]} -> {finding.now[:12]}" in digests.moved
    assert figures.moved == ("llvm20 by press20-1: written anew", "llvm22 by press22-1: written anew")
    assert checked(shop).passed


def test_a_digest_that_moved_without_an_entry_fails(shop):
    ledger = (shop.folder / LEDGER).read_bytes()
    shop.arch.mark = ", again"
    bless([shop.composition], presses(), "Marked.")
    (shop.folder / LEDGER).write_bytes(ledger)
    report = checked(shop)
    assert [each.code for each in report.findings] == ["ledger.broken"] * 2
    assert "it moved without a reason" in str(report.findings[0]) and BLESS in str(report.findings[0])
    mended = bless([shop.composition], presses(), "Marked, said this time.")
    assert all("mended" in each.moved[0] for each in mended) and checked(shop).passed


def test_a_figure_that_drifts_under_the_budget_fails(shop):
    shop.arch.columns = 1
    report = checked(shop)
    assert {each.code for each in report.findings} == {"figures.moved"}
    assert str(report.findings[0]) == (
        f"reel on sheet, llvm20 by press20-1: reel_w32 ({spec(32)}): columns moved from 32 to 33. "
        f"If that is meant: {BLESS_FIGURES}"
    )
    row = report.findings[0].refusal("reel").to_dict()
    assert (row["field"], row["value"], row["limit"]) == ("columns", 33, "32, as blessed")


def test_what_one_build_makes_of_it_does_not_speak_for_another(shop):
    newer = presses()
    newer.toolchains["press22"].build = "press22-2"
    report = checked(shop, newer)
    assert report.passed and {lane.state for lane in report.lanes} == {"as blessed", "not blessed", "not here"}
    assert report.notes[-1] == (
        "reel on sheet, llvm22 by press22-2: nobody has blessed the figures of this build (a blessing is of one exact "
        "build, since builds of one version have differed); all 3 rows are equal to those of press22-1"
    )
    [finding] = checked(shop, newer, required=["press22"]).findings
    assert (finding.code, str(finding)) == ("figures.missing", f"{report.notes[-1]}. If that is meant: {BLESS_FIGURES}")
    shop.arch.columns = 1
    [finding] = [each for each in checked(shop, newer, required=["press22"]).findings if each.code != "figures.moved"]
    assert "they differ from those of press22-1 in 3 values, first reel_w32" in str(finding)
    assert "compare them, and bless only if none is worse. If that is meant" in str(finding)


@pytest.mark.parametrize("name, said", [("press99", "does not start. Buy one."), ("press98", "no distribution")])
def test_a_required_toolchain_that_is_missing_fails(shop, name, said):
    [finding] = checked(shop, required=[name]).findings
    assert finding.code == "toolchain.error" and said in str(finding)


def test_figures_of_a_build_that_is_not_here_are_held_against_the_code(shop):
    here = presses("press22")
    assert checked(shop, here).passed
    shop.arch.mark = ", again"
    bless([shop.composition], here, "Marked.", kinds=("digests",))
    found = checked(shop, here).findings
    assert [each.code for each in found] == ["figures.stale"] * 2
    assert "llvm20 by press20-1: 3 of 3 rows are figures of other code" in str(found[-1])
    [written] = bless([shop.composition], here, "Marked.", kinds=("figures",))
    assert "llvm20 by press20-1: dropped" in written.moved and checked(shop, here).passed


def test_a_blessing_elsewhere_keeps_what_is_still_of_the_same_code(shop):
    newer = presses("press22")
    newer.toolchains["press22"].build = "press22-2"
    [written] = bless([shop.composition], newer, "Another build.")
    assert written.moved == ("llvm22 by press22-2: 3 rows, new",)
    assert checked(shop, newer).passed and checked(shop).passed


def test_refusals_are_counted_and_their_text_is_blessed(shop):
    shop.family.widths = (32, REFUSED)
    bless([shop.composition], presses(), "One is refused.")
    report = checked(shop)
    assert report.passed and (report.compared("digests"), report.compared("figures")) == (4, 2)
    section = json.loads((shop.folder / DIGESTS).read_text())["sections"]["llvm22"]
    assert (section["specs"], section["count"], section["refused"]) == (2, 2, 1)
    [refusal] = section["rows"][1]["refusals"]
    assert refusal["code"] == "reel.width" and "it does not fit" in refusal["text"]
    shop.family.because = "it is too long"
    assert codes(shop) == ["digests.moved"] * 2
    edit(shop, DIGESTS, lambda data: rows(data)[1].update(llvm="0") or rows(data)[1].pop("refusals"))
    explain(shop, DIGESTS)
    assert "digests.truncated" in codes(shop)


@pytest.mark.parametrize(
    "change, code, said",
    [
        (lambda shop: setattr(shop.family, "raises", (64,)), "digests.error", "torn paper"),
        (lambda shop: setattr(shop.arch, "spills", 64), "figures.error", "the resource gate refuses its code"),
        (None, "figures.error", "jammed"),
    ],
    ids=["emission", "gate", "toolchain"],
)
def test_an_error_is_never_blessed(shop, change, code, said):
    before = {path.name: path.read_bytes() for path in shop.folder.iterdir()}
    host = presses()
    shop.arch.mark = f", {said}"  # code that was not compiled before
    if change:
        change(shop)
    else:
        host.toolchains["press22"].breaks = 64
    found = [each for each in checked(shop, host).findings if each.code == code]
    assert found and all(said in str(each) and spec(64) in str(each) for each in found)
    assert "Nothing can be blessed" in str(found[0])
    with pytest.raises(GoldenError, match=rf"nothing is blessed.*\n.*reel_w64 \({spec(64)}\).*{said}"):
        bless([shop.composition], host, "No.")
    assert {path.name: path.read_bytes() for path in shop.folder.iterdir()} == before


@pytest.mark.parametrize("name", [DIGESTS, FIGURES, LEDGER])
@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[: len(text) // 2],
        lambda text: text.replace(":", "=", 1),
        lambda text: "[]",
        lambda text: "",
        lambda text: text.replace('"schema"', '"schema": 1, "schema"', 1),
        lambda text: text.replace("/1", "/2", 1),
        lambda text: text.replace('"rows": [', '"rows": 3, "more": [', 1).replace('"reason"', '"season"', 1),
        lambda text: text.replace('"symbol": "reel_w32"', '"symbol": 32', 1).replace('"after": "', '"after": "0', 1),
        lambda text: "\udcff",
    ],
    ids=["cut", "garbled", "list", "empty", "twice", "schema", "shape", "types", "bytes"],
)
def test_a_garbled_file_is_a_finding_that_names_it(shop, name, damage):
    path = shop.folder / name
    path.write_bytes(damage(path.read_text()).encode(errors="surrogateescape"))
    report = checked(shop)
    assert not report.passed
    [finding] = [each for each in report.findings if each.code.endswith(".garbled")]
    assert name in str(finding) and "from version control" in str(finding)
    if name == LEDGER:
        with pytest.raises(GoldenError, match=LEDGER):
            bless([shop.composition], presses(), "Mended.")
    else:
        assert bless([shop.composition], presses(), "Mended.") and checked(shop).passed


def test_lines_that_end_otherwise_are_the_same_lines(shop):
    for path in shop.folder.iterdir():
        path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    assert checked(shop).passed and bless([shop.composition], presses(), "None.") == ()
    shop.arch.mark = "\n; of a template"
    bless([shop.composition], presses(), "A template.")
    shop.arch.mark = "\r\n; of a template"
    assert not [each for each in checked(shop).findings if each.where.kind == "digests"]
    shop.arch.mark = " ; of a template"
    assert codes(shop)


@pytest.mark.parametrize(
    "change, said",
    [
        (lambda entries: entries.clear(), "has no entry in ledger.json"),
        (lambda entries: entries.pop(), "it moved without a reason"),
        (lambda entries: entries[-1].update(before="0" * 64), "begins at 000000000000, the one before it ends at"),
    ],
    ids=["empty", "cut", "torn"],
)
def test_the_ledger_is_a_chain(shop, change, said):
    shop.arch.columns = 1
    bless([shop.composition], presses(), "One column more.")
    edit(shop, LEDGER, lambda data: change(data["entries"]))
    found = [each for each in checked(shop).findings if each.code == "ledger.broken"]
    assert found and said in str(found[-1])


def test_a_torn_ledger_is_not_written_on(shop):
    edit(shop, LEDGER, lambda data: data["entries"][-1].update(before="0" * 64))
    shop.arch.mark = ", again"
    with pytest.raises(GoldenError, match="torn, restore it first"):
        bless([shop.composition], presses(), "Marked.")


def test_a_file_that_the_ledger_knows_and_that_is_gone_is_found(shop):
    (shop.folder / FIGURES).unlink()
    assert "ledger.broken" in codes(shop)
    (shop.folder / "notes.json").write_text("{}")
    assert "notes.json is no file of goldens" in "".join(map(str, checked(shop).findings))


def test_an_arch_that_is_not_installed_is_noted_and_its_files_must_be_explained_too(shop):
    assert checked(shop).notes == []
    text = (shop.folder / DIGESTS).read_text().replace('"sheet"', '"scroll"')
    (shop.folder / "scroll.digests.json").write_text(text)
    report = checked(shop)
    assert report.notes == ["reel on scroll: not compared, since the arch is not installed"]
    [finding] = report.findings
    assert "reel on scroll: scroll.digests.json has no entry in ledger.json" in str(finding)


@pytest.mark.parametrize("reason", ["", "  \n"])
def test_a_blessing_needs_a_reason(shop, reason):
    with pytest.raises(GoldenError, match="needs a reason"):
        bless([shop.composition], presses(), reason)


def test_the_ledger_says_what_moved_why_and_by_what_and_is_reproducible(shop, tmp_path):
    entries = json.loads((shop.folder / LEDGER).read_text())["entries"]
    assert [(entry["file"], entry["before"], entry["reason"]) for entry in entries] == [
        (DIGESTS, None, "First."),
        (FIGURES, None, "First."),
    ]
    assert entries[0]["tools"].keys() == {"kinfolk-core", "reel", "sheet"}
    assert entries[1]["tools"] == entries[0]["tools"] | {"press20": "press20-1", "press22": "press22-1"}
    assert entries[0]["moved"] == ["llvm20: 3 rows, new", "llvm22: 3 rows, new"]
    other = Shop.opened(tmp_path, f"golden_reel_{next(PACKAGES)}", 32, 64, 96)
    bless([other.composition], presses(), "First.")
    for path in shop.folder.iterdir():
        assert (other.folder / path.name).read_bytes() == path.read_bytes()


def test_a_new_flavor_is_served_and_fails_until_it_is_blessed(shop, monkeypatch):
    monkeypatch.setitem(registered_flavors, "llvm23", Flavor(23, "llvm23"))
    host = presses("press20", "press22", "press23")
    report = checked(shop, host)
    assert [(each.code, each.where.section) for each in report.findings] == [("digests.missing", "llvm23")]
    assert {lane.section: lane.state for lane in report.lanes}["llvm23 by press23-1"] == "not blessed"
    bless([shop.composition], host, "A new lane.")
    assert checked(shop, host, required=["press23"]).passed
    monkeypatch.undo()
    report = checked(shop)
    assert [each.code for each in report.findings if each.where.section == "llvm23"] == ["digests.extra"]


def test_a_family_without_a_package_has_none_and_cannot_be_given_any(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    shop = Shop.opened(tmp_path, f"golden_reel_{next(PACKAGES)}", 32)
    shutil.rmtree(shop.folder.parent)
    assert "digests.missing" in codes(shop)
    with pytest.raises(GoldenError, match="no package with a folder"):
        bless([shop.composition], presses(), "First.")
