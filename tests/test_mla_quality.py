"""The table of how good the kernels of MLA are: of the code that is emitted now, true, and above its floors."""

from __future__ import annotations

import copy
import json
from types import ModuleType
from typing import Any

import pytest

from kinfolk.plugins.composition import Composition, compose
from kinfolk_runtime.goldens.check import section_name
from kinfolk_runtime.goldens.place import Place
from kinfolk_runtime.inspection import inspect_spec
from kinfolk_runtime.toolchains.host import toolchain_for

ARCHS = ("gfx942", "gfx950")
MEASURED = ("mla_pipelined", "mla_grouped", "mla_prefill", "mla_expand")
"""Kernels whose clocks or share of the matrix unit have a floor, over caches of either kind, and the expansion."""
pytestmark = pytest.mark.needs("mla", "gfx942", "gfx950")


def kept(tool: ModuleType, arch: str) -> tuple[Composition, dict[str, Any]]:
    composition = compose("mla", arch)
    return composition, tool.document(composition, arch)


@pytest.mark.parametrize("arch", ARCHS)
def test_every_kernel_is_measured_on_the_code_that_is_blessed(tool: ModuleType, arch: str) -> None:
    composition, found = kept(tool, arch)
    blessed = Place.of(composition).document("figures", arch)
    assert blessed is not None
    code = {row.spec: row.values["llvm"] for row in blessed.sections[section_name("llvm22", found["build"])].rows}
    assert {spec.digest() for spec in tool.launched(composition)} == {row["spec"] for row in found["kernels"]}
    assert all(code.get(row["spec"]) == row["llvm"] for row in found["kernels"]), f"run: {tool.COMMAND}"


def test_every_request_is_served_on_an_arch_and_prefill_of_8_bit_floats_on_each(tool: ModuleType) -> None:
    composed = [compose("mla", arch) for arch in ARCHS]
    types = [[plan.request.to_dict() for plan in tool.plans(each)] for each in composed]
    listed = tool.document(composed[0], "profiled")
    assert all(any(given.items() <= each.items() for served in types for each in served) for given in listed)
    for each in composed:
        symbols = {spec.symbol().rpartition("_")[0] for spec in tool.launched(each)}
        assert sum(symbol.startswith("mla_prefill_f8") for symbol in symbols) == 1
        assert "mla_prefill_bf16" in symbols


@pytest.mark.parametrize("arch", ARCHS)
def test_no_kernel_is_below_its_floor(tool: ModuleType, arch: str) -> None:
    composition, found = kept(tool, arch)
    floors = tool.document(composition, "floors")[arch]
    narrow = {"gfx942": "f8e4m3fnuz", "gfx950": "f8e4m3fn"}[arch]
    wide = {f"mla_{each}_{cache}" for each in ("pipelined", "grouped") for cache in ("bf16", narrow)}
    assert {floor["kernel"] for floor in floors} == {*wide, "mla_prefill", "mla"}
    assert list(tool.broken(composition, found["kernels"])) == []


@pytest.mark.parametrize("arch", ARCHS)
def test_a_kernel_below_its_floor_is_told(tool: ModuleType, arch: str) -> None:
    composition, found = kept(tool, arch)
    for floor in tool.document(composition, "floors")[arch]:
        rows = copy.deepcopy(found["kernels"])
        worse = next(
            row for row in rows if row["symbol"].startswith(floor["kernel"] + "_") and row[floor["figure"]] is not None
        )
        worse[floor["figure"]] = floor.get("at_least", 0.0) - 0.001 if "at_least" in floor else floor["at_most"] + 0.001
        [told] = tool.broken(composition, rows)
        assert worse["symbol"] in told and floor["figure"] in told and arch in told
    assert len(list(tool.broken(composition, []))) == 6, "a floor that no kernel has is told too"


@pytest.mark.compile
@pytest.mark.parametrize("arch", ARCHS)
def test_the_figures_are_those_of_the_compiled_code(tool: ModuleType, arch: str) -> None:
    """By another build of the compiler they may differ, and must stand above their floors all the same."""
    composition, found = kept(tool, arch)
    rows = {row["spec"]: row for row in found["kernels"]}
    now: list[dict[str, Any]] = []
    for spec in tool.launched(composition):
        if spec.symbol().startswith(MEASURED):
            figures = tool.figures(inspect_spec(composition, spec, "llvm22", mca=False))
            now.append({**rows[spec.digest()], **figures})
    assert len(now) >= len(MEASURED)
    if toolchain_for("llvm22").build == found["build"]:
        assert now == [rows[row["spec"]] for row in now], f"run: {tool.COMMAND}"
    assert list(tool.broken(composition, now)) == []


@pytest.mark.parametrize("arch", ARCHS)
def test_what_others_have_names_where_it_is_from(tool: ModuleType, arch: str) -> None:
    composition, _ = kept(tool, arch)
    peers = tool.document(composition, "peers")[arch]
    assert len(peers) >= 9
    for peer in peers:
        assert peer["source"].startswith("github.com/") or peer["source"] == "a prototype"


def test_the_file_is_written_as_it_is_kept(tool: ModuleType) -> None:
    composition, found = kept(tool, "gfx942")
    assert tool.text(found) == (tool.folder_of(composition) / "gfx942.json").read_text(encoding="utf-8")
    assert json.loads(tool.text(found)) == found
