"""numpy's products of matrices in one thread, where they are many and small.

OpenBLAS, which numpy's wheels bring, divides even a product of 16 by 576 by 80 among all cores. Its threads wait for
each other in loops, so that on cores that have other work too it takes several times the processor time of one thread.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import cache
from typing import Final

_LINKED: Final = ("numpy._core._multiarray_umath", "numpy.core._multiarray_umath")
"""The module of numpy that is linked with the library, by version."""
_changed = threading.Lock()
_before: list[int] = []
"""How many threads there were before the first block, as often as blocks are entered, in whatever thread."""
_NAMES: Final = ("scipy_openblas_{}_num_threads64_", "openblas_{}_num_threads64_", "openblas_{}_num_threads")
"""Of the functions that get and set how many threads there are, by who built the library."""


@contextmanager
def one_thread() -> Generator[None]:
    """Compute products in the calling thread until the block is left; with another library than OpenBLAS, as before.

    The number is the process's: products of its other threads are computed so too meanwhile, until none is in a block.
    """
    get, put = _threads()
    with _changed:
        _before.append(_before[0] if _before else get())
        put(1)
    try:
        yield
    finally:
        with _changed:
            before = _before.pop()
            if not _before:
                put(before)


@cache
def _threads() -> tuple[Callable[[], int], Callable[[int], None]]:
    """Return what gets and what sets how many threads OpenBLAS has; where it is not found, what does neither."""
    for module in (sys.modules[name] for name in _LINKED if name in sys.modules):
        try:
            linked = ctypes.CDLL(module.__file__)
        except OSError:
            continue
        for name in _NAMES:
            if hasattr(linked, name.format("get")) and hasattr(linked, name.format("set")):
                return getattr(linked, name.format("get")), getattr(linked, name.format("set"))
    return lambda: 1, lambda count: None
