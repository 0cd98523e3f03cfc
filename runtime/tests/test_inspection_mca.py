"""llvm-mca is asked in a process with a time limit; what it does not say is a note and no error."""

from __future__ import annotations

import pytest

from kinfolk.machine import Cost, Instruction
from kinfolk_runtime.inspection.mca import mca_cycles
from kinfolk_runtime.toolchains.tool import Tool

BODY = (
    Instruction(text="v_add v0, v1, v2", issue="vector", costs={"llvm": Cost(4, 4)}),
    Instruction(text="s_barrier", issue="barrier"),
)


def program(folder, script):
    path = folder / "mca"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return Tool(path, "22.1.8", "llvm")


def said(folder, script, seconds=10.0):
    return mca_cycles(BODY, "some-triple", "some-cpu", tool=program(folder, script), seconds=seconds)


def test_the_difference_of_two_runs_is_the_steady_state(tmp_path):
    """7 cycles a round and 100 before the first: 20 rounds and 60. Barriers are left out of what it reads."""
    script = 'for word; do case "$word" in -iterations=*) n=${word#*=};; esac; done; cat > "$0.read"\n'
    found = said(tmp_path, script + 'echo "Total Cycles:      $((100 + 7 * n))"')
    assert (found.cycles, found.note) == (7.0, "")
    assert (tmp_path / "mca.read").read_text() == "v_add v0, v1, v2\n"


@pytest.mark.parametrize(
    "script, seconds, note",
    [
        ("sleep 60", 0.2, "it took more than 0.2 s and was stopped"),
        ("cat > /dev/null; echo no", 10.0, "names no total"),
        ("cat > /dev/null; exit 3", 10.0, "ended with status 3"),
    ],
)
def test_one_that_hangs_or_fails_is_said_to(tmp_path, script, seconds, note):
    found = said(tmp_path, script, seconds)
    assert found.cycles is None and note in found.note
