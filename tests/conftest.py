"""Fixtures for what crosses distributions: the checkout's root, and the modules of `.ci`, which are no package."""

import fcntl
import hashlib
import importlib.metadata
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
CPP = ("-std=c++17", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Werror")
SANITIZED = ("-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")


def _importable(name: str, tests: str = "tests") -> None:
    """Make a module in a folder of tests importable by name: those folders are no packages."""
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, ROOT / tests / f"{name}.py")
        assert spec is not None and spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])


_importable("built_once")
_importable("emitter_faults")
if importlib.util.find_spec("kinfolk_amdgcn"):  # what imports it is collected only there
    _importable("isa_edits")
    _importable("random_llvm")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--every-request", action="store_true", help="ask readers of bundles all requests, as `make sweep` does"
    )


@pytest.fixture(scope="session")
def root() -> Path:
    """Return the root of the checkout."""
    return ROOT


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


@pytest.fixture(scope="session", name="tool")
def quality_tool() -> ModuleType:
    """Return `tools/measure_quality.py`, the tool of how good kernels are."""
    spec = importlib.util.spec_from_file_location("measure_quality", ROOT / "tools" / "measure_quality.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def sibling() -> Callable[..., ModuleType]:
    """Return a loader of modules by name, each loaded once: those beside these tests, or in another folder of tests."""

    def load(name: str, tests: str = "tests") -> ModuleType:
        if name not in sys.modules:
            _importable(name, tests)
        return sys.modules[name]

    return load


@pytest.fixture(scope="session")
def built_cpp(tmp_path_factory: pytest.TempPathFactory, ci_module: Callable[[str], ModuleType]) -> Callable[..., Path]:
    """Return a builder of a C++ source: warnings are errors, sanitizers on unless other `flags` are given.

    `include` is the folder of the headers, by default the one that ships. Workers share what one of them has built.
    """
    from kinfolk_runtime.bundles import include_folder

    shared = tmp_path_factory.getbasetemp()
    shared = shared.parent if "PYTEST_XDIST_WORKER" in os.environ else shared

    def build(source: Path, *flags: str, include: Path | None = None) -> Path:
        if shutil.which("g++") is None or not ci_module("stages").has_header("nlohmann/json.hpp"):
            pytest.skip("no C++ compiler or no nlohmann/json.hpp is installed (Debian: g++, nlohmann-json3-dev)")
        folder = include or include_folder()
        options = [*CPP, *(flags or SANITIZED), f"-I{folder}", str(source)]
        texts = [path.read_bytes() for path in (source, *sorted(folder.rglob("*.hpp")))]
        key = hashlib.sha256(b"\0".join([" ".join(options).encode(), *texts])).hexdigest()[:16]
        program = shared / f"cpp-{source.stem}-{key}"
        with (shared / "cpp.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not program.exists():
                made = program.with_suffix(".new")
                command = ["g++", *options, "-o", str(made)]
                done = subprocess.run(command, capture_output=True, text=True, check=False)
                assert done.returncode == 0, done.stderr[-5000:]
                made.rename(program)
        return program

    return build
