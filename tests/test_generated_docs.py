"""The tables in docs/generated are what the installed plugins and their goldens give, and nobody's by hand."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from kinfolk.ir.ops import CORE_OPS


@pytest.fixture(scope="module")
def tool(root: Path) -> Iterator[ModuleType]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(root / "tools")
        yield loaded(root)


def loaded(root: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate_docs", root / "tools" / "generate_docs.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def checked(root: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(root / "tools" / "generate_docs.py"), "--check", "--folder", str(folder)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_pages_are_as_generated(root: Path, tool: ModuleType) -> None:
    folder = root / "docs" / "generated"
    assert tool.differences(tool.generated(folder), folder) == [], f"run: {tool.COMMAND}"


@pytest.mark.needs("mla", "gfx942")
@pytest.mark.parametrize("change", ["a word", "a page less", "a page more", "none"])
def test_a_difference_is_shown_with_the_command(root: Path, tmp_path: Path, change: str) -> None:
    folder = tmp_path / "generated"
    shutil.copytree(root / "docs" / "generated", folder)
    page = folder / "support.md"
    if change == "a word":
        page.write_text(page.read_text().replace("`num_seqs` | at most 65535", "`num_seqs` | at most 65536", 1))
    elif change == "a page less":
        page.unlink()
    elif change == "a page more":
        (folder / "more.md").write_text("more\n")
    done = checked(root, folder)
    assert done.returncode == (change != "none")
    assert ("python tools/generate_docs.py" in done.stdout) == (change != "none")
    if change == "a word":
        assert "-| `num_seqs`" in done.stdout and "+| `num_seqs`" in done.stdout


def test_a_section_of_what_is_not_installed_is_kept_and_of_what_does_not_exist_is_not(
    root: Path, tool: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = root / "docs" / "generated"
    before = {name: (folder / name).read_text(encoding="utf-8") for name in tool.PAGES}
    monkeypatch.setattr(tool, "usable", lambda kind: ())
    now = tool.generated(folder)
    assert {name: now[name] for name in tool.PAGES} == before
    monkeypatch.setattr(tool, "absent", set)
    assert all("## " not in tool.generated(folder)[name] for name in tool.PAGES)


def test_the_tables_hold_what_they_are_for(root: Path, tool: ModuleType) -> None:
    pages = tool.generated(root / "docs" / "generated")
    assert "16, 32, 64 or 128" in pages["support.md"]
    assert "| 2 | mla.grouped | 4 |" in pages["priority.md"] and "| 3 | mla.decode | 5 |" in pages["priority.md"]
    assert all(f"## mla on {arch}" in pages["resources.md"] for arch in ("gfx942", "gfx950"))
    assert {"llvm20 by", "llvm22 by llvmlite", "llvm22 by llc"} <= {
        word for word in ("llvm20 by", "llvm22 by llvmlite", "llvm22 by llc") if word in pages["resources.md"]
    }


def test_the_list_of_the_toolkit_names_every_op_that_a_kernel_can_be_made_of(root: Path, tool: ModuleType) -> None:
    """Each under the name by which it is called, with words; what lowerings alone use is not in it."""
    page = tool.generated(root / "docs" / "generated")["toolkit.md"]
    rows = dict(re.findall(r"^\| `(\w+)` \| .* \| (.*) \|$", page, re.MULTILINE))
    called = {"for": "for_range", "if": "if_else", "and": "and_", "or": "or_"}
    built_in = {"return", "yield"}
    ops = {op.name.removeprefix("core.") for op in CORE_OPS} - built_in
    assert {called.get(name, name) for name in ops} <= rows.keys()
    assert all(text.strip() for text in rows.values()), [name for name, text in rows.items() if not text.strip()]
    assert {"OnlineSoftmax", "Contraction", "WorkgroupTile", "across_lanes"} <= rows.keys()
    assert not rows.keys() & {"buffer_address", "alignment_of", "lane_op"}


def test_a_bar_in_a_sentence_is_no_column(tool: ModuleType) -> None:
    assert tool.table(("a", "b"), [("x|y", 1)]).splitlines()[-1] == "| x\\|y | 1 |"
