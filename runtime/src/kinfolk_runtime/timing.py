"""How long a request's kernels take on a device: correct first, in the same run, then many launches, caches flushed.

timing = time_request(request, "gfx942", executor="hip")
print(timing)                  # mla_decode_idle_bf16…: median 41.2 µs (5 % 40.8, 95 % 42.0), 100 launches of hip …
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

import attrs

from kinfolk.check import ScenarioReport
from kinfolk.dispatch import selections
from kinfolk.errors import KinfolkError
from kinfolk.fields import shown
from kinfolk.flavor import DEFAULT_FLAVOR
from kinfolk.request import Request
from kinfolk_runtime.binder import bind
from kinfolk_runtime.compilation import compile as compile_plan
from kinfolk_runtime.executor import Executor, executor_of
from kinfolk_runtime.verify import chosen_scenarios, run_scenario, runners_of

if TYPE_CHECKING:
    from kinfolk.check import Scenario
    from kinfolk.plugins.composition import Composition
    from kinfolk_runtime.artifact import Artifact

WARM_UP: Final = 20
LAUNCHES: Final = 100
FLUSH_BYTES: Final = 512 * 2**20
"""Bytes written between launches, more than all caches of a device hold."""


class Timed(Protocol):
    """What timing asks of an executor beside running: events of its stream, memory, and a way to write over caches."""

    @property
    def name(self) -> str: ...
    @property
    def target(self) -> str | None: ...
    def array(self, values: Any) -> Any: ...
    def mark(self) -> Any: ...
    def elapsed_ms(self, start: Any, end: Any) -> float: ...
    def forget(self, mark: Any) -> None: ...
    def flusher(self, size: int) -> Callable[[], None]: ...
    def capture(self, bound: Any) -> Callable[[], Any]: ...


class NotTimedError(KinfolkError):
    """Nothing is timed: the outputs are wrong, or the executor has no events. `report` says what is wrong, if that."""

    def __init__(self, message: str, report: ScenarioReport | None = None) -> None:
        super().__init__(message)
        self.report = report


@attrs.frozen(kw_only=True)
class Timing:
    """Milliseconds of each launch of a plan, in order, after outputs were found right.

    `kernels` are the symbols that one launch of the plan runs, `largest_margin` the outputs' largest error over its
    tolerance in the run before.
    """

    kernels: tuple[str, ...]
    executor: str
    target: str
    scenario: str
    times_ms: tuple[float, ...]
    warm_up: int
    flush_bytes: int
    largest_margin: float

    def quantile_ms(self, part: float) -> float:
        """Return the time that a part of the launches does not exceed, 0.5 for the median, between two by a line."""
        ordered = sorted(self.times_ms)
        place = part * (len(ordered) - 1)
        below = int(place)
        above = min(below + 1, len(ordered) - 1)
        return ordered[below] + (ordered[above] - ordered[below]) * (place - below)

    @property
    def median_ms(self) -> float:
        """The median."""
        return self.quantile_ms(0.5)

    def __str__(self) -> str:
        flush = (
            f"{self.flush_bytes >> 20} MiB written between" if self.flush_bytes else "caches as the launch before left"
        )
        median, low, high = (1000 * self.quantile_ms(part) for part in (0.5, 0.05, 0.95))
        return (
            f"{' + '.join(self.kernels)}: median {median:.2f} µs (5 % {low:.2f}, 95 % {high:.2f}), "
            f"{len(self.times_ms)} launches on {self.executor} ({self.target}), {flush}; scenario {self.scenario}, "
            f"margin {self.largest_margin:.3f}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the timing as JSON data."""
        return {
            **attrs.asdict(self),
            "kernels": list(self.kernels),
            "times_ms": list(self.times_ms),
            "median_ms": self.median_ms,
            "p05_ms": self.quantile_ms(0.05),
            "p95_ms": self.quantile_ms(0.95),
        }


