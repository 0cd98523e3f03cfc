"""The demo runs what is installed, and says of the rest what to install."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

STEPS = ("DeepSeek-V3 on gfx942", "Kimi-K2 on gfx942", "DeepSeek-V3 on gfx950")


def demo(root: Path, allowed: str = "") -> subprocess.CompletedProcess[str]:
    """Run the demo, with no plugin but those allowed where a list is given."""
    settings = {"KINFOLK_PLUGINS": allowed} if allowed else {}
    command = [sys.executable, str(root / "demos" / "spine.py")]
    return subprocess.run(command, env=os.environ | settings, capture_output=True, text=True, check=False)


@pytest.mark.simulate
@pytest.mark.needs("mla", "gfx942", "gfx950")
def test_the_demo_passes(root: Path) -> None:
    done = demo(root)
    assert done.returncode == 0, done.stdout + done.stderr
    for words in (*STEPS, "mla.pipelined: selected", "mla.grouped: selected", "scratch_bytes", "All pass, in "):
        assert words in done.stdout
    assert "left out" not in done.stdout


@pytest.mark.simulate
@pytest.mark.needs("mla", "gfx950")
def test_an_arch_that_is_not_here_is_left_out_by_name(root: Path) -> None:
    done = demo(root, "mla,gfx950,kinfolk-runtime")
    assert (done.returncode, done.stderr) == (0, "")
    left_out = [line for line in done.stdout.splitlines() if "is left out: " in line]
    assert [line.partition("=== ")[2].partition(" is left")[0] for line in left_out] == list(STEPS[:2])
    assert all("gfx942" in line.partition("is left out: ")[2] for line in left_out)
    assert f"=== {STEPS[2]}: " in done.stdout
    assert "All pass" in done.stdout and "2 of 3 left out, see above what to install" in done.stdout


def test_where_nothing_is_here_nothing_passes(root: Path) -> None:
    done = demo(root, "kinfolk-runtime")
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.count("is left out: ") == 3 and "mla" in done.stdout
    assert "Nothing was run" in done.stdout and "pass" not in done.stdout.lower()
