"""The command line on a terminal of 80 columns, a pseudo-terminal of the system: nothing is broken inside a word."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios

import pytest

pytestmark = pytest.mark.needs("mla", "gfx942")

WIDTH = 80
REQUEST = ["num_heads=128", "num_seqs=3", "total_q=3", "max_seqlen_q=1", "max_seqlen_k=777", "absorbed_query=true"]
VERBS = {
    "list": ["list"],
    "fields": ["list", "mla"],
    "why": ["why", "mla", "--arch", "gfx942", *REQUEST],
    "tensors": ["why", "mla", "--arch", "gfx942", "--tensors", *REQUEST],
    "refused": ["why", "mla", "--arch", "gfx942", *REQUEST, "page_size=48"],
    "missing": ["why", "mla", "--arch", "gfx942", "num_heads=128"],
    "doctor": pytest.param(["doctor"], marks=pytest.mark.compile),
    "resources": pytest.param(["resources", "mla", "--arch", "gfx942"], marks=pytest.mark.compile),
    "verify": pytest.param(
        ["verify", "mla", "--arch", "gfx942", "--scenario", "exact_page", *REQUEST], marks=pytest.mark.simulate
    ),
}


def on_a_terminal(words):
    """Return what a command writes to a terminal of 80 columns, as lines without styles."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, WIDTH, 0, 0))
    env = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    env |= {"TERM": "xterm"}
    process = subprocess.Popen(
        [sys.executable, "-m", "kinfolk", *words], stdin=theirs, stdout=theirs, stderr=subprocess.DEVNULL, env=env
    )
    os.close(theirs)
    told = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        told += part
    os.close(ours)
    process.wait()
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", told.decode()).splitlines()


def words_of(lines):
    return {word for line in lines for word in re.sub(r"[━╇┃│,:();]+", " ", line).split()}


@pytest.mark.parametrize("words", list(VERBS.values()), ids=list(VERBS))
def test_a_terminal_of_80_columns_has_whole_words(words, tmp_path, monkeypatch):
    if words == ["doctor"]:
        monkeypatch.setenv("KINFOLK_CACHE_DIR", str(tmp_path))  # it says how much is there
    lines = on_a_terminal(words)
    command = [sys.executable, "-m", "kinfolk", *words]
    piped = subprocess.run(command, capture_output=True, text=True, check=False).stdout.splitlines()
    assert len(words_of(piped)) > 10
    longest = max(map(len, words_of(piped)))
    assert all(len(line) <= WIDTH or longest > WIDTH - 8 for line in lines), "\n".join(lines)
    assert {word for word in words_of(piped) - words_of(lines) if len(word) < WIDTH // 2} == set(), "\n".join(lines)
