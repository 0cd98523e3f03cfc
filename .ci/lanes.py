"""Run the test lanes and gate what they did: no unlisted skip, no file without a lane, no empty lane, nothing missing.

A test belongs to one lane by its markers, so the lanes together are the whole suite. Standard library only.
"""

import argparse
import ast
import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Distributions that nobody installs: tests of `kinfolk new` write a copy of each, and run every test file of the copy.
TEMPLATES = "core/src/kinfolk/templates/"
# Tests of what has an environment of its own: a stage runs them there (`.ci/torch_stage.py`), and gates them itself.
ELSEWHERE = "interop/torch/"
OUT = ROOT / ".ci" / "out" / "lanes"
# What one lane has compiled the next ones find: most compile the same kernels. It begins empty.
CACHE = ROOT / ".ci" / "out" / "cache-of-lanes"
SKIPS = ROOT / ".ci" / "skips.txt"

PARALLEL = ("-n", "auto", "--dist", "worksteal", "-p", "no:benchmark")


@dataclass(frozen=True)
class Lane:
    """One pytest run: its arguments and how many minutes it should take on two cores."""

    name: str
    minutes: float
    arguments: tuple[str, ...]


LANES = (
    Lane("unit", 5, (*PARALLEL, "-m", "not compile and not simulate")),
    Lane("compile", 5, (*PARALLEL, "-m", "compile and not simulate")),
    Lane("simulate", 4, (*PARALLEL, "-m", "simulate")),
    Lane("bench", 0.5, ("tests/bench", "-p", "no:xdist", "-o", "python_files=bench_*.py", "--benchmark-disable")),
)


@dataclass(frozen=True)
class Record:
    """What one lane did, as `lane_record` wrote it."""

    outcomes: Mapping[str, str] = field(default_factory=dict)
    reasons: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> "Record":
        if not path.exists():
            return cls()
        stored = json.loads(path.read_text())
        return cls(stored["outcomes"], stored["reasons"])

    def count(self, outcome: str) -> int:
        return sum(value == outcome for value in self.outcomes.values())


def empty_lanes(records: Mapping[str, Record]) -> list[str]:
    """Name every lane in which no test was run to its end."""
    return [
        f"lane {name} ran no test"
        for name, record in records.items()
        if not record.count("passed") + record.count("failed")
    ]


def read_skips(text: str) -> dict[str, str]:
    """Return reason by node id (or test without its parameters, or file) of the skips that are agreed on.

    One `NODEID  REASON` per line; a reason `without TOOL: ...` holds only where that command is not installed.
    """
    lines = [line.strip() for line in text.splitlines()]
    rows = [line.split(maxsplit=1) for line in lines if line and not line.startswith("#")]
    if bare := [row[0] for row in rows if len(row) == 1]:
        raise SystemExit(f"a listed skip needs a reason: {', '.join(bare)}")
    return {row[0]: row[1] for row in rows if not tool_is_there(row[1])}


def tool_is_there(reason: str) -> bool:
    """Return whether a reason `without TOOL: ...` does not hold, since the tool is installed."""
    return reason.startswith("without ") and shutil.which(reason.split()[1].rstrip(":")) is not None


def entries_for(nodeid: str) -> set[str]:
    """Return what an entry of the list may call a test: its node id, the same without parameters, its file."""
    return {nodeid, nodeid.split("[")[0], nodeid.split("::")[0]}


def unlisted_skips(records: Mapping[str, Record], listed: Mapping[str, str]) -> list[str]:
    """Name every skip and expected failure that is not on the list."""
    return [
        f"{nodeid} is skipped in lane {name} and not listed in .ci/skips.txt: {record.reasons.get(nodeid, 'no reason')}"
        for name, record in records.items()
        for nodeid, outcome in record.outcomes.items()
        if outcome == "skipped" and entries_for(nodeid).isdisjoint(listed)
    ]


def stale_skips(records: Mapping[str, Record], listed: Iterable[str]) -> list[str]:
    """Name every entry of the list that skips nothing any more."""
    skipped = {
        name
        for record in records.values()
        for nodeid, outcome in record.outcomes.items()
        if outcome == "skipped"
        for name in entries_for(nodeid)
    }
    return [f"{nodeid} is listed in .ci/skips.txt but was not skipped" for nodeid in listed if nodeid not in skipped]