def time_request(
    request: Request,
    arch: str,
    flavor: str = DEFAULT_FLAVOR,
    *,
    executor: Executor | str = "hip",
    scenario: str | None = None,
    warm_up: int = WARM_UP,
    launches: int = LAUNCHES,
    flush_bytes: int = FLUSH_BYTES,
    composition: Composition | None = None,
) -> Timing:
    """Run a request on one scenario of its family, by default the first, compare with the reference, then time it.

    A launch is everything that the plan enqueues, captured as one graph, between two events of the stream; before each,
    `flush_bytes` are written. Raises NotTimedError, and measures nothing, where an output is wrong or the executor has
    no events; ValueError for counts that make no timing; what `verify` raises.
    """
    from kinfolk.plugins.composition import compose

    if not isinstance(cast("object", request), Request):
        raise TypeError(f"request takes a Request, got {shown(request)}. Make one of the family's request type.")
    for name, count, least in (("warm_up", warm_up, 0), ("launches", launches, 1), ("flush_bytes", flush_bytes, 0)):
        if type(count) is not int or count < least:
            raise ValueError(f"{name} takes a Python int of at least {least}, got {count!r}")
    made = executor_of(executor)
    timed = _timed(made)
    composition = composition or compose(request.family, arch)
    asked = selections.plan(composition, request, flavor)
    chosen = chosen_scenarios(composition.scenarios_of(asked), (scenario,) if scenario else None)[0]
    artifact = compile_plan(selections.plan(composition, chosen.request, flavor), composition=composition)
    artifact.check(composition)
    report = expect_right(composition, artifact, chosen, made)
    inputs: Mapping[str, Any] = {name: timed.array(value) for name, value in chosen.inputs().items()}
    bound = bind(artifact, inputs, made, composition=composition)
    times = _times(timed, timed.capture(bound), timed.flusher(flush_bytes), warm_up, launches)
    ran = [launch for launch in bound.plan.launches if 0 not in bound.plan.grid(launch, bound.tensors)]
    return Timing(
        kernels=tuple(launch.spec.symbol() for launch in ran),
        executor=made.name,
        target=made.target or "",
        scenario=chosen.name,
        times_ms=times,
        warm_up=warm_up,
        flush_bytes=flush_bytes,
        largest_margin=max((output.margin or 0.0 for output in report.outputs), default=0.0),
    )


def expect_right(
    composition: Composition, artifact: Artifact, scenario: Scenario, executor: Executor
) -> ScenarioReport:
    """Run a scenario and compare its outputs with the reference; NotTimedError where one is wrong."""
    report = run_scenario(composition, artifact, scenario, runners_of(executor))
    if report.status != "pass":
        found = "; ".join(finding.message for finding in report.findings) or _excess(report)
        told = f"scenario {scenario.name} is wrong on {executor.name}, so nothing is timed: {found}"
        raise NotTimedError(told, report)
    return report


def _lacking(executor: Executor) -> list[str]:
    needed = ("array", "mark", "elapsed_ms", "forget", "flusher", "capture")
    return [name for name in needed if not callable(getattr(executor, name, None))]


def can_be_timed(executor: Executor) -> bool:
    """Return whether an executor has what `time_request` asks for."""
    return not _lacking(executor)


def _timed(executor: Executor) -> Timed:
    if lacking := _lacking(executor):
        raise NotTimedError(
            f"executor {executor.name} cannot be timed, it has no {', '.join(lacking)}. Time on a device: hip."
        )
    return cast("Timed", executor)


def _times(
    timed: Timed, launch: Callable[[], Any], flush: Callable[[], None], warm_up: int, launches: int
) -> tuple[float, ...]:
    """Return the time of each launch; all are enqueued before the first is asked for, and no event is left."""
    for _ in range(warm_up):
        launch()
    pairs: list[tuple[Any, Any]] = []
    with ExitStack() as forgotten:  # each of them, whichever fails

        def mark() -> Any:
            made = timed.mark()
            forgotten.callback(timed.forget, made)
            return made

        for _ in range(launches):
            flush()
            start = mark()
            launch()
            pairs.append((start, mark()))
        return tuple(timed.elapsed_ms(start, end) for start, end in pairs)


def _excess(report: ScenarioReport) -> str:
    worst = max(report.outputs, key=lambda output: output.margin or 0.0)
    return f"{worst.name} is off by {worst.max_abs_err}, {worst.margin:.3g} times its tolerance"
