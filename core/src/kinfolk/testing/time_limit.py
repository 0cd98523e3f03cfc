"""A check that hangs is stopped: by a signal where Python runs, and it is told where that was."""

from __future__ import annotations

import contextlib
import signal
import threading
import traceback
from collections.abc import Generator
from pathlib import Path
from types import FrameType
from typing import Final

AGAIN: Final = 1.0
"""Seconds after which what went on in spite of it is stopped again."""


class TimeIsUpError(KeyboardInterrupt):
    """The time is up; what lets a user interrupt it lets this through. `place` is where the thread was."""

    def __init__(self, place: str) -> None:
        super().__init__(place)
        self.place = place


def can_stop() -> bool:
    """Return whether this thread can be stopped by a signal: the main thread, of a system that has timers."""
    return hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread()


@contextlib.contextmanager
def stopped_after(seconds: float, package: str = "") -> Generator[None]:
    """Raise TimeIsUpError in the block, wherever it is, once `seconds` of the clock are over; 0 is no limit.

    It is raised again each second until the block ends. What runs outside Python is stopped when it comes back. Does
    nothing where `can_stop` says so. A place in `package` is named before another.
    """
    if not seconds or not can_stop():
        yield
        return

    def stop(signum: int, frame: FrameType | None) -> None:
        raise TimeIsUpError(_place(frame, package))

    before = signal.signal(signal.SIGALRM, stop)
    left, interval = signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, left, interval)
        signal.signal(signal.SIGALRM, before)


def _place(frame: FrameType | None, package: str) -> str:
    """Return the innermost line of the package on the stack, else the innermost of all: `plan.py, line 12, in grid`."""
    stack = list(traceback.walk_stack(frame))
    own = [each for each in stack if package and _module(each[0]).partition(".")[0] == package]
    for at, line in [*own[:1], *stack[:1]]:
        return f"{Path(at.f_code.co_filename).name}, line {line}, in {at.f_code.co_name}"
    return "no line of Python"


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))
