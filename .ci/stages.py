"""Run every check of the project on a clean clone of HEAD and print each stage's time beside its budget.

    .ci/run                    all stages
    .ci/run lint wheels        these, after install
    .ci/run --here lint        in this checkout, with what is not committed

The commands in the README's block marked `<!-- ci runs this block -->` are stages of their own, run as they stand.
Exit status 0 only if every stage passed within the total. Standard library only: this runs before any install.
"""

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from ctypes.util import find_library
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TOTAL_MINUTES = 25
PATIENCE = 3  # a stage that takes this many times its budget is ended
README_MARK = "<!-- ci runs this block -->"
# The optional tools of the runtime, which CI requires: the command, and Debian's package that brings it.
TOOLS = {"llc-22": "llvm-22", "ld.lld-22": "lld-22", "g++": "g++"}
# The same of C++ headers, which lie in the folders where Debian and others put them.
HEADERS = {"nlohmann/json.hpp": "nlohmann-json3-dev"}
# Libraries that the loader finds by name: HIP, whose executor is tried on a host without a device.
LIBRARIES = {"amdhip64": "libamdhip64-5"}
HEADER_FOLDERS = (Path("/usr/include"), Path("/usr/local/include"))


@dataclass(frozen=True)
class Stage:
    """A shell command, run from the root of the clone, and how many minutes it should take on two cores."""

    name: str
    minutes: float
    command: str


@dataclass(frozen=True)
class Result:
    """How one stage ended; `parts` are the test lanes in it, as (name, seconds, minutes of budget)."""

    stage: Stage
    status: int
    seconds: float
    parts: tuple[tuple[str, float, float], ...] = field(default=())


def readme_commands(readme: str) -> list[str]:
    """Return the commands of the README's marked block, one per line; a lost block or command is an error."""
    blocks = re.findall(re.escape(README_MARK) + r"\n+```\w*\n(.*?)```", readme, re.DOTALL)
    commands = [
        line.strip() for block in blocks for line in block.splitlines() if line.strip() and not line.startswith("#")
    ]
    for needed in ("make demo", "make test", "kinfolk verify "):
        if not any(needed in command for command in commands):
            raise SystemExit(f"the README's block marked {README_MARK} lacks `{needed.strip()}`")
    return commands


def readme_stage(command: str) -> Stage:
    """Return the stage of one command of the README; its budget goes by what it is."""
    minutes = {"make demo": 1, "make test": 14.5}.get(command, 0.5)
    words = command.split()
    name = words[1] if words[0] == "make" else Path(words[0]).name + " " + words[1]
    return Stage(name, minutes, command)


def stages(readme: str) -> list[Stage]:
    """Return all stages in order. Budgets add up to the total."""
    checked = [readme_stage(command) for command in readme_commands(readme)]
    return [
        Stage("install", 3, "make venv llvm20"),
        Stage("lint", 1, "make lint"),
        *checked,
        Stage("wheels", 3, ".venv/bin/python .ci/wheels.py"),
        Stage("torch", 2, "make torch"),
    ]


def has_header(name: str) -> bool:
    """Return whether a header is where a compiler finds it unasked."""
    return any((folder / name).is_file() for folder in HEADER_FOLDERS)


def install_tools() -> str:
    """Return the shell command that brings the missing tools; where nothing can, it says so and fails."""
    missing = {tool: package for tool, package in TOOLS.items() if not shutil.which(tool)}
    missing |= {name: package for name, package in HEADERS.items() if not has_header(name)}
    missing |= {name: package for name, package in LIBRARIES.items() if not find_library(name)}
    if not missing:
        return "true"
    wanted = " ".join(missing.values())
    if not shutil.which("apt-get"):
        return f"echo 'missing: {' '.join(missing)}; install {wanted} and run again' >&2; false"
    sudo = "" if os.geteuid() == 0 else "sudo -n "
    return f"{sudo}apt-get update -q && {sudo}apt-get install -q -y --no-install-recommends {wanted}"


def clean_environment(clone: Path) -> dict[str, str]:
    """Return this environment without settings that could change what is tested, and with an empty cache.

    Nor with the one by which every process compiles the same modules anew: in a clone bytecode is in nobody's way.
    """
    dropped = ("KINFOLK_", "PYTEST_", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "VIRTUAL_ENV")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
    return {**kept, "KINFOLK_CACHE_DIR": str(clone / ".ci" / "out" / "cache")}


