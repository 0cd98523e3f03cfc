"""Build every wheel, install the wheels alone into a fresh environment, and run the smoke test and each distribution's own tests there.

The work folder lies outside the checkout, so nothing of the source tree can be imported: what passes here is in the wheels.
Runs in the development environment, whose build backend it uses; the network is needed for third-party dependencies only.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
import venv
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VERIFY = (
    "verify", "mla", "--arch", "gfx942", "num_heads=16", "num_seqs=2", "total_q=2", "max_seqlen_q=1", "max_seqlen_k=40",
    "absorbed_query=true", "--json",
)  # fmt: skip


def projects(root: Path) -> list[Path]:
    """Return the folder of every distribution, the root's last."""
    found = [path.parent for pattern in ("core", "runtime", "arch/*", "plugins/*") for path in root.glob(f"{pattern}/pyproject.toml")]
    return [*sorted(found), root]


def run(command: Sequence[str | Path], cwd: Path, **options: object) -> subprocess.CompletedProcess[str]:
    """Run a command as a stranger's shell would: without our paths in the environment."""
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    print("$", *(Path(command[0]).name, *command[1:]), flush=True)
    return subprocess.run([str(word) for word in command], cwd=cwd, env=environment, text=True, **options)  # type: ignore[call-overload]


def build(wheelhouse: Path) -> list[Path]:
    """Build a wheel of every distribution; each must hold its own version and, except the root's, a package with its type marker."""
    for project in projects(ROOT):
        run([sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", wheelhouse, project], ROOT, check=True, stdout=subprocess.DEVNULL)
    wheels = sorted(wheelhouse.glob("*.whl"))
    if len(wheels) != len(projects(ROOT)):
        raise SystemExit(f"{len(projects(ROOT))} distributions gave {len(wheels)} wheels: {[wheel.name for wheel in wheels]}")
    return wheels


def fresh_environment(folder: Path, wheels: Sequence[Path]) -> Path:
    """Install the wheels by path, so that nothing of that name from an index can take their place, and the test tools."""
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]["test"]
    run([python, "-m", "pip", "install", "--quiet", *wheels, *tools], folder, check=True)
    run([python, "-m", "pip", "check"], folder, check=True)
    return python


def smoke(python: Path, empty: Path) -> None:
    """Import, list and verify from an empty folder; what is imported must come from the fresh environment."""
    where = run([python, "-c", "import kinfolk, kinfolk_runtime; print(kinfolk.__file__, kinfolk_runtime.__file__, sep='\\n')"], empty, check=True, stdout=subprocess.PIPE)
    for path in where.stdout.split():
        if not Path(path).resolve().is_relative_to(python.parent.parent.resolve()):
            raise SystemExit(f"the smoke test imported {path}, which is not from the wheels")
    kinfolk = python.parent / "kinfolk"
    listed = json.loads(run([kinfolk, "list", "--json"], empty, check=True, stdout=subprocess.PIPE).stdout)
    if missing := [name for name in ("mla", "gfx942") if f'"{name}"' not in json.dumps(listed)]:
        raise SystemExit(f"kinfolk list does not name {missing}: {listed}")
    verified = run([kinfolk, *VERIFY], empty, stdout=subprocess.PIPE)
    report = json.loads(verified.stdout or "{}")
    if verified.returncode or report.get("status") != "pass" or not report.get("kernels"):
        raise SystemExit(f"kinfolk verify from the wheels did not pass (exit {verified.returncode}): {json.dumps(report)[:2000]}")


def own_tests(python: Path, work: Path) -> None:
    """Run each distribution's tests, copied out of the tree; the lanes that compile and simulate ran in the tree already."""
    shutil.copy(ROOT / "pyproject.toml", work)
    shutil.copytree(ROOT / ".ci", work / ".ci", ignore=shutil.ignore_patterns("out"))
    for project in projects(ROOT)[:-1]:
        if not (project / "tests").is_dir():
            raise SystemExit(f"{project.relative_to(ROOT)} ships no tests")
        shutil.copytree(project / "tests", work / project.relative_to(ROOT) / "tests")
    folders = [f"{project.relative_to(ROOT)}/tests" for project in projects(ROOT)[:-1]]
    command = [
        "-m", "pytest", "-q", "-n", "auto", "-p", "no:benchmark", "-p", "no:cacheprovider", "-m", "not compile and not simulate", *folders,
    ]  # fmt: skip
    started = time.monotonic()
    run([python, *command], work, check=True)
    print(f"tests against the wheels: {time.monotonic() - started:.0f} s")


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="kinfolk-wheels-") as folder:
        work = Path(folder)
        for name in ("wheelhouse", "environment", "empty", "tests"):
            (work / name).mkdir()
        try:
            wheels = build(work / "wheelhouse")
            python = fresh_environment(work / "environment", wheels)
            smoke(python, work / "empty")
            own_tests(python, work / "tests")
        except subprocess.CalledProcessError as error:
            print(f"FAILED ({error.returncode}): {' '.join(map(str, error.cmd))}")
            return 1
    print(f"wheels: {len(wheels)} built, installed and tested")
    return 0


if __name__ == "__main__":
    sys.exit(main())
