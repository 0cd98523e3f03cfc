"""Fixtures for what crosses distributions: the checkout's root, and the modules of `.ci`, which are no package.

A test here is collected only where the families and archs that it needs are installed: those that its module's or its
own `@pytest.mark.needs("mla", "gfx942")` names, and those that are a parameter of it. Where the lanes run, all are
(`.ci/lanes.py` fails otherwise), so nothing is left out there.
"""

import ast
import importlib.metadata
import importlib.util
import os
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
GROUPS = ("kinfolk.families", "kinfolk.archs")


def offered_in(group: str) -> set[str]:
    """Return the names that the distributions of the checkout offer in an entry-point group."""
    paths = [*ROOT.glob("arch/*/pyproject.toml"), *ROOT.glob("plugins/*/pyproject.toml")]
    tables = [tomllib.loads(path.read_text(encoding="utf-8"))["project"].get("entry-points", {}) for path in paths]
    return {name for table in tables for name in table.get(group, {})}


OFFERED = frozenset(name for group in GROUPS for name in offered_in(group))
INSTALLED = frozenset(entry.name for group in GROUPS for entry in importlib.metadata.entry_points(group=group))
ABSENT = OFFERED - INSTALLED


def module_needs(path: Path) -> Iterator[str]:
    """Yield what a module's `pytestmark` says it needs, read from its text: it may import what is not installed."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and any(getattr(target, "id", "") == "pytestmark" for target in node.targets):
            for call in ast.walk(node.value):
                if isinstance(call, ast.Call) and getattr(call.func, "attr", "") == "needs":
                    yield from (each.value for each in call.args if isinstance(each, ast.Constant))


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leave out modules that need what is not installed."""
    is_module = collection_path.suffix == ".py" and collection_path.name.startswith(("test_", "bench_"))
    return True if is_module and not ABSENT.isdisjoint(module_needs(collection_path)) else None


def item_needs(item: pytest.Item) -> set[str]:
    """Return what a test needs; a name that nobody offers is a mistake, since it would never be collected."""
    named = {name for mark in item.iter_markers("needs") for name in mark.args}
    if unknown := named - OFFERED:
        raise pytest.UsageError(f"{item.nodeid} needs {', '.join(sorted(unknown))}; there are {sorted(OFFERED)}")
    spec = getattr(item, "callspec", None)
    return named | {value for value in (spec.params.values() if spec else ()) if isinstance(value, str)} & OFFERED


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out tests that need what is not installed."""
    here = [item for item in items if Path(__file__).parent in item.path.parents]
    left_out = [item for item in here if not ABSENT.isdisjoint(item_needs(item))]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


def pytest_report_collectionfinish() -> list[str]:
    """Say what is not installed."""
    return [f"not installed, and tests that need it left out: {', '.join(sorted(ABSENT))}"] if ABSENT else []


def _importable(name: str) -> None:
    """Make a module beside the tests importable by name: test folders are no packages."""
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
        assert spec is not None and spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])


_importable("op_cases")


@pytest.fixture(scope="session")
def root() -> Path:
    """Return the root of the checkout."""
    return ROOT


@pytest.fixture(scope="session")
def offered() -> Callable[[str], set[str]]:
    """Return what tells the names that the checkout offers in an entry-point group."""
    return offered_in


@pytest.fixture(scope="session")
def pip_installed() -> Callable[[Path, Path], None]:
    """Return an installer of the distribution in a folder, and nothing it depends on, into another folder."""

    def install(source: Path, site: Path) -> None:
        options = ["--quiet", "--no-deps", "--no-index", "--no-build-isolation", "--disable-pip-version-check"]
        command = [sys.executable, "-m", "pip", "install", *options, "--target", str(site), str(source)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    return install


@pytest.fixture(scope="session")
def ran() -> Callable[..., Any]:
    """Return a runner of Python with `paths` first on its path; `isolated`: with nothing else of what is installed."""

    def run(paths: Iterable[Path], *arguments: str, isolated: bool = False, cwd: Path | None = None) -> Any:
        dropped = ("KINFOLK_PLUGINS", "KINFOLK_DISABLE", "COVERAGE")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
        inherited = [] if isolated else os.environ.get("PYTHONPATH", "").split(os.pathsep)
        places = [str(path) for path in [*paths, *inherited] if str(path)]
        kept |= {"PYTHONPATH": os.pathsep.join(places), "PYTHONDONTWRITEBYTECODE": "1", "COLUMNS": "300"}
        command = [sys.executable, *(["-S"] if isolated else []), *arguments]
        return subprocess.run(command, env=kept, cwd=cwd, capture_output=True, text=True, timeout=300, check=False)

    return run


@pytest.fixture(scope="session")
def ci_module() -> Callable[[str], ModuleType]:
    """Return a loader of the modules of `.ci` by name."""

    def load(name: str) -> ModuleType:
        spec = importlib.util.spec_from_file_location(f"kinfolk_ci_{name}", ROOT / ".ci" / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module  # dataclasses look their module up
        spec.loader.exec_module(module)
        return module

    return load
