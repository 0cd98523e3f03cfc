"""Checks in a process apart: one that hangs, or ends the process, is told as a defect, and the others are run."""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from multiprocessing.connection import Connection
from typing import Any, Final, cast

import attrs

from kinfolk.testing.check import Check, Outcome, Result, run_check, stopped
from kinfolk.testing.subject import Subject

GRACE: Final = 5.0
"""Seconds beyond its limit in which a check may be stopped where Python runs, which says the line."""
SELDOM: Final = (200_000, 20, 100)
"""When Python collects in the process of checks: each time it looks through all kernels that they keep."""
Told = Callable[[Check, str], None]


@attrs.frozen
class _Answer:
    """What came of one check, as it crosses between processes."""

    outcome: Outcome
    seconds: float
    inapplicable: str


def results(subject: Subject, checks: Sequence[Check], seconds: float, told: Told) -> Iterator[Result]:
    """Run checks in turn and yield their results; `told` hears each as it begins, and how far it is.

    Each may take `seconds`. They share one process, a copy of this one: after a check that hangs or ends it, the rest
    goes on in another. With 0, which is no limit, and where processes cannot be copied, they run in this one.
    """
    left = list(checks)
    while left and seconds and hasattr(os, "fork"):
        with _started(subject, left, seconds) as (process, answers):
            lost = False
            while left and not lost:
                check = left.pop(0)
                told(check, "")
                answer = _awaited(check, answers, seconds + GRACE, told)
                lost = isinstance(answer, str)
                if isinstance(answer, str):
                    problem = answer or _ended(process)
                    answer = _Answer(stopped(check, subject, problem), seconds, "")
                yield Result(check=check, subject=subject, **attrs.asdict(answer, recurse=False))
    for check in left:
        told(check, "")
        yield run_check(check, subject, seconds)


@contextlib.contextmanager
def _started(subject: Subject, checks: Sequence[Check], seconds: float) -> Generator[tuple[Any, Connection]]:
    """Start a process that runs checks and sends answers; at the end it is killed with all that it started."""
    fork: Any = multiprocessing.get_context("fork")
    receiving, sending = fork.Pipe(duplex=False)
    process = fork.Process(target=_run, args=(subject, checks, seconds, sending))
    process.start()
    with contextlib.suppress(OSError):
        os.setpgid(process.pid, process.pid)  # here and there: whoever is first
    sending.close()
    try:
        yield process, receiving
    finally:
        with contextlib.suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
        process.join()
        receiving.close()


def _run(subject: Subject, checks: Sequence[Check], seconds: float, sending: Connection) -> None:
    with contextlib.suppress(OSError):
        os.setpgid(0, 0)
    gc.set_threshold(*SELDOM)
    subject.progress = sending.send
    for check in checks:
        result = run_check(check, subject, seconds)
        sending.send(_Answer(result.outcome, result.seconds, result.inapplicable))


def _awaited(check: Check, answers: Connection, seconds: float, told: Told) -> _Answer | str:
    """Return the answer of a check; else the problem, which is empty where the process ended."""
    until = time.monotonic() + seconds
    while answers.poll(max(0.0, until - time.monotonic())):
        try:
            said = cast("_Answer | str", answers.recv())
        except EOFError:
            return ""
        if isinstance(said, _Answer):
            return said
        told(check, said)
    return f"is not done after {seconds - GRACE:g} s; its process was killed, since it hangs outside Python"


def _ended(process: Any) -> str:
    """Return how a process ended by itself."""
    process.join(GRACE)
    code = process.exitcode
    if code is None:
        return "sends nothing more, and its process goes on"
    named = signal.Signals(-code).name if code < 0 else f"exit status {code}"
    return f"ended the process it ran in ({named})"
