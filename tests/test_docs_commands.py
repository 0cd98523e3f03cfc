"""The documentation's commands, run again: each prints what the page says it prints, numbers and digests aside."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = ("README.md", "docs/cli.md")
BLOCK = re.compile(r"```console\n\$ ([^\n]*)\n(.*?)```", re.DOTALL)


def blocks():
    for page in PAGES:
        for number, (command, printed) in enumerate(BLOCK.findall((ROOT / page).read_text())):
            marks = [pytest.mark.simulate] if " verify " in command else []
            marks += [pytest.mark.compile] if " resources " in command else []
            yield pytest.param(command, printed, id=f"{page}-{number}", marks=marks)


def skeleton(text):
    """Return the words of a text, with a number or a digest as `#` and without rules and spaces."""
    words = re.sub(r"[━╇┃│]+", " ", text).split()
    return [re.sub(r"(?<![A-Za-z])(?:[0-9a-f]{8,16}|\d[\d.]*(?:e[+-]?\d+)?)", "#", word) for word in words]


@pytest.mark.parametrize("command, printed", list(blocks()))
def test_a_page_shows_what_its_command_prints(monkeypatch, tmp_path, command, printed):
    monkeypatch.setenv("KINFOLK_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False, cwd=ROOT)
    assert skeleton(done.stdout) == skeleton(printed), done.stdout + done.stderr


def test_the_comparison_sees_another_word_and_no_other_number():
    said = "ragged │ out │ pass │ 0.462 │ mla_decode_h128_bf16_9bbd0ce5"
    assert skeleton(said) == skeleton(said.replace("0.462", "4.6e-07").replace("9bbd0ce5", "00000000"))
    assert skeleton(said) != skeleton(said.replace("pass", "fail"))


def test_both_pages_show_commands():
    assert all(BLOCK.search((ROOT / page).read_text()) for page in PAGES)
