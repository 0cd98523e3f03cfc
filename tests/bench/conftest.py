"""What the benchmarks share: the decode request they are about, and aims that a run is shown beside."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import attrs
import pytest

from kinfolk import Plan, compose, dispatch
from kinfolk.plugins.composition import Composition
from kinfolk.request import Request

ARCH = "gfx942"
FIELDS = {
    "num_heads": 128,
    "num_seqs": 4,
    "total_q": 4,
    "max_seqlen_q": 1,
    "max_seqlen_k": 1024,
    "absorbed_query": True,
}


@attrs.frozen
class Aimed:
    """A benchmark's median beside its aim, both in seconds."""

    name: str
    median: float
    aim: float

    def __str__(self) -> str:
        return (
            f"{self.name}: {1e6 * self.median:.1f} µs, aim {1e6 * self.aim:.0f} µs, ratio {self.median / self.aim:.2f}"
        )


AIMED = pytest.StashKey[list[Aimed]]()
SAID = pytest.StashKey[list[str]]()


@pytest.fixture
def aim(request: pytest.FixtureRequest, benchmark) -> Iterator[Callable[[float], None]]:
    """Return a function that says how many seconds a benchmark should take; the ratio is printed at the end."""
    aims: list[float] = []
    yield aims.append
    if benchmark.stats is not None:
        rows = request.config.stash.setdefault(AIMED, [])
        rows += [Aimed(request.node.name, benchmark.stats.stats.median, seconds) for seconds in aims]


@pytest.fixture
def say(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Return a function that has a line printed at the end."""
    return request.config.stash.setdefault(SAID, []).append


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    rows = config.stash.get(AIMED, [])
    if rows:
        terminalreporter.section("medians beside their aims")
        for row in rows:
            terminalreporter.write_line(str(row))
    lines = config.stash.get(SAID, [])
    if lines:
        terminalreporter.section("measured side by side")
        for line in lines:
            terminalreporter.write_line(line)


@pytest.fixture(scope="session")
def composition() -> Composition:
    """Return the composition that the benchmarks are about."""
    return compose("mla", ARCH)


@pytest.fixture(scope="session")
def decode(composition) -> Callable[..., Request]:
    """Return a function that makes DeepSeek-V3's decode request with some fields changed."""

    def make(**changed: object) -> Request:
        given = {**FIELDS, **changed}
        return composition.request_type(**given, **composition.request_type.cli_defaults(given))

    return make


@pytest.fixture(scope="session")
def plan(decode) -> Plan:
    """Return the plan of the request."""
    return dispatch(decode(), ARCH)
