"""The tables of what serves which request: every cell says something, of the archs that there are."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from kinfolk.plugins.composition import compose

pytestmark = pytest.mark.needs("attention_fwd", "gfx942", "gfx950")


@pytest.fixture(scope="module", name="tool")
def tool_of_tables(root: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("served", root / "tools" / "served.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
def test_each_head_size_type_and_page_size_is_served_or_refused_by_name(tool: ModuleType, arch: str) -> None:
    prompts, few = tool.tables(compose("attention_fwd", arch))
    for table in (prompts, few):
        assert all(len(row) == len(table.head) for row in table.rows)
        assert {cell.partition(":")[0] for row in table.rows for cell in row[1:]} <= {
            *("attention_fwd.paged", "attention_fwd.segmented", "refused")
        }
    for table, faster in ((prompts, "attention_fwd.paged"), (few, "attention_fwd.segmented")):
        by_name = {row[0]: dict(zip(table.head, row, strict=True)) for row in table.rows}
        usual = by_name["head_size=128, head_size_v=128, dtype=bf16, kv_dtype=bf16"]
        assert usual["page_size=64"] == usual["page_size=1"] == faster
        assert usual["page_size=48"].startswith("refused: page_size is 48, not ")
        odd = by_name["head_size=112, head_size_v=112, dtype=bf16, kv_dtype=bf16"]
        assert odd["page_size=64"].startswith("refused: head_size is 112, not ")
        wider_keys = by_name["head_size=192, head_size_v=128, dtype=bf16, kv_dtype=bf16"]
        assert wider_keys["page_size=64"] == "attention_fwd.paged"


def test_a_cell_that_says_nothing_fails(tool: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = tool.cell

    def cell(composition: object, given: dict[str, object], *rest: object) -> str:
        return "" if given["page_size"] == 64 and given["head_size"] == 96 else whole(composition, given, *rest)

    monkeypatch.setattr(tool, "cell", cell)
    with pytest.raises(ValueError, match="has a cell that says nothing"):
        list(tool.tables(compose("attention_fwd", "gfx942")))