def holds_tests(path: Path) -> bool:
    """Return whether a python file defines a test at its top level: a `test_…` function or a `Test…` class with one."""
    for node in ast.parse(path.read_text()).body:
        body = node.body if isinstance(node, ast.ClassDef) and node.name.startswith("Test") else [node]
        if any(
            isinstance(member, ast.FunctionDef | ast.AsyncFunctionDef) and member.name.startswith("test_")
            for member in body
        ):
            return True
    return False


def test_files(root: Path, names: Iterable[str]) -> list[str]:
    """Return the files that a lane must collect: named as tests or benchmarks, or holding tests under a `tests`."""
    found: list[str] = []
    for name in names:
        path = Path(name)
        is_named = path.name.startswith(("test_", "bench_")) or path.stem.endswith("_test")
        is_test = is_named or ("tests" in path.parts and holds_tests(root / path))
        if path.suffix == ".py" and is_test and not name.startswith((TEMPLATES, ELSEWHERE)):
            found.append(path.as_posix())
    return found


def uncollected_files(records: Mapping[str, Record], files: Iterable[str]) -> list[str]:
    """Name every test file of which no lane ran, failed or skipped anything."""
    seen = {nodeid.split("::")[0] for record in records.values() for nodeid in record.outcomes}
    return [f"{name} is a test file that no lane collects" for name in files if name not in seen]


def project_files(root: Path) -> list[str]:
    """Return the python files that git knows or would add."""
    listing = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z", "--", "*.py"],
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    return sorted(name for name in set(listing.split("\0")) if name and (root / name).exists())


def not_installed(root: Path) -> list[str]:
    """Name every distribution of the checkout that is not installed: tests that need it are left out in silence."""
    names = [
        tomllib.loads(path.read_text(encoding="utf-8"))["project"]["name"]
        for pattern in ("core", "runtime", "arch/*", "plugins/*")
        for path in sorted(root.glob(f"{pattern}/pyproject.toml"))
    ]
    here = {re.sub(r"[-_.]+", "-", dist.metadata["Name"]).lower() for dist in importlib.metadata.distributions()}
    return [
        f"{name} is not installed, tests that need it were left out: make venv" for name in names if name not in here
    ]


def environment() -> dict[str, str]:
    """Return this environment, in which the plugin of the lanes is found, and Python keeps the bytecode that it makes:
    hundreds of processes import the same modules."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return kept | {"PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT / ".ci"), kept.get("PYTHONPATH"))))}


def run_lane(lane: Lane, extra: Sequence[str]) -> tuple[int, Record]:
    """Run one lane, print its time beside its budget, and return pytest's exit status with the record."""
    path = OUT / f"{lane.name}.json"
    path.unlink(missing_ok=True)
    options = ["-p", "lane_record", "--lane-record", str(path), "--cache-of-run", str(CACHE)]
    command = [sys.executable, "-m", "pytest", *options, *lane.arguments, *extra]
    print(f"\n--- lane {lane.name}", flush=True)
    started = time.monotonic()
    status = subprocess.run(command, cwd=ROOT, env=environment(), check=False).returncode
    seconds = time.monotonic() - started
    over = " OVER" if seconds > 60 * lane.minutes else ""
    print(f"--- lane {lane.name}: {seconds:.0f} s of {60 * lane.minutes:.0f} s{over}", flush=True)
    record = Record.read(path)
    (OUT / f"{lane.name}.seconds").write_text(f"{seconds:.1f}")
    return status, record


def findings(records: Mapping[str, Record]) -> list[str]:
    """Return what the gates say; the list of skips and the files on disk are judged only after a run of all lanes."""
    listed = read_skips(SKIPS.read_text())
    found = not_installed(ROOT) + empty_lanes(records) + unlisted_skips(records, listed)
    if len(records) == len(LANES):
        found += stale_skips(records, listed) + uncollected_files(records, test_files(ROOT, project_files(ROOT)))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("lanes", nargs="+", choices=[lane.name for lane in LANES])
    parser.add_argument("--pytest", nargs=argparse.REMAINDER, default=[], help="the rest goes to pytest")
    arguments = parser.parse_args()
    OUT.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(CACHE, ignore_errors=True)
    runs = {lane.name: run_lane(lane, arguments.pytest) for lane in LANES if lane.name in arguments.lanes}
    records = {name: record for name, (_, record) in runs.items()}
    found = findings(records)
    for line in found:
        print(f"GATE: {line}")
    failed = [name for name, (status, _) in runs.items() if status]
    for name in failed:
        print(f"lane {name} failed: pytest's exit status is {runs[name][0]}")
    return int(bool(found or failed))


if __name__ == "__main__":
    sys.exit(main())
