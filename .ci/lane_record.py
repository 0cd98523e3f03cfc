"""A pytest plugin: write what a lane ran, skipped and could not collect to a JSON file (`--lane-record FILE`).

Under xdist only the controller records; the workers' reports reach it.
"""

import json
from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--lane-record", type=Path, help="write outcomes of this run to FILE")


def pytest_configure(config: pytest.Config) -> None:
    if (path := config.getoption("--lane-record")) and not hasattr(config, "workerinput"):
        config.pluginmanager.register(LaneRecord(path), "lane-record")


class LaneRecord:
    """Outcomes by node id: `passed`, `failed`, or `skipped` with its reason (an expected failure is a skip too)."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.outcomes: dict[str, str] = {}
        self.reasons: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.skipped:
            self.note_skip(report.nodeid, getattr(report, "wasxfail", None), report.longrepr)
        elif report.failed:
            self.outcomes[report.nodeid] = "failed"
        elif report.when == "call" and report.nodeid not in self.outcomes:
            self.outcomes[report.nodeid] = "passed"
            if hasattr(report, "wasxfail"):
                self.note_skip(report.nodeid, f"passed although: {report.wasxfail}", None)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.skipped:
            self.note_skip(report.nodeid, None, report.longrepr)
        elif report.failed:
            self.outcomes[report.nodeid] = "failed"

    def note_skip(self, nodeid: str, expected_failure: str | None, longrepr: object) -> None:
        self.outcomes[nodeid] = "skipped"
        is_located = isinstance(longrepr, tuple) and len(longrepr) == 3
        self.reasons[nodeid] = (
            f"expected failure: {expected_failure}"
            if expected_failure is not None
            else str(longrepr[2] if is_located else longrepr)
        )

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        record = {"exit": int(exitstatus), "outcomes": self.outcomes, "reasons": self.reasons}
        self.path.write_text(json.dumps(record, indent=1, sort_keys=True))
