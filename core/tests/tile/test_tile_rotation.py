"""On which side of a barrier accesses to a ring may stand, against rounds that are played through slot by slot."""

from __future__ import annotations

from itertools import product

import pytest

from kinfolk.errors import IRError
from kinfolk.tile.rotation import BEFORE, PAST, SIDES, Rotation
from kinfolk.tile.timeline import Meeting

ROUNDS = 14


def plays(slots, reads, writes):
    """Whether rounds with these accesses, pairs of distance and side, read what was meant and race with nothing.

    Between two barriers all waves run at once: a slot that one of them writes must not be touched by another access.
    """
    intervals = [[] for _ in range(ROUNDS + 1)]
    for number in range(ROUNDS):
        for kind, accesses in (("read", reads), ("write", writes)):
            for distance, side in accesses:
                intervals[number + side].append((kind, number + distance))
    held: dict[int, int] = {}
    for time, interval in enumerate(intervals):
        written = {tile % slots: tile for kind, tile in interval if kind == "write"}
        if len([tile for kind, tile in interval if kind == "write"]) != len(written):
            return False
        for kind, tile in interval:
            settled = ROUNDS // 2 < time < ROUNDS
            if kind == "read" and settled and (tile % slots in written or held.get(tile % slots) != tile):
                return False
        held.update(written)
    return True


@pytest.mark.parametrize("slots", range(1, 5))
def test_what_is_taken_plays_and_what_is_refused_does_not(slots):
    taken = 0
    for reads in [(0,), (0, 1), (1, 0, 2), (0, -1, 1), (-1, 2)]:
        for write in range(-1, 5):
            sides = [
                (chosen, left)
                for chosen in SIDES
                for left in product(SIDES, repeat=len(reads))
                if plays(slots, list(zip(reads, left, strict=True)), [(write, chosen)])
            ]
            if not sides:
                with pytest.raises(IRError, match=f"{slots} slots, reads .*it takes|is read before it is written"):
                    Rotation(slots=slots, reads=reads, writes=(write,))
                continue
            rotation = Rotation(slots=slots, reads=reads, writes=(write,))
            side = rotation.side_of_writes(write)
            played = {left for chosen, left in sides if chosen == side}
            allowed = [[each for each in SIDES if rotation.reads_may_stand(read, each)] for read in reads]
            assert played == set(product(*allowed))
            taken += 1
    assert (taken > 0) == (slots > 1), "in one slot a tile would be written and read at once"


def test_a_write_stands_where_fewest_reads_bind_the_barrier():
    """With a slot more, the tile is written past the barrier and its predecessors may be read there."""
    rotation = Rotation(slots=4, reads=(1, 0, 2), writes=(3,))
    assert rotation.side_of_writes(3) == PAST and rotation.reads_may_stand(0, PAST)
    assert not rotation.reads_may_stand(2, BEFORE)
    tight = Rotation(slots=3, reads=(1, 0, 2), writes=(2,))
    assert tight.side_of_writes(2) == BEFORE and not tight.reads_may_stand(0, PAST)


def test_a_tile_that_is_not_named_is_told():
    rotation = Rotation(slots=3, reads=(1, 0, 2), writes=(2,))
    with pytest.raises(IRError, match=r"reads tiles \[0, 1, 2\] ahead, not 3"):
        rotation.reads_may_stand(3, BEFORE)
    with pytest.raises(IRError, match=r"writes tiles \[2\] ahead, not 1"):
        rotation.side_of_writes(1)
    with pytest.raises(IRError, match="it takes 3 slots"):
        Rotation(slots=2, reads=(1, 0, 2), writes=(2,))


def test_two_barriers_a_tile_let_one_slot_do():
    """Between them it is read, past both, or before the next round's, written; with one it takes two slots."""
    rotation = Rotation(slots=1, reads=(0,), writes=(1,), meetings=2)
    sides = range(3)
    assert rotation.side_of_writes(1) == 0 or rotation.side_of_writes(1) == 2
    assert [rotation.reads_may_stand(0, side) for side in sides].count(True) == 1
    with pytest.raises(IRError, match="it takes 2 slots"):
        Rotation(slots=1, reads=(0,), writes=(1,))
    with pytest.raises(IRError, match="place them by hand"):
        Meeting(rotation=rotation)
