"""Every call of a thread seen while a function runs, whatever profiler runs around it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, TypeVar

T = TypeVar("T")
Seen = Callable[[FrameType, str, Any], None]


def call_watched(function: Callable[[], T], seen: Seen) -> T:
    """Return what a function returns; `seen` is told this thread's calls meanwhile, as `sys.setprofile` tells them.

    A profiler that runs already, in Python or in C (cProfile), is put aside meanwhile and goes on after. Both happen in
    this one frame: of what a profiler counts, no call is left without its return.
    """
    before: Any = sys.getprofile()
    in_c: Any = None if callable(before) else before  # the object of a profiler in C, which no setprofile takes
    if in_c is not None:
        in_c.disable()
    sys.setprofile(seen)
    try:
        return function()
    finally:
        sys.setprofile(before if in_c is None else None)
        if in_c is not None:
            in_c.enable()
