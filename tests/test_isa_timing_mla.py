"""The model of time on MLA: beside the static models of `inspect`, and as `kinfolk profile --executor isa` tells it."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import attrs
import pytest
from click.testing import CliRunner, Result

from kinfolk.timing import CAUSES
from kinfolk_amdgcn.isa import timing
from kinfolk_runtime.cli import inspect
from kinfolk_runtime.cli.profile import command

pytestmark = [pytest.mark.compile, pytest.mark.simulate, pytest.mark.needs("mla", "gfx942", "gfx950")]

ONE_AND_MANY = ("exact_page", "ragged")
FIELDS = ("total_q=1", "num_seqs=1", "max_seqlen_q=1", "absorbed_query=true", "num_seg=1")
SMALL = ("--arch", "gfx950", "num_heads=16", "max_seqlen_k=40", *FIELDS)
WIDE = ("num_heads=128", "max_seqlen_k=256", "candidate=mla.pipelined", *FIELDS)


def asked(*words: str) -> Result:
    return CliRunner().invoke(command, ["mla", "--executor", "isa", *words])


@cache
def document(*words: str) -> Any:
    done = asked(*words, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def static_clocks(arch: str) -> tuple[float, float]:
    """Return the clocks of a round of the main loop by `inspect`'s model `real`, without and with cold blocks."""
    done = CliRunner().invoke(inspect.command, ["mla", "--arch", arch, "--json", "--no-mca", *WIDE])
    assert done.exit_code == 0, done.output
    loop = json.loads(done.stdout)["kernels"][0]["loop"]
    return loop["hot"]["clocks"]["real"], loop["all"]["clocks"]["real"]


def main_loop(found: Any) -> Any:
    inner = [each for each in found["kernels"][0]["loops"] if each["innermost"]]
    return max(inner, key=lambda each: (each["matrix_instructions"], each["clocks"]))


def over_static(arch: str) -> tuple[float, float]:
    """Return the clocks of a round over those that `inspect` has: of one with its cold block, and of one without.

    `exact_page` has one round for each wave, which takes the cold block; of `ragged` one of many does.
    """
    hot, whole = static_clocks(arch)
    first, all_rounds = (main_loop(document("--arch", arch, "--scenario", name, *WIDE)) for name in ONE_AND_MANY)
    others = (all_rounds["clocks"] - first["clocks"]) / (all_rounds["rounds"] - first["rounds"])
    return first["clocks_per_round"] / whole, others / hot


@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
def test_a_loop_that_products_bound_takes_what_the_static_models_say(arch: str) -> None:
    """Somewhat more: scalar instructions issue in turn with the wave's others, and branches are not for nothing."""
    for ratio in over_static(arch):
        assert 1.0 < ratio < 1.1


def test_a_matrix_unit_that_is_too_slow_is_noticed_there(monkeypatch: pytest.MonkeyPatch) -> None:
    known = timing.constants

    def slower(arch: Any) -> Any:
        return tuple(attrs.evolve(each, value=6.0) if each.name == "matrix_pass" else each for each in known(arch))

    monkeypatch.setattr(timing, "constants", slower)
    document.cache_clear()
    assert over_static("gfx942")[1] > 1.3
    document.cache_clear()


def test_the_command_says_where_clocks_go() -> None:
    found = document(*SMALL)
    [row] = found["kernels"]
    assert (found["schema"], found["status"], found["clock_mhz"]) == ("kinfolk.timing/1", "pass", 2200)
    assert found["clocks"] == row["clocks_of_grid"] == max(wave["end"] for wave in row["waves"])
    for part in ("issue", "stalls"):
        assert set(row["spent"][part]) <= set(CAUSES)
        for cause, clocks in row["spent"][part].items():
            assert clocks == pytest.approx(sum(each[part].get(cause, 0) for each in row["instructions"]))
            assert clocks == pytest.approx(sum(each[part].get(cause, 0) for each in row["waves"]))
    for wave in row["waves"]:
        assert wave["clocks"] == pytest.approx(wave["end"] - wave["begin"])
    assert {each["name"] for each in found["constants"]} > {"matrix_pass", "memory_latency"}
    assert all(each["source"] and each["unit"] for each in found["constants"])


def test_tables_fit_a_terminal_of_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kinfolk.cli.table.terminal_width", lambda: 80)
    done = asked(*SMALL, "--sensitivity")
    assert done.exit_code == 0, done.output
    tables = [line for line in done.stdout.splitlines() if "│" in line or "━" in line]
    assert len(tables) > 40 and max(map(len, tables)) <= 80
    assert "pass: " in done.stdout and "nothing was measured" in done.stdout


def test_what_waves_do_is_drawn(tmp_path: Path) -> None:
    path = tmp_path / "waves.svg"
    done = asked(*SMALL, "--plot", str(path))
    assert done.exit_code == 0, done.output
    root = ElementTree.fromstring(path.read_text())
    boxes = [box for box in root if box.tag.endswith("rect")]
    assert len(boxes) > 100
    [row] = document(*SMALL)["kernels"]
    text = asked(*SMALL, "--plot", "-").stdout.splitlines()[-len(row["waves"]) - 3 : -3]
    for wave, line in zip(row["waves"], text, strict=True):
        letters = len(line) - 15
        assert letters == pytest.approx(64 * wave["end"] / row["clocks"], abs=1.01), "a line is as long as its wave ran"


def test_what_is_asked_wrong_is_told() -> None:
    assert CliRunner().invoke(command, ["mla", "--arch", "gfx950", "--sensitivity"]).exit_code == 2
    assert asked(*SMALL, "--scenario", "never").exit_code == 2
    assert "names no format" in asked(*SMALL, "--plot", "waves.nothing").output
    refused = asked("--arch", "gfx950", "num_heads=0", "max_seqlen_k=40", *FIELDS, "--json")
    assert (refused.exit_code, json.loads(refused.stdout)["status"]) == (1, "refused")
