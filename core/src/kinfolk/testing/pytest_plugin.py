"""The conformance kit's pytest plugin: the level by option, the marks of its tests, and the counts at the end."""

from __future__ import annotations

from typing import Any

LEVELS = ("quick", "full")
PROPERTY = "conformance"


def pytest_addoption(parser: Any) -> None:
    """Add --conformance-level and --conformance-time-limit."""
    group = parser.getgroup("kinfolk")
    told = "level of conformance tests whose class names none"
    group.addoption("--conformance-level", choices=LEVELS, default="quick", dest="conformance_level", help=told)
    told = "seconds after which a conformance check is stopped where Python runs, 0 for no limit"
    group.addoption("--conformance-time-limit", type=float, metavar="SECONDS", dest="conformance_time_limit", help=told)


def pytest_configure(config: Any) -> None:
    """Register the marks of checks that compile or run kernels."""
    config.addinivalue_line("markers", "compile: compiles kernels with LLVM")
    config.addinivalue_line("markers", "simulate: runs kernels on the simulator")


def pytest_terminal_summary(terminalreporter: Any, exitstatus: int, config: Any) -> None:
    """With -v, print what each conformance check looked at, so that the counts are seen where all is well."""
    if config.getoption("verbose") < 1:
        return
    reports = [each for kind in ("passed", "failed") for each in terminalreporter.stats.get(kind, ())]
    lines = [str(value) for each in reports for name, value in each.user_properties if name == PROPERTY]
    if lines:
        terminalreporter.section("conformance")
        for line in lines:
            terminalreporter.write_line(line)
