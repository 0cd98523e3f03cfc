"""What the simulator watches for, one name per kind of fault."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal, get_args

from kinfolk.errors import KinfolkError

Sanitizer = Literal["race", "memory", "initialisation", "sync", "integer", "indirection"]
SANITIZERS: Final[tuple[Sanitizer, ...]] = get_args(Sanitizer)
"""race: two waves of a workgroup in its memory, two workgroups in global memory, two lanes of one store, or a DMA and
its reader meet at one byte with nothing between them; waves of one workgroup in global memory are not looked at.
memory: an access outside the true allocation, or misaligned. initialisation: bytes or registers read, or outputs left,
that nothing has written. sync: a barrier that not all waves reach, staged bytes never waited for, a loop that never
ends. integer: a violated nsw, a shift past the width. indirection: a loaded value reaches an address without a range
check."""
ALL: Final[frozenset[Sanitizer]] = frozenset(SANITIZERS)
NONE: Final[frozenset[Sanitizer]] = frozenset()


class UnknownSanitizer(KinfolkError, ValueError):
    """A name that is no sanitizer."""


def sanitizers(names: str | Iterable[str]) -> frozenset[Sanitizer]:
    """Return the sanitizers of "all", "none" or names, which a string separates by commas.

    Raises UnknownSanitizer naming those there are.
    """
    if names == "all":
        return ALL
    if names == "none":
        return NONE
    given = names.split(",") if isinstance(names, str) else list(names)
    unknown = [name for name in given if name not in ALL]
    if unknown:
        known = ", ".join(SANITIZERS)
        raise UnknownSanitizer(f"no sanitizer {unknown[0]!r}; there are {known}; all and none stand alone")
    return frozenset(name for name in SANITIZERS if name in given)
