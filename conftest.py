"""What every test has in common: a cache of its own, and that it is collected only where what it needs is installed.

The tests of a distribution need it. A module or a test may say `@pytest.mark.needs("mla", "gfx942")`, by the names of
families and archs, and a test in `tests/` needs those that are a parameter of it. Where the lanes run all are installed
(`.ci/lanes.py` fails otherwise), so nothing is left out there.
"""

import ast
import contextlib
import gc
import importlib.metadata
import importlib.util
import os
import shutil
import tempfile
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent
GROUPS = ("kinfolk.families", "kinfolk.archs")


def offered_in(group: str) -> set[str]:
    """Return the names that the distributions of the checkout offer in an entry-point group."""
    paths = [*ROOT.glob("arch/*/pyproject.toml"), *ROOT.glob("plugins/*/pyproject.toml")]
    tables = [tomllib.loads(path.read_text(encoding="utf-8"))["project"].get("entry-points", {}) for path in paths]
    return {name for table in tables for name in table.get(group, {})}


OFFERED = frozenset(name for group in GROUPS for name in offered_in(group))
INSTALLED = frozenset(entry.name for group in GROUPS for entry in importlib.metadata.entry_points(group=group))
ABSENT = OFFERED - INSTALLED

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
"""Tests run a worker a core, and numpy's threads for a small product mostly wait for each other: a product of 330 by
128 by 330 takes 14 ms of processor time with two threads on busy cores, and 0.5 with one. numpy reads it when imported.
"""
gc.set_threshold(20_000, 10, 20)
"""Kernels are a million small objects that stay; by Python's defaults, looking them through takes a third of a test."""


def module_needs(path: Path) -> Iterator[str]:
    """Yield what a module's `pytestmark` says it needs, read from its text: it may import what is not installed."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and any(getattr(target, "id", "") == "pytestmark" for target in node.targets):
            for call in ast.walk(node.value):
                if isinstance(call, ast.Call) and getattr(call.func, "attr", "") == "needs":
                    yield from (each.value for each in call.args if isinstance(each, ast.Constant))


def is_installed(folder: Path) -> bool:
    """Return whether the distribution in a folder is installed; a folder that holds none counts as such."""
    project = folder / "pyproject.toml"
    if folder == ROOT or not project.exists():
        return True
    name = tomllib.loads(project.read_text(encoding="utf-8"))["project"]["name"]
    return importlib.util.find_spec(name.replace("kinfolk-core", "kinfolk").replace("-", "_")) is not None


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--cache-of-run",
        type=Path,
        metavar="FOLDER",
        help="keep what this run compiles in FOLDER for the next to find (default: a folder that goes with the run)",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Point KINFOLK_CACHE_DIR at a cache of this run, for its workers and all they start; installed LLVMs stay."""
    if hasattr(config, "workerinput"):
        return  # xdist's workers have the environment of the process that started them
    before = os.environ.get("KINFOLK_CACHE_DIR")
    kept = config.getoption("--cache-of-run")
    folder = kept.absolute() if kept else Path(tempfile.mkdtemp(prefix="kinfolk-tests-"))
    folder.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(ImportError):
        from kinfolk_runtime.storage import storage_root

        if (installed := storage_root() / "toolchains").is_dir() and not (folder / "toolchains").exists():
            (folder / "toolchains").symlink_to(installed)
    os.environ["KINFOLK_CACHE_DIR"] = str(folder)

    def forget() -> None:
        if before is None:
            del os.environ["KINFOLK_CACHE_DIR"]
        else:
            os.environ["KINFOLK_CACHE_DIR"] = before
        if not kept:
            shutil.rmtree(folder, ignore_errors=True)

    config.add_cleanup(forget)


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leave out modules that need what is not installed, and the tests of distributions that are not."""
    if collection_path.suffix != ".py" or not collection_path.name.startswith(("test_", "bench_")):
        return None
    if collection_path.parent.name == "tests" and not is_installed(collection_path.parent.parent):
        return True
    return True if not ABSENT.isdisjoint(module_needs(collection_path)) else None


def item_needs(item: pytest.Item) -> set[str]:
    """Return what a test needs; a name that nobody offers is a mistake, since it would never be collected."""
    named = {name for mark in item.iter_markers("needs") for name in mark.args}
    if unknown := named - OFFERED:
        raise pytest.UsageError(f"{item.nodeid} needs {', '.join(sorted(unknown))}; there are {sorted(OFFERED)}")
    spec = getattr(item, "callspec", None)
    return named | {value for value in (spec.params.values() if spec else ()) if isinstance(value, str)} & OFFERED


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out tests that need what is not installed; a name with an address in it is another in each worker."""
    if unnamed := [item.nodeid for item in items if " at 0x" in item.nodeid]:
        raise pytest.UsageError(f"{len(unnamed)} tests are named by where an object lies, as {unnamed[0]}: give ids")
    here = [item for item in items if item.get_closest_marker("needs") or ROOT / "tests" in item.path.parents]
    left_out = [item for item in here if not ABSENT.isdisjoint(item_needs(item))]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


def pytest_report_collectionfinish() -> list[str]:
    """Say what is not installed."""
    return [f"not installed, and tests that need it left out: {', '.join(sorted(ABSENT))}"] if ABSENT else []


@pytest.fixture(scope="session")
def offered() -> Callable[[str], set[str]]:
    """Return what tells the names that the checkout offers in an entry-point group."""
    return offered_in
