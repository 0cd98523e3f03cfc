"""Dispatch and emission are pure: no file, device, clock, chance or environment, nothing changed, one answer."""

from __future__ import annotations

import functools
import gc
import os
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, Final, TypeVar, cast

import attrs

from kinfolk.dispatch.select import Outcome as Judged
from kinfolk.dispatch.select import judge
from kinfolk.fields import shown
from kinfolk.testing.check import Findings, Outcome
from kinfolk.testing.requests import told
from kinfolk.testing.subject import Subject
from kinfolk.testing.watching import call_watched

T = TypeVar("T")
FORBIDDEN_MODULES: Final = {
    "posix": "the system",
    "nt": "the system",
    "time": "the clock",
    "_io": "a file",
    "io": "a file",
    "_socket": "a socket",
    "_posixsubprocess": "a process",
    "_ctypes": "a library",
    "mmap": "a file",
}
FORBIDDEN_NAMES: Final = {
    "datetime.now": "the clock",
    "datetime.utcnow": "the clock",
    "datetime.today": "the clock",
    "date.today": "the clock",
    "Random.random": "chance",
    "Random.getrandbits": "chance",
    "Random.seed": "chance",
}
ALLOWED: Final = ("fspath",)
_ENVIRON_READ: Final = vars(os)["_Environ"].__getitem__.__code__
_IMPORTS: Final = "<frozen importlib"
REMEDY: Final = "Make it a field of the request or spec, a fact of the arch, or a constant"


def purity(subject: Subject) -> Outcome:
    """Judge requests and emit kernels while every call is watched; requests twice each, and compare the answers."""
    found = Findings("purity", "requests and kernels")
    count = 40 if subject.full else 12
    requests = [request for request, _ in subject.requests.admitted(count)]
    for candidate in subject.requests.candidates:
        requests += [edge.request for edge in list(subject.requests.edges(candidate))[:count]]
    for spec in subject.sampled_specs:
        found.looked_at()
        emit = functools.partial(subject.composed.emit, spec)
        kernel, touched = watched(emit, type(spec).__module__.partition(".")[0])
        subject.keep_kernel(spec, kernel)
        for what, where in dict.fromkeys(touched):
            found.wrong(where, f"the emitter touches {what}", REMEDY, str(spec), kind="touch")
    for request in requests:
        found.looked_at()
        before = request.to_json()
        dispatch = functools.partial(judge, subject.composed, request, subject.flavor)
        outcome, touched = watched(dispatch, subject.package)
        first, second = _answer(outcome), _answer(dispatch())
        for what, where in dict.fromkeys(touched):
            found.wrong(where, f"dispatch touches {what}", REMEDY, told(request), kind="touch")
        if request.to_json() != before:
            found.wrong(type(request).__name__, "dispatch changed the request", "Leave it as it is", told(request))
        if first != second:
            where, problem = subject.title, f"the same request was answered in two ways: {_difference(first, second)}"
            found.wrong(where, problem, "Keep no state between calls of hooks and plans", told(request), kind="twice")
    return found.outcome()


def _answer(outcome: Judged) -> tuple[Any, ...]:
    """Return all that judging a request gave, as comparable data."""
    rows = [
        (
            each.candidate.name,
            each.plan.to_json() if each.plan else None,
            tuple(str(attrs.astuple(refusal)) for refusal in each.refusals),
            each.notes,
        )
        for each in outcome.verdicts
    ]
    return (*rows, outcome.selected.candidate.name if outcome.selected else None)


def _difference(first: tuple[Any, ...], second: tuple[Any, ...]) -> str:
    return next(
        (f"{shown(a, 60)} and {shown(b, 60)}" for a, b in zip(first, second, strict=False) if a != b), "their lengths"
    )


def watched(function: Callable[[], T], package: str) -> tuple[T, list[tuple[str, str]]]:
    """Return what a function answers and what this thread touches meanwhile: what, and which line, one of `package`
    where there is.

    What Python itself reads to import a module does not count.
    """
    touched: list[tuple[str, str]] = []
    module_of, name_of = cast("Any", FORBIDDEN_MODULES.get), cast("Any", FORBIDDEN_NAMES.get)

    def seen(frame: FrameType, event: str, argument: Any) -> None:
        what = ""  # told of every call there is, so that each must cost little
        if event == "c_call":
            what = module_of(getattr(argument, "__module__", None), "")
            what = what or name_of(getattr(argument, "__qualname__", None), "")
            if what:
                name = str(getattr(argument, "__name__", ""))
                what = f"{what} ({name})" if name not in ALLOWED else ""
        elif event == "call" and frame.f_code is _ENVIRON_READ:
            what = "the environment"
        if what and (where := _line(frame, package)):
            touched.append((what, where))

    collects = gc.isenabled()
    gc.disable()  # what others have called when it collects (gc.callbacks) is not what is watched
    try:
        return call_watched(function, seen), touched
    finally:
        if collects:
            gc.enable()


def _line(frame: FrameType, package: str) -> str:
    """Return the line of the package that led here, else the nearest; nothing where Python is importing a module."""
    nearest = own = ""
    at: FrameType | None = frame
    while at is not None:
        name = at.f_code.co_filename
        if name.startswith(_IMPORTS):
            return ""
        if name.startswith("<frozen"):  # what Python itself is made of
            at = at.f_back
            continue
        line = f"{Path(name).name}:{at.f_lineno}"
        nearest = nearest or line
        if str(cast("Any", at.f_globals).get("__name__", "")).partition(".")[0] == package and package != "kinfolk":
            own = own or line
        at = at.f_back
    return own or nearest
