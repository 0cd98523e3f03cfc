"""The table of what each processor has, measured again here: a sample of its rows, and all that installed ops write."""

from __future__ import annotations

import importlib.util
import sys

import pytest

from kinfolk.errors import ToolError
from kinfolk_amdgcn.legality import Legality, Statement, measured
from kinfolk_amdgcn.legality.measure import measure, statuses
from kinfolk_amdgcn.legality.table import Row
from kinfolk_runtime.toolchains import find_linker
from kinfolk_runtime.toolchains.host import toolchain_for
from kinfolk_runtime.toolchains.tool import find_tool, paths_on_host

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


@pytest.fixture(scope="module")
def lanes(tool):
    try:
        find_linker()
        assembler = find_tool("llvm-mc", paths_on_host("llvm-mc"), oldest=22)
        return {llvm: tool.HostLane(toolchain_for(flavor), assembler) for llvm, flavor in tool.FLAVORS.items()}
    except ToolError as error:
        pytest.skip(str(error))


def sample(rows: tuple[Row, ...]) -> list[Row]:
    kept: dict[str, Row] = {}
    for index, row in enumerate(rows):
        seen = str(sorted(row.to_json()["status"].items()))
        if "absent" in seen or "wrong" in seen or "crash" in seen or "rejected" in seen:
            kept.setdefault(seen, row)
        elif index % SAMPLED == 0:
            kept[row.statement.text] = row
    return list(kept.values())


def test_a_sample_measured_again_is_what_the_table_says(tool, lanes):
    rows = sample(measured().rows)
    assert len(rows) > 20 and len({each for row in rows for on in row.status.values() for each in on.values()}) > 5
    used = {row.statement: row.used_by for row in rows}
    again = measure([row.statement for row in rows], used, lanes, tool.PROCESSORS)
    assert Legality(again).to_json() == Legality(tuple(rows)).to_json()


def test_the_measurement_sees_another_table(tool, lanes):
    """Negative control: a row that is said to be ok and is not."""
    [status] = statuses([Statement("call void @llvm.amdgcn.no.such()")], lanes[22], "gfx942")
    assert status == "name_absent"


def test_the_tools_of_the_table_are_those_that_are_installed_here(tool, lanes):
    builds = {tool.FLAVORS[llvm]: lane.toolchain.build for llvm, lane in lanes.items()}
    assert {flavor: measured().tools[flavor] for flavor in builds} == builds


def test_what_every_installed_archs_ops_write_is_in_the_table_and_legal(tool):
    archs = tool.installed_archs()
    used = tool.used_statements(archs, [row.statement for row in measured().rows])
    assert len(used) > 50
    for statement, users in used.items():
        row = measured().find(statement)
        assert row is not None, f"{statement} is new: run tools/measure_legality.py"
        for llvm, names in users.items():
            assert set(names) <= set(row.used_by.get(llvm, ())), f"{statement}: run tools/measure_legality.py"


def test_no_installed_arch_lacks_an_op_of_its_own(tool):
    """What an arch lists as its own, the processor has, with the oldest LLVM and the newest."""
    for arch in tool.installed_archs():
        names = [op.name for op in arch.op_table]
        for llvm in tool.FLAVORS:
            assert measured().lacking(arch.target_ids[0], names, llvm=llvm) == {}
        assert dict(arch.lacking) == measured().lacking(arch.target_ids[0], names)
