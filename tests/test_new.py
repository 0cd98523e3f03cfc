"""`kinfolk new` as a stranger uses it: written outside the tree, installed from its folder, its own tests run there."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from kinfolk.templates import TEMPLATES

pytestmark = pytest.mark.needs("gfx942", "gfx950")

FAMILY = "column_scale"
PYTEST = ("-m", "pytest", "-q", "-rA", "-p", "no:cacheprovider", "-p", "no:benchmark", "-p", "no:xdist")


@pytest.fixture(scope="module")
def family(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("family") / FAMILY
    TEMPLATES["family"].write(FAMILY, folder)
    return folder


@pytest.fixture(scope="module")
def site(family: Path, tmp_path_factory: pytest.TempPathFactory, pip_installed: Callable[[Path, Path], None]) -> Path:
    """Return a folder into which pip installed it, from the wheel that it built."""
    folder = tmp_path_factory.mktemp("site")
    pip_installed(family, folder)
    return folder


def run_tests(ran, site: Path, folder: Path, *arguments: str) -> set[str]:
    """Run a copy's own tests and return the names of the files of which some passed; anything else is a failure."""
    done = ran([site], *PYTEST, *arguments, cwd=folder)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-1000:]
    assert not re.search(r"\d+ (skipped|xfailed|deselected)", done.stdout), done.stdout[-500:]
    return set(re.findall(r"^PASSED tests/(\S+?)::", done.stdout, re.MULTILINE))


@pytest.mark.compile
@pytest.mark.simulate
def test_the_own_tests_of_a_new_family_pass_at_once(ran, site: Path, family: Path) -> None:
    assert run_tests(ran, site, family) == {path.name for path in (family / "tests").glob("test_*.py")}


@pytest.mark.compile
@pytest.mark.simulate
def test_a_fault_in_a_new_family_fails_its_own_tests(ran, site: Path, family: Path, tmp_path: Path) -> None:
    """The control: a bound that is one too large in an otherwise equal copy, seen by kinfolk verify too."""
    package = f"kinfolk_{FAMILY}"
    row = (site / package / "row.py").read_text(encoding="utf-8")
    assert row.count("return column < self.columns") == 1
    wrong = tmp_path / package
    wrong.mkdir()
    for path in (site / package).glob("*.py"):
        text = path.read_text(encoding="utf-8").replace("column < self.columns", "column <= self.columns")
        (wrong / path.name).write_text(text, encoding="utf-8")
    done = ran([tmp_path, site], *PYTEST, "tests", cwd=family)
    failed = set(re.findall(r"^FAILED tests/(\S+?)::", done.stdout, re.MULTILINE))
    assert done.returncode == 1
    assert failed == {f"test_{FAMILY}_installed.py", f"test_{FAMILY}_kernel.py"}
    words = ("verify", FAMILY, "--arch", "gfx942", "rows=3", "columns=777", "dtype=bf16")
    done = ran([tmp_path, site], "-m", "kinfolk", *words, cwd=tmp_path)
    assert done.returncode == 1 and "between the rows of x" in done.stdout, done.stdout + done.stderr
