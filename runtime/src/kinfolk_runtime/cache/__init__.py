"""What outlives a process: compiled objects, lowered kernels, functions of the simulator.

Each is found by a digest over all that decides it.
"""

from __future__ import annotations

from kinfolk_runtime.cache.store import CacheError, Entry, Store, stores

__all__ = ["CacheError", "Entry", "Store", "stores"]
