"""`kinfolk profile PATH`: where the time of anybody's code object goes, here of Triton's, and what cannot be timed."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from kinfolk_runtime.cli.compare import command as compare
from kinfolk_runtime.cli.profile import command as profile

pytestmark = [pytest.mark.simulate, pytest.mark.needs("gfx942", "gfx950")]

TRITON = Path(__file__).parent / "triton"
OBJECT, PROBLEM = TRITON / "matmul-gfx942.hsaco", TRITON / "matmul.toml"


def profiled(*words: object) -> Result:
    return CliRunner().invoke(profile, [str(word) for word in words])


def test_an_object_takes_the_clocks_that_a_comparison_says_and_they_add_up() -> None:
    done = profiled(OBJECT, "--executor", "isa", "--problem", PROBLEM, "--json", "--plot", "-")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert (found["schema"], found["status"], found["arch"]) == ("kinfolk.timing/1", "pass", "gfx942")
    assert (found["object"], found["family"], found["candidate"]) == (str(OBJECT), None, None)
    [kernel] = found["kernels"]
    assert (kernel["symbol"], kernel["spec_digest"], kernel["block"]) == ("matmul", None, 256)
    assert kernel["workgroups"]["grid"] == 6
    words = [str(OBJECT), str(OBJECT), "--problem", str(PROBLEM), "--json"]
    [launch] = json.loads(CliRunner().invoke(compare, words).stdout)["a"]["launches"]
    assert round(found["clocks"]) == launch["clocks"] > 0
    for cause, clocks in kernel["spent"]["stalls"].items():
        assert clocks == pytest.approx(sum(each["stalls"].get(cause, 0) for each in kernel["instructions"]))
    assert "matmul: " in done.stderr and "SIMD 0" in done.stderr


def test_more_to_do_takes_longer_and_is_told_as_a_table(tmp_path: Path) -> None:
    deeper = tmp_path / "deeper.toml"
    text = PROBLEM.read_text().replace("[70, 100]", "[70, 400]").replace("[100, 50]", "[400, 50]")
    deeper.write_text(text.replace("50, 100, {", "50, 400, {"))
    clocks = []
    for problem in (PROBLEM, deeper):
        told = profiled(OBJECT, "--executor", "isa", "--problem", problem).stdout
        assert f"{OBJECT} on gfx942" in told and "s_barrier" in told
        clocks.append(int(told.rpartition("pass: ")[2].partition(" clocks")[0].replace(",", "")))
    assert clocks[1] > 2 * clocks[0]


def test_an_object_that_breaks_a_rule_is_not_timed(tmp_path: Path) -> None:
    short = tmp_path / "short.toml"
    short.write_text(PROBLEM.read_text().replace("dynamic_bytes = 2048", "dynamic_bytes = 256"))
    done = profiled(OBJECT, "--executor", "isa", "--problem", short, "--json")
    [row] = json.loads(done.stdout)["refusals"]
    assert done.exit_code == 1 and "past the 256 bytes of the workgroup's memory" in row["because"]
    told = profiled(OBJECT, "--executor", "isa", "--problem", short).output
    assert "[memory]" in told and "nothing was timed" in told


@pytest.mark.parametrize(
    "words, status, said",
    [
        ((OBJECT, "--problem", PROBLEM), 2, "--executor isa runs it"),
        ((OBJECT, "--executor", "isa"), 2, "give a --problem"),
        ((OBJECT, "--executor", "isa", "--problem", PROBLEM, "num_heads=1"), 2, "on a --problem alone"),
        ((TRITON / "none.hsaco", "--executor", "isa"), 2, "there is no file"),
        (("mla", "--executor", "isa"), 2, "Missing option '--arch'"),
        (("mla", "--arch", "gfx942", "--problem", PROBLEM), 2, "a family has a --scenario"),
        ((OBJECT, "--executor", "isa", "--problem", TRITON / "add.toml"), 1, "takes 8 arguments"),
        ((OBJECT, "--arch", "gfx950", "--executor", "isa", "--problem", PROBLEM), 1, "is for gfx942, not for gfx950"),
        ((PROBLEM, "--executor", "isa", "--problem", PROBLEM), 1, "names no processor"),
    ],
)
def test_what_cannot_be_profiled_is_told(words: tuple[object, ...], status: int, said: str) -> None:
    done = profiled(*words)
    assert done.exit_code == status, done.output
    assert said in " ".join(done.output.split())


def test_the_blocks_of_the_page_run_and_the_planted_fault_is_the_one_it_shows(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = Path(__file__).parent.parent
    monkeypatch.chdir(root)
    page = (root / "docs" / "isa.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    names: dict[str, Any] = {}
    for block in (blocks[0], next(each for each in blocks if "read_kernel" in each)):
        exec(compile(block, "docs/isa.md", "exec"), names)
    first, fault = capsys.readouterr().out.splitlines()
    assert first.endswith(" True") and fault in page and fault.endswith("[race]")
