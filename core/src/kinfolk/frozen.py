"""A mapping that nobody changes, and that pickles and copies as what it is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeVar

V = TypeVar("V")


class FrozenDict(Mapping[str, V]):
    """The entries of a mapping as they were; equal to any mapping with the same entries."""

    __slots__ = ("_held",)

    def __init__(self, entries: Mapping[str, V]) -> None:
        self._held = dict(entries)

    def __getitem__(self, name: str) -> V:
        return self._held[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._held)

    def __len__(self) -> int:
        return len(self._held)

    def __repr__(self) -> str:
        return repr(self._held)

    def __reduce__(self) -> tuple[object, ...]:
        return FrozenDict, (dict(self._held),)
