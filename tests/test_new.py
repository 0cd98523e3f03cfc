"""`kinfolk new` as a stranger uses it: written outside the tree, installed from its folder, its own tests run there."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kinfolk.templates import TEMPLATES

pytestmark = pytest.mark.needs("mla", "gfx942", "gfx950")

FAMILY, ARCH = "column_scale", "wide32"
NAMES = {"family": FAMILY, "arch": ARCH}
PYTEST = ("-m", "pytest", "-q", "-rA", "-p", "no:cacheprovider", "-p", "no:benchmark", "-p", "no:xdist")
ROWS = ("rows=3", "columns=777")
QUERY = ("num_seqs=2", "total_q=2", "max_seqlen_q=1", "max_seqlen_k=40", "absorbed_query=true")


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return the folders of a new family and of a new arch."""
    work = tmp_path_factory.mktemp("written")
    for kind, name in NAMES.items():
        TEMPLATES[kind].write(name, work / name)
    return {kind: work / name for kind, name in NAMES.items()}


@pytest.fixture(scope="module")
def site(
    written: dict[str, Path], tmp_path_factory: pytest.TempPathFactory, pip_installed: Callable[[Path, Path], None]
) -> Path:
    """Return a folder into which pip installed both, from the wheels that it built."""
    folder = tmp_path_factory.mktemp("site")
    for source in written.values():
        pip_installed(source, folder)
    return folder


@pytest.fixture
def answered(ran, site: Path, tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """Return what runs a verb where both are installed and gives its document, which must be of a status."""

    def run(verb: str, *words: str, status: str = "pass", code: str = "") -> dict[str, Any]:
        call = f"from kinfolk.cli import main; import sys; sys.argv[1:] = {[verb, *words, '--json']!r}; main()"
        done = ran([site], "-c", f"{code}\n{call}", cwd=tmp_path)
        assert done.stdout, done.stderr
        document = json.loads(done.stdout)
        assert document.get("status", "pass") == status, done.stdout[:4000]
        return document

    return run


def run_tests(ran, site: Path, folder: Path, *arguments: str) -> set[str]:
    """Run a copy's own tests and return the names of the files of which some passed; a skip is a failure too."""
    done = ran([site], *PYTEST, *arguments, cwd=folder)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-1000:]
    assert not re.search(r"\d+ (skipped|xfailed)", done.stdout), done.stdout[-500:]
    return set(re.findall(r"^PASSED tests/(\S+?)::", done.stdout, re.MULTILINE))


@pytest.mark.compile
@pytest.mark.simulate
@pytest.mark.parametrize("kind", NAMES)
def test_the_own_tests_pass_at_once(ran, site: Path, written: dict[str, Path], kind: str) -> None:
    """A new family's on the new arch here, and from wheels on every arch that is installed (`.ci/wheels.py`)."""
    folder = written[kind]
    ran_from = run_tests(ran, site, folder, "-k", "not gfx942 and not gfx950")
    assert ran_from == {path.name for path in (folder / "tests").glob("test_*.py")}


@pytest.mark.compile
@pytest.mark.simulate
def test_a_fault_in_a_new_family_fails_its_own_tests(ran, site: Path, written: dict[str, Path], tmp_path: Path) -> None:
    """The control: a bound that is one too large in an otherwise equal copy, seen by kinfolk verify too."""
    package = f"kinfolk_{FAMILY}"
    row = (site / package / "row.py").read_text(encoding="utf-8")
    assert row.count("return column < self.columns") == 1
    wrong = tmp_path / package
    wrong.mkdir()
    for path in (site / package).glob("*.py"):
        text = path.read_text(encoding="utf-8").replace("column < self.columns", "column <= self.columns")
        (wrong / path.name).write_text(text, encoding="utf-8")
    done = ran([tmp_path, site], *PYTEST, "tests", "-k", f"{ARCH}-bf16 or bf16-32", cwd=written["family"])
    failed = set(re.findall(r"^FAILED tests/(\S+?)::", done.stdout, re.MULTILINE))
    assert done.returncode == 1
    assert failed == {f"test_{FAMILY}_installed.py", f"test_{FAMILY}_kernel.py"}
    done = ran([tmp_path, site], "-m", "kinfolk", "verify", FAMILY, "--arch", ARCH, *ROWS, "dtype=bf16", cwd=tmp_path)
    assert done.returncode == 1 and "between the rows of x" in done.stdout, done.stdout + done.stderr