def run_stage(stage: Stage, clone: Path, environment: Mapping[str, str]) -> Result:
    """Run one stage in a process group of its own, which is ended whole when the stage takes too long."""
    print(f"\n===== stage {stage.name}: {stage.command}", flush=True)
    started = time.monotonic()
    process = subprocess.Popen(
        ["bash", "-euo", "pipefail", "-c", stage.command],
        cwd=clone,
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        status = process.wait(timeout=60 * PATIENCE * max(stage.minutes, 1))
    except subprocess.TimeoutExpired:
        print(f"stage {stage.name} took more than {PATIENCE} times its budget and is ended", flush=True)
        os.killpg(process.pid, signal.SIGKILL)
        status = process.wait()
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    return Result(stage, status, time.monotonic() - started)


def lane_results(out: Path) -> tuple[tuple[str, float, float], ...]:
    """Return name, seconds and budget of the test lanes that ran in the clone."""
    sys.path.insert(0, str(Path(__file__).parent))
    from lanes import LANES

    timed = [(lane, out / f"{lane.name}.seconds") for lane in LANES]
    return tuple((lane.name, float(path.read_text()), lane.minutes) for lane, path in timed if path.exists())


def test_counts(out: Path) -> dict[str, int]:
    """Return how many tests passed, failed and were skipped over all lanes and the wheels' tests."""
    counts = {"failed": 0, "passed": 0, "skipped": 0}
    for path in sorted(out.glob("*.json")):
        for outcome in json.loads(path.read_text())["outcomes"].values():
            counts[outcome] += 1
    return counts


def closing_lines(results: Sequence[Result], counts: Mapping[str, int], seconds: float, full: bool) -> tuple[str, bool]:
    """Return the table, the verdict and pytest's closing line over all lanes; and whether everything passed."""
    lines = ["", f"{'stage':<22}{'seconds':>9}{'budget':>9}"]
    for result in results:
        rows = [
            (
                result.stage.name,
                result.seconds,
                result.stage.minutes,
                "ok" if result.status == 0 else f"FAILED ({result.status})",
            )
        ]
        rows += [(f"  {name}", part, minutes, "") for name, part, minutes in result.parts]
        for name, spent, minutes, verdict in rows:
            over = "" if spent <= 60 * minutes else "  over"
            lines.append(f"{name:<22}{spent:>9.0f}{60 * minutes:>9.0f}  {verdict}{over}".rstrip())
    late = full and seconds > 60 * TOTAL_MINUTES
    lines.append(
        f"{'total':<22}{seconds:>9.0f}{60 * TOTAL_MINUTES:>9.0f}  {'FAILED: over the total' if late else ''}".rstrip()
    )
    broken = [result.stage.name for result in results if result.status]
    no_test = full and counts["passed"] == 0
    passed = not broken and not late and not no_test
    lines.append("passed" if passed else f"FAILED: {', '.join(broken) or ('no test ran' if no_test else 'too slow')}")
    said = ", ".join(f"{count} {outcome}" for outcome, count in counts.items() if count) or "no tests ran"
    lines.append(f" {said} in {seconds:.2f}s ".center(80, "="))
    return "\n".join(lines), passed


def run_all(clone: Path, wanted: Sequence[str]) -> int:
    """Run the wanted stages (all where none is named) in `clone` and print how they ended."""
    everything = stages((clone / "README.md").read_text())
    names = [stage.name for stage in everything]
    if unknown := sorted(set(wanted) - set(names)):
        raise SystemExit(f"no stage {', '.join(unknown)}; there are {', '.join(names)}")
    chosen = [stage for stage in everything if not wanted or stage.name in wanted or stage.name == "install"]
    environment, out = clean_environment(clone), clone / ".ci" / "out" / "lanes"
    shutil.rmtree(clone / ".ci" / "out", ignore_errors=True)
    started = time.monotonic()
    results: list[Result] = []
    for stage in chosen:
        if stage.name == "install":
            stage = Stage(stage.name, stage.minutes, f"{{ {install_tools()}; }} && {stage.command}")
        result = run_stage(stage, clone, environment)
        if stage.name == "test":
            result = Result(result.stage, result.status, result.seconds, lane_results(out))
        results.append(result)
        if stage.name == "install" and result.status:
            break
    text, passed = closing_lines(results, test_counts(out), time.monotonic() - started, full=not wanted)
    print(text, flush=True)
    return 0 if passed else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stages", nargs="*", help="names of stages; all where none is given")
    parser.add_argument("--here", action="store_true", help="run in this checkout, not in a clone")
    arguments = parser.parse_args()
    if arguments.here:
        return run_all(ROOT, arguments.stages)
    if subprocess.run(["git", "status", "--porcelain"], cwd=ROOT, capture_output=True, text=True, check=True).stdout:
        print("note: this checkout has changes that are not committed; the clone is of HEAD", flush=True)
    with tempfile.TemporaryDirectory(prefix="kinfolk-ci-") as folder:
        clone = Path(folder) / "kinfolk"
        subprocess.run(["git", "clone", "--quiet", "--no-local", str(ROOT), str(clone)], check=True)
        return run_all(clone, arguments.stages)


if __name__ == "__main__":
    sys.exit(main())
