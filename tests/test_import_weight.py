"""What `import kinfolk` brings with it, seen in a fresh interpreter: no plugin, no compiler, no terminal library."""

import json
import subprocess
import sys

import pytest

HEAVY = ("llvmlite", "rich", "click", "importlib_metadata")
# A snapshot of names: what the interpreter and its .pth files import is not ours.
PROBE = """
import json, sys
before = set(sys.modules)
exec({statement!r})
print(json.dumps(sorted(set(sys.modules) - before)))
"""


def imported_by(statement: str) -> set[str]:
    """Return the top-level names of the modules that a statement imports in a fresh interpreter."""
    probe = [sys.executable, "-c", PROBE.format(statement=statement)]
    return {
        name.split(".")[0]
        for name in json.loads(subprocess.run(probe, capture_output=True, text=True, check=True).stdout)
    }


def heavy(names: set[str]) -> set[str]:
    """Return what of `names` has no place in a plain import: heavy packages, and our other distributions."""
    return {name for name in names if name in HEAVY or name.startswith("kinfolk_")}


def test_importing_core_is_light():
    names = imported_by("import kinfolk")
    assert "kinfolk" in names
    assert heavy(names) == set()


def test_the_hip_executor_imports_no_binding_before_it_is_made():
    """And the binding is there to be imported."""
    assert not {"hip", "rocm"} & imported_by(
        "import kinfolk_runtime.hip, kinfolk_runtime.runner, kinfolk_runtime.hip.fake"
    )
    assert {"hip", "rocm"} <= imported_by("import hip")


@pytest.mark.parametrize(
    "name",
    [
        "llvmlite",
        "rich",
        "kinfolk_runtime",
        pytest.param("kinfolk_mla.plugin", marks=pytest.mark.needs("mla")),
        pytest.param("kinfolk_gfx942.plugin", marks=pytest.mark.needs("gfx942")),
    ],
)
def test_the_check_sees_an_import(name):
    """Negative control: each thing that must not come along is there to be imported, and is seen when it is."""
    assert name.split(".")[0] in heavy(imported_by(f"import kinfolk, {name}"))