@pytest.mark.compile
@pytest.mark.parametrize("flavor", ["llvm20", "llvm22"])
def test_a_new_family_compiles_on_a_new_arch(answered, flavor: str) -> None:
    kernels = answered("resources", FAMILY, "--arch", ARCH, "--flavor", flavor)["kernels"]
    assert [(each["arch"], each["scratch_bytes"], each["workgroup_bytes"]) for each in kernels] == [(ARCH, 0, 32)] * 3


@pytest.mark.compile
@pytest.mark.simulate
def test_mla_decode_runs_on_an_arch_that_it_has_never_seen(answered) -> None:
    """Waves of 32, atoms of 16x8x16 whose operands part k differently, no views in hardware: through the toolkit."""
    report = answered("verify", "mla", "--arch", ARCH, "num_heads=48", *QUERY)
    assert (report["candidate"], report["arch"]) == ("mla.decode", ARCH) and len(report["scenarios"]) >= 18
    kernels = [(kernel["scratch_bytes"], kernel["workgroup_bytes"]) for kernel in report["kernels"]]
    assert kernels == [(0, 24832), (0, 0)]


WRONG_PLACES = """
from kinfolk.tile import contraction
right = contraction._places
def wrong(columns, name):
    start, parts = right(columns, name)
    return start, (0,) * len(parts)
contraction._places = wrong
"""


@pytest.mark.compile
@pytest.mark.simulate
def test_a_part_of_a_row_from_the_wrong_place_is_seen_there(answered, monkeypatch, tmp_path: Path) -> None:
    """The control: lanes read the second half of their k where the first lies."""
    monkeypatch.setenv("KINFOLK_CACHE_DIR", str(tmp_path / "cache"))  # what is kept knows nothing of the fault
    words = ("num_heads=48", *QUERY, "--scenario", "ragged")
    report = answered("verify", "mla", "--arch", ARCH, *words, status="fail", code=WRONG_PLACES)
    [scenario] = report["scenarios"]
    assert [output["name"] for output in scenario["outputs"] if output["margin"] > 1] == ["out", "lse"]


@pytest.mark.compile
def test_code_without_an_object_is_no_bundle(ran, site: Path, tmp_path: Path) -> None:
    words = ("emit", FAMILY, "--arch", ARCH, "--stage", "bundle", "--all", "-o", "bundle")
    done = ran([site], "-m", "kinfolk", *words, cwd=tmp_path)
    assert done.returncode == 1 and "is compiled to assembly, and a bundle holds linked objects" in done.stderr
    assert not (tmp_path / "bundle").exists()


def test_what_does_not_run_there_says_exactly_what_is_missing(answered) -> None:
    answer = answered("why", "mla", "--arch", ARCH, "num_heads=128", *QUERY)
    assert answer["selected"] == "mla.decode"
    [pipelined] = [each for each in answer["candidates"] if each["name"] == "mla.pipelined"]
    rows = {row["code"].removeprefix("mla.pipelined.spec."): row for row in pipelined["refusals"]}
    assert set(rows) == {"atom", "wave_size", "registers"}
    assert "matrix.16x16x16.bf16.bf16.f32" in rows["atom"]["limit"]
    assert rows["wave_size"]["limit"] == "an arch whose wave_size is 64"
    assert rows["registers"]["limit"] == "an arch that declares simds_per_cu and vgprs_per_simd"
    assert all(row["remedy"] for row in rows.values())
