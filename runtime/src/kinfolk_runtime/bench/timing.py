"""How long the launches of a bound plan take, by the executor's own clock."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeGuard, cast, runtime_checkable

import attrs

from kinfolk.errors import KinfolkError
from kinfolk_runtime.executor import Executor, Work

if TYPE_CHECKING:
    from kinfolk_runtime.binder import Bound

WARM_UP: Final = 3
"""Calls before the first that counts: code is loaded, caches are filled, clocks of the device rise."""


class NoClockError(KinfolkError, ValueError):
    """An executor is asked for times and has no clock."""


@runtime_checkable
class Clock(Protocol):
    """What an executor has beside `run` if it can tell times: marks in the order of its launches."""

    def mark(self) -> Any:
        """Return a mark behind all launches so far."""
        ...

    def elapsed_ms(self, start: Any, end: Any) -> float:
        """Return the milliseconds between two marks, once the second is reached."""
        ...

    def forget(self, mark: Any) -> None:
        """Let go of a mark."""
        ...


def has_clock(executor: object) -> TypeGuard[Clock]:
    """Return whether an executor can tell times."""
    return all(callable(getattr(executor, name, None)) for name in ("mark", "elapsed_ms", "forget"))


def expect_clock(executor: Executor) -> None:
    """Raise NoClockError unless an executor can tell times."""
    if not has_clock(executor):
        raise NoClockError(
            f"executor {executor.name} has no clock: it runs kernels, and how long they take there says nothing of a "
            f"device. Name an executor of a device (kinfolk list), or another mode"
        )


@attrs.define(eq=False)
class Timed:
    """An executor with marks before the first and after each launch; all else is the executor's own."""

    inner: Executor
    marks: list[Any] = attrs.field(factory=list[Any], init=False)

    @property
    def name(self) -> str:
        """The executor's own."""
        return self.inner.name

    @property
    def target(self) -> str | None:
        """The executor's own."""
        return self.inner.target

    def run(self, work: Work) -> None:
        """Run a launch between marks."""
        clock = cast("Clock", self.inner)
        if not self.marks:
            self.marks.append(clock.mark())
        self.inner.run(work)
        self.marks.append(clock.mark())

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def taken(self) -> float:
        """Return the microseconds from before the first launch to after the last since this was last asked; 0 for no
        launch.
        """
        clock, marks = cast("Clock", self.inner), self.marks
        self.marks = []
        try:
            return 1e3 * clock.elapsed_ms(marks[0], marks[-1]) if marks else 0.0
        finally:
            for mark in marks:
                clock.forget(mark)


@attrs.frozen(kw_only=True)
class Times:
    """Microseconds of the launches of one call: the median of `repeats` calls, the fastest and the slowest."""

    median_us: float
    least_us: float
    most_us: float
    repeats: int

    @classmethod
    def of(cls, taken: Sequence[float]) -> Times:
        """Return what single calls come to."""
        return cls(median_us=statistics.median(taken), least_us=min(taken), most_us=max(taken), repeats=len(taken))


def timed(bound: Bound, executor: Timed, repeats: int) -> Times:
    """Call what is bound for an executor, first to warm up, then `repeats` times, and return what its launches took."""
    taken: list[float] = []
    for call in range(WARM_UP + repeats):
        bound()
        lasted = executor.taken()
        if call >= WARM_UP:
            taken.append(lasted)
    return Times.of(taken)
