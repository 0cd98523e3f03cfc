"""Tiles that take turns in the slots of a ring: on which side of a round's barrier each access to them may stand.

Tile t lies in slot t mod `slots`, and the waves meet once a tile, or as often as `meetings` says. What happens between
two barriers happens at one *time*. An access to the tile `distance` ahead of the round's own, past `side` of the
round's barriers, happens `side - distance * meetings` after the time at which the round's own tile is met first. The
rules are two: a tile is written before it is read, and read before the slot's next tile is written, `slots` later; each
with a barrier between.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Final, TypeVar

import attrs

from kinfolk.errors import IRError

Side = int
"""How many of a round's barriers an access stands behind."""
BEFORE: Final[Side] = 0
PAST: Final[Side] = 1
SIDES: Final[tuple[Side, ...]] = (BEFORE, PAST)
Sides = TypeVar("Sides", Side, frozenset[Side])


@attrs.frozen
class Choice:
    """Sides of all writes by distance, and what they leave to the reads."""

    writes: Mapping[int, Side]
    reads: Mapping[int, frozenset[Side]]

    @property
    def freedom(self) -> int:
        """How many reads may stand past the barrier: those that must can be made to wait for it, the others bind it."""
        return sum(PAST in sides for sides in self.reads.values())


@attrs.frozen(kw_only=True)
class Rotation:
    """What a round does with the tiles of a ring, by how many tiles ahead of its own: `reads` and `writes`.

    `direct`: tiles come to workgroup memory by themselves, and a wait before the barrier sees them there; a write is
    then the asking for it. With `meetings` 2 a round has two barriers, which a schedule places itself: one slot is then
    enough for a tile that is read between them. Raises IRError where no barrier keeps the accesses apart, naming the
    slots that would do.
    """

    slots: int
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    direct: bool = False
    meetings: int = 1

    def __attrs_post_init__(self) -> None:
        if next(self._choices(self.slots), None) is None:
            enough = next((more for more in range(1, 65) if any(self._choices(more))), None)
            remedy = f"it takes {enough} slots" if enough else "a tile is read before it is written"
            raise IRError(
                f"{self.slots} slots, reads {list(self.reads)} and writes {list(self.writes)} tiles ahead: no barrier "
                f"keeps them apart; {remedy}"
            )

    @property
    def choice(self) -> Choice:
        """The sides of the writes that leave most to the reads; of equal ones, the earliest."""
        return max(self._choices(self.slots), key=lambda choice: choice.freedom)

    def reads_may_stand(self, distance: int, side: Side) -> bool:
        """Whether reads of the tile `distance` ahead may stand on a side. Raises IRError for one that is not named."""
        return side in _named(self.choice.reads, distance, "reads")

    def side_of_writes(self, distance: int) -> Side:
        """Return the side on which the tile `distance` ahead is written. Raises IRError for one that is not named."""
        return _named(self.choice.writes, distance, "writes")

    def _choices(self, slots: int) -> Iterator[Choice]:
        every = range(self.meetings + 1)
        turn = slots * self.meetings
        for sides in product(every, repeat=len(self.writes)):
            times = [side - distance * self.meetings for side, distance in zip(sides, self.writes, strict=True)]
            first, last = min(times, default=0), max(times, default=0)
            reads: dict[int, frozenset[Side]] = {
                distance: frozenset(
                    side for side in every if not times or last < side - distance * self.meetings < first + turn
                )
                for distance in self.reads
            }
            if last < first + turn and all(reads.values()):
                yield Choice(dict(zip(self.writes, sides, strict=True)), reads)


def _named(known: Mapping[int, Sides], distance: int, what: str) -> Sides:
    if distance not in known:
        raise IRError(f"the rotation {what} tiles {sorted(known)} ahead, not {distance}")
    return known[distance]
