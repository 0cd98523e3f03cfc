"""The tables of what each arch's processors have, measured again here by sample, and what a table of its own is worth
to a processor that nobody has measured before.
"""

from __future__ import annotations

import importlib.util
import sys
from importlib.metadata import entry_points

import pytest

from kinfolk.errors import ToolError
from kinfolk_amdgcn.legality import Legality, Statement
from kinfolk_amdgcn.legality.measure import measure, statuses
from kinfolk_amdgcn.legality.table import STATUSES, Row
from kinfolk_amdgcn.target import parse_target_id

pytestmark = pytest.mark.compile

SAMPLED = (
    12  # every so many of the rows that are ok everywhere; of those that are not, the ones with a new set of statuses
)


@pytest.fixture(scope="module")
def tool(root):
    spec = importlib.util.spec_from_file_location("kinfolk_measure_legality", root / "tools" / "measure_legality.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_a_processor_of_another_form_is_a_sentence_with_the_form_wanted(tool, monkeypatch):
    with pytest.raises(SystemExit, match=r"no installed arch has gfx9x in .* without features: gfx942, not"):
        tool.installed_archs(["gfx9x"])
    monkeypatch.setattr(tool, "load", lambda kind, name: parse_target_id("MI300"))
    monkeypatch.setattr(sys, "argv", ["measure_legality.py"])
    with pytest.raises(SystemExit, match=r"'MI300' does not begin with a processor such as gfx942"):
        tool.main()


@pytest.fixture(scope="module")
def lanes(tool):
    try:
        return tool.host_lanes()
    except ToolError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def archs(tool):
    return tool.installed_archs()


def sample(rows: tuple[Row, ...]) -> list[Row]:
    kept: dict[str, Row] = {}
    for index, row in enumerate(rows):
        seen = str(sorted(row.to_json()["status"].items()))
        if "absent" in seen or "wrong" in seen or "crash" in seen or "rejected" in seen:
            kept.setdefault(seen, row)
        elif index % SAMPLED == 0:
            kept[row.statement.text] = row
    return list(kept.values())


def words(rows) -> set[str]:
    return {each for row in rows for on in row.status.values() for each in on.values()}


@pytest.mark.needs("gfx942", "gfx950")
def test_a_sample_measured_again_is_what_the_tables_say(archs, lanes):
    assert len(archs) > 1
    for each in archs:
        rows = sample(each.table.rows)
        assert len(rows) > 12 and len(words(rows)) > 4, each.arch.name
        used = {row.statement: row.used_by for row in rows}
        again = measure([row.statement for row in rows], used, lanes, each.processors)
        assert Legality(again).to_json() == Legality(tuple(rows)).to_json()


def test_the_measurement_sees_another_table(lanes):
    """Negative control: a row that is said to be ok and is not."""
    [status] = statuses([Statement("call void @llvm.amdgcn.no.such()")], lanes[22], "gfx942")
    assert status == "name_absent"


def test_the_tables_use_every_word_that_is_explained(archs):
    assert {each.partition(":")[0] for arch in archs for each in words(arch.table.rows)} == set(STATUSES)


def test_the_tools_of_the_tables_are_those_that_are_installed_here(tool, archs, lanes):
    builds = {tool.FLAVORS[llvm]: lane.toolchain.build for llvm, lane in lanes.items()}
    for each in archs:
        assert {flavor: each.table.tools[flavor] for flavor in builds} == builds


def test_every_installed_arch_that_is_lowered_here_is_measured(archs):
    assert {each.arch.name for each in archs} == {entry.name for entry in entry_points(group="kinfolk.archs")}


@pytest.mark.needs("gfx942", "gfx950")
def test_a_processor_that_no_arch_has_is_named_with_those_there_are(tool):
    with pytest.raises(SystemExit, match=r"no installed arch has gfx1 in its target ids; there are gfx942, gfx950"):
        tool.installed_archs(["gfx942", "gfx1"])
