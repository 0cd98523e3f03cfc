"""How long a fresh interpreter takes to import the core, and to list the installed plugins without importing any."""

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize(
    "statement",
    ["pass", "import kinfolk", "import kinfolk.plugins"],
    ids=["interpreter-alone", "core", "plugin-loading"],
)
def test_import(benchmark, statement):
    """The first row is the interpreter's own start: subtract it."""
    benchmark(subprocess.run, [sys.executable, "-c", statement], check=True)


def test_list_command(benchmark):
    """The command line from start to exit, with every installed plugin listed."""
    command = [Path(sys.executable).parent / "kinfolk", "list", "--json"]
    benchmark(subprocess.run, command, check=True, stdout=subprocess.DEVNULL)
