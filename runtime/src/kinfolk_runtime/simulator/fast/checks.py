"""What the functions of a kernel look for; with the op itself, all that a function's text depends on."""

from __future__ import annotations

import attrs

from kinfolk_runtime.simulator.sanitizers import Sanitizer

BOUNDED, WRITTEN, WATCHED = 1, 2, 4
"""Bits that tell helpers to fail outside allocations, on bytes that hold nothing, and where workgroups race."""


@attrs.frozen(cache_hash=True)
class Checks:
    """The sanitizers, and how races in workgroup memory are watched.

    For each `granule` of bytes there are sets of `set_bytes` of the waves that read, wrote, added; a granule of 0
    stands for none, as where there is one wave. `flies`: bytes are marked while a staging is on its way to them.
    """

    sanitize: frozenset[Sanitizer]
    granule: int = 0
    set_bytes: int = 1
    flies: bool = False
    counts: bool = False

    @property
    def race(self) -> bool:
        """Whether races are looked for."""
        return "race" in self.sanitize

    @property
    def memory(self) -> bool:
        """Whether an access outside its allocation, or misaligned, is a fault."""
        return "memory" in self.sanitize

    @property
    def initialisation(self) -> bool:
        """Whether reading what was never written is a fault."""
        return "initialisation" in self.sanitize

    @property
    def sync(self) -> bool:
        """Whether barriers that not all reach, loops that never end and stagings nobody waits for are faults."""
        return "sync" in self.sanitize

    @property
    def integer(self) -> bool:
        """Whether integers that break their rule are faults."""
        return "integer" in self.sanitize

    @property
    def places(self) -> bool:
        """Whether an access of workgroup memory is judged by where it goes, which need not be done twice."""
        return self.memory or self.initialisation or self.flies

    def helper_bits(self, watched: bool) -> int:
        """Return what a helper of global accesses is told; `watched`: the op may touch what the kernel writes."""
        bits = (BOUNDED if self.memory else 0) | (WRITTEN if self.initialisation else 0)
        return bits | (WATCHED if self.race and watched else 0)

    def set_bytes_of(self, size: int) -> int:
        """Return the bytes of the sets of `size` bytes of workgroup memory."""
        return size // self.granule * self.set_bytes if self.granule else 0
