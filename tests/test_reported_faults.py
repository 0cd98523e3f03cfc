"""The pages of reported faults: every number is there, every test they name exists, and what is to come is counted."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.needs("mla", "attention_bwd", "attention_fwd", "gfx942", "gfx950")

ROOT = Path(__file__).resolve().parent.parent
NUMBERS = {
    "attention_bwd": {43, 45, 46, 47, 48, 51, 52, 54, 55, 56, 57, 58},
    "attention_fwd": {22, 24, 26, 27, 28, 31, 32, 34, 35, 36, 38, 39, 40, 42},
    "mla": {1, 2, 3, 4, 6, 7, 9, 10, 11, 13, 14, 16, 17, 18, 19, 20},
}
TO_COME: dict[str, set[int]] = {family: set() for family in NUMBERS}
ROW = re.compile(r"^\| (\d+) \| (.+?) \| (.+?) \| (held|to come) \| (.+?) \|$", re.MULTILINE)
TEST = re.compile(r"`([\w/]+\.py(?:::\w+)+)`")


def rows(family):
    """Return (number, fault, seen in, state, held by) of each row of a family's page."""
    text = (ROOT / "docs/reported_faults" / f"{family}.md").read_text()
    assert len(ROW.findall(text)) == len(re.findall(r"^\| \d", text, re.MULTILINE)), "a row of another form"
    return [(int(number), *rest) for number, *rest in ROW.findall(text)]


def missing(names):
    """Return which of the tests pytest does not collect."""
    files = sorted({path for name in names if (ROOT / (path := name.partition("::")[0])).is_file()})
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *files]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    collected = {line.partition("[")[0] for line in done.stdout.splitlines()}
    return sorted(set(names) - collected)


@pytest.mark.parametrize("family", NUMBERS)
def test_every_number_is_there_once(family):
    numbers = [number for number, *_ in rows(family)]
    assert numbers == sorted(NUMBERS[family])


@pytest.mark.parametrize("family", NUMBERS)
def test_each_names_a_test_and_what_is_to_come_a_reason(family):
    for number, fault, seen, state, held in rows(family):
        assert fault and seen, number
        assert TEST.findall(held), f"{number} names no test"
        reason = TEST.sub("", held).strip(" ;:")
        assert state == "held" or len(reason) > 20, f"{number} is to come and says no reason"


@pytest.mark.parametrize("family", NUMBERS)
def test_what_is_to_come_is_counted(family):
    """A fault that becomes held leaves the list here, and none comes to it unseen."""
    assert {number for number, _, _, state, _ in rows(family) if state == "to come"} == TO_COME[family]


@pytest.mark.parametrize("family", NUMBERS)
def test_every_test_that_is_named_is_collected(family):
    names = sorted({name for *_, held in rows(family) for name in TEST.findall(held)})
    assert len(names) > 10
    assert missing(names) == []


def test_a_test_that_is_not_there_is_told():
    known = "tests/test_reported_faults.py::test_every_number_is_there_once"
    gone = ["tests/test_nowhere.py::test_it", "tests/test_reported_faults.py::test_nobody_wrote"]
    assert missing([known, *gone]) == gone


def test_every_page_is_read_here():
    assert {path.stem for path in (ROOT / "docs/reported_faults").glob("*.md")} == NUMBERS.keys()
