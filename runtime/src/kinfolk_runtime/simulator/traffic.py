"""Races between the workgroups of a launch: who touched what of the global memory that the kernel may write.

Each granule of a watched buffer has a word for those that read it, one for those that wrote it, one for those that
added to it: the first workgroup's place in the grid plus 1, with `SEVERAL` set once another came. That is enough to
say whether two workgroups raced, in whatever order they ran. Both engines keep the same words, so that a replay goes
on where the fast engine stopped.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import attrs
import numpy as np
import numpy.typing as npt

from kinfolk_runtime.simulator.space import AddressSpace, Mapped

SEVERAL: Final = 1 << 31
LOADED, STORED, ADDED = 0, 1, 2
AGAINST: Final = {LOADED: (STORED, ADDED), STORED: (STORED, LOADED, ADDED), ADDED: (STORED, LOADED)}
"""What another workgroup must not have done, the first to be named first."""
Words = npt.NDArray[np.uint32]


@attrs.frozen
class Meeting:
    """Where two workgroups race: `offset` in the buffer, what the other did, its place in the grid if it is known.

    It is not where several came; never so where workgroups run one after the other.
    """

    offset: int
    role: int
    place: int | None


@attrs.frozen(eq=False)
class Stretch:
    """Bytes [start, end) of a buffer; `words` [role, granule]."""

    start: int
    end: int
    words: Words


class Watched:
    """One buffer's words. A granule is an element, so that no aligned access touches half of one."""

    def __init__(self, mapped: Mapped) -> None:
        self.granule = mapped.element_bytes
        self.stretches = [
            Stretch(one.start, one.end, np.zeros((3, -(-(one.end - one.start) // self.granule)), np.uint32))
            for one in mapped.storage.ranges()
        ]

    def touch(self, role: int, offsets: npt.NDArray[np.int64], size: int, place: int) -> Meeting | None:
        """Note that the workgroup at `place` touches `size` bytes at each of some offsets; return the first race."""
        found = [self._touch(one, role, offsets, size, place) for one in self.stretches]
        return min((one for one in found if one is not None), key=lambda one: one.offset, default=None)

    def _touch(
        self, stretch: Stretch, role: int, offsets: npt.NDArray[np.int64], size: int, place: int
    ) -> Meeting | None:
        inside = offsets[(offsets >= stretch.start) & (offsets + size <= stretch.end)] - stretch.start
        ends = [inside // self.granule, (inside + size - 1) // self.granule]
        spots: npt.NDArray[np.int64] = np.unique(np.concatenate(ends))
        own, me = stretch.words[role], np.uint32(place + 1)
        held: Words = own[spots]
        known: npt.NDArray[np.bool_] = (held & ~np.uint32(SEVERAL)) == me
        own[spots] = np.select([held == 0, known], [me, held], held | np.uint32(SEVERAL))
        first: Meeting | None = None
        for other in AGAINST[role]:
            seen = stretch.words[other][spots]
            foreign = np.flatnonzero((seen != 0) & (seen != me))
            if not len(foreign):
                continue
            offset = stretch.start + int(spots[foreign[0]]) * self.granule
            number = int(seen[foreign[0]]) & ~SEVERAL
            if first is None or offset < first.offset:
                first = Meeting(offset, other, number - 1 if number != me else None)
        return first


class Traffic:
    """The words of a launch, for the buffers whose parameter is declared for writing."""

    def __init__(self, memory: AddressSpace) -> None:
        self._watched = {one: Watched(one) for one in memory.buffers if one.parameter.access != "read"}

    def of(self, mapped: Mapped) -> Watched | None:
        """Return the words of a buffer; None where the kernel only reads it."""
        return self._watched.get(mapped)

    def clear(self) -> None:
        """Forget everything: the launch begins anew."""
        for one in self._stretches():
            one.words[...] = 0

    def _stretches(self) -> Iterable[Stretch]:
        return (stretch for one in self._watched.values() for stretch in one.stretches)
