"""Python's collector of cycles, kept from looking through kernels again and again."""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

SELDOM: Final = (100_000, 20, 100)
"""Mutants are many small objects in cycles, beside kernels and their classes of mutants, a million more that stay: by
Python's defaults, looking those through takes a fifth of the time, and with these no more memory.
"""


@contextmanager
def collected_seldom() -> Generator[None]:
    """Collect cycles by `SELDOM` until the block is left, in the whole process."""
    before = gc.get_threshold()
    gc.set_threshold(*SELDOM)
    try:
        yield
    finally:
        gc.set_threshold(*before)
