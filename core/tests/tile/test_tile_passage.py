"""A round's accesses as they are read from emitted operations: what cannot be judged is told, and what races is."""

from __future__ import annotations

import re

import pytest

from kinfolk.errors import IRError
from kinfolk.ir.builder import constant
from kinfolk.ir.ops import control, lanes, memory
from kinfolk.ir.types import I32
from kinfolk.tile.rotation import Rotation
from kinfolk.tile.slots import Slots, round_of

PAIR = Rotation(slots=2, reads=(0,), writes=(1,))
HALVES = Rotation(slots=3, reads=(0, -1, 1), writes=(1,))


class Accesses:
    """What a round may do, by words: `r1` reads the tile one ahead, `w1` writes it, `b` meets."""

    def __init__(self, words, rotation=PAIR, tiles=1):
        self.words, self.rotation, self.tiles = words.split(), rotation, tiles

    def __call__(self):
        self.lane = lanes.lane_id()
        self.buffer = memory.allocate(I32, self.rotation.slots * 64)
        slots = Slots(begin=constant(0, I32), count=self.rotation.slots, elements=64)

        def round_(number, carried):
            with round_of(self.rotation, slots, carried[0], self.tiles) as ring:
                for word in self.words:
                    self.do(word, ring)
            return [ring.ahead(self.tiles)]

        control.for_range(0, 0, 1, [control.opaque(slots.begin)], round_)
        return []

    def do(self, word, ring):
        kind, where = word[0], word[1:]
        if kind == "b":
            control.barrier()
        elif kind == "B":
            control.if_else(self.lane < 3, lambda: control.barrier() or ())
        elif kind == "n":
            memory.workgroup_load(self.buffer, self.lane)
        elif kind == "t":
            memory.workgroup_load(self.buffer, ring.ahead(0) + ring.ahead(1))
        else:
            index = ring.ahead(int(where)) + self.lane * 1
            if kind == "r":
                memory.workgroup_load(self.buffer, index)
            elif kind == "R":
                control.if_else(self.lane < 3, lambda: [memory.workgroup_load(self.buffer, index)], lambda: [self.lane])
            else:
                memory.workgroup_store(self.buffer, index, self.lane)


TOLD = {
    "r0 w1": "the waves meet 0 times in a round of 1 tiles",
    "r0 b w1 b": "the waves meet 2 times",
    "r0 w1 n b": "is of no slot of the round",
    "r0 t w1 b": "computed from 2 slots",
    "r0 w1 B": "stands in a branch or a loop",
    "r0 b w1": "no barrier parts from its being written: 0 tiles ahead",
    "w1 b r0": "one of 2, is written again by then: 0 tiles ahead",
    "w1 b R0": "one of 2, is written again by then: 0 tiles ahead",
    "r0 w2 b": "one of 2, is written again by then",
    "r1 w1 b": "no barrier parts from its being written: 1 tiles ahead",
}


@pytest.mark.parametrize("words", TOLD)
def test_what_cannot_be_or_cannot_be_judged_is_told(evaluate, words):
    with pytest.raises(IRError, match=re.escape(TOLD[words])) as caught:
        evaluate(Accesses(words))
    both = "tiles ahead" in TOLD[words] or "written again" in TOLD[words]
    assert not both or str(caught.value).count("(at ") == 2, "both accesses, each with its line"
    assert "test_tile_passage.py" in str(caught.value) or "waves meet" in str(caught.value)


@pytest.mark.parametrize("words", ["r0 w1 b", "w1 r0 b", "R0 w1 b", "w1 b r1", "w2 b r2 r1", "b r0 w1", "b r1 w2"])
def test_what_is_parted_is_taken(evaluate, words):
    evaluate(Accesses(words, Rotation(slots=3, reads=(0,), writes=(1,)) if "2" in words else PAIR))


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("r0 w1 b r0 w2 b r2", None),
        ("r0 w1 b r0 w2 b", None),
        ("r0 w1 b w2 b r0", "is written again by then"),
        ("r0 w2 b r0 w1 b", "no barrier parts"),
        ("r0 w1 r1 b r0 w2 b", "no barrier parts"),
        ("r0 w1 b r0 b w2", "no barrier parts"),
    ],
)
def test_groups_half_a_round_apart_are_judged_together(evaluate, words, told):
    """What one group reads, the other writes: in a round by itself each of these has nothing to run into."""
    if told is None:
        evaluate(Accesses(words, HALVES, tiles=2))
    else:
        with pytest.raises(IRError, match=told):
            evaluate(Accesses(words, HALVES, tiles=2))


SINGLE = Rotation(slots=1, reads=(0,), writes=(1,), meetings=2)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("b r0 b w1", None),
        ("r0 b w1 b", None),
        ("r0 b w1 b r1", None),
        ("r0 w1 b", "the waves meet 1 times in a round of 1 tiles, they must 2 times a tile"),
        ("b b r0 w1", "is written again by then"),
        ("b r0 w1 b", "is written again by then"),
        ("b w1 b r0", "is written again by then"),
    ],
)
def test_a_tile_with_one_slot_is_read_between_two_barriers(evaluate, words, told):
    if told is None:
        evaluate(Accesses(words, SINGLE))
    else:
        with pytest.raises(IRError, match=told):
            evaluate(Accesses(words, SINGLE))
