"""Build every wheel, install them with torch into a fresh environment, and run the tests of `interop/torch` there.

No other environment of the project has torch, so that nothing else can come to need it. The tests run from copies
outside the checkout, as those of the wheels do; a family as `kinfolk new` writes it is installed beside ours.
"""

import shutil
import subprocess
import sys
import tempfile
import tomllib
import venv
from collections.abc import Sequence
from pathlib import Path

from lanes import ELSEWHERE, OUT, ROOT, Record, holds_tests, unlisted_skips
from wheels import answer, build, run

TESTS = Path(ELSEWHERE)
FAMILY = "row_scale"
WITHOUT = """
import sys
import kinfolk, kinfolk_runtime.runner
try:
    import kinfolk_runtime.torch
except ImportError as error:
    print(type(error).__name__, error)
"""


def installed(folder: Path, wheels: Sequence[Path]) -> Path:
    """Install the wheels into an environment without torch, see that this is said by name, then install torch."""
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", python]
    run([*pip, "install", "--quiet", *wheels], folder)
    status, said = answer([python, "-c", WITHOUT], folder)
    if status or "pip install 'kinfolk-runtime[torch]'" not in said:
        raise SystemExit(f"without torch, its import (exit {status}) says {said}")
    [runtime] = [wheel for wheel in wheels if wheel.name.startswith("kinfolk_runtime-")]
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]["torch"]
    run([*pip, "install", "--quiet", "--no-compile", f"{runtime}[torch]", *wanted], folder)
    run([*pip, "check"], folder)
    return python


def stranger(kinfolk: Path, work: Path, wheelhouse: Path) -> Path:
    """Return the wheel of a family as anyone would begin one."""
    run([kinfolk, "new", "family", FAMILY], work)
    run([sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", wheelhouse, work / FAMILY], work)
    [wheel] = wheelhouse.glob(f"kinfolk_{FAMILY}-*.whl")
    return wheel


def tested(python: Path, work: Path) -> list[str]:
    """Run the tests and return what is wrong beside those that failed, which raise."""
    shutil.copytree(ROOT / TESTS, work / TESTS, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "docs", work / "docs")
    for name in ("pyproject.toml", "conftest.py"):
        shutil.copy(ROOT / name, work / name)
    record = OUT / "torch.json"
    record.parent.mkdir(parents=True, exist_ok=True)
    record.unlink(missing_ok=True)
    plugin = ("-p", "lane_record", "--lane-record", record, "-p", "no:cacheprovider")
    run([python, "-m", "pytest", "-q", "--durations=5", *plugin, TESTS], work, PYTHONPATH=str(ROOT / ".ci"))
    ran = Record.read(record)
    files = {path.relative_to(ROOT).as_posix() for path in (ROOT / TESTS).glob("**/*.py") if holds_tests(path)}
    passed = {nodeid.split("::")[0] for nodeid, outcome in ran.outcomes.items() if outcome == "passed"}
    return [*unlisted_skips({"torch": ran}, {}), *(f"no test of {name} passed" for name in sorted(files - passed))]


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="kinfolk-torch-") as folder:
        work = Path(folder)
        for name in ("wheelhouse", "environment", "tests", "theirs"):
            (work / name).mkdir()
        try:
            wheels = build(work / "wheelhouse")
            python = installed(work / "environment", wheels)
            theirs = stranger(python.parent / "kinfolk", work / "theirs", work / "wheelhouse")
            run([sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", theirs], work)
            found = tested(python, work / "tests")
        except subprocess.CalledProcessError as error:
            print(f"FAILED ({error.returncode}): {' '.join(map(str, error.cmd))}")
            return 1
    for line in found:
        print(f"GATE: {line}")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
