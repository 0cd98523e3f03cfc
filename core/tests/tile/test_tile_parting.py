"""Barriers around a tile by what is read and written: none missing and none that parts nothing, by trying all words."""

from __future__ import annotations

import re
from itertools import product

import pytest

from kinfolk.errors import IRError
from kinfolk.ir.builder import current_builder
from kinfolk.ir.ops import control, lanes, memory
from kinfolk.ir.types import I32
from kinfolk.tile.parting import parted

WRITTEN = {"core.workgroup_load": "r", "core.workgroup_store": "w", "core.barrier": "B", "core.if": "i"}


class Stretch:
    """Accesses by letters: `r` reads, `w` writes, `p` is of another buffer; capitals stand in a branch, `X` is both."""

    def __init__(self, letters, **around):
        self.letters, self.around, self.seen = letters, around, ""

    def __call__(self):
        self.lane = lanes.lane_id()
        self.buffer, self.other = memory.allocate(I32, 64), memory.allocate(I32, 64)
        control.for_range(0, 0, 1, (), lambda _, none: self.built() or none)
        return []

    def built(self):
        with parted(self.buffer, **self.around):
            for letter in self.letters:
                self.do(letter)
        self.seen = "".join(WRITTEN.get(op.name, "") for op in current_builder().operations)

    def do(self, letter):
        if letter.isupper():
            control.if_else(self.lane < 3, lambda: self.both(letter.lower().replace("x", "rw")))
        elif letter == "r":
            memory.workgroup_load(self.buffer, self.lane)
        elif letter == "w":
            memory.workgroup_store(self.buffer, self.lane, self.lane)
        elif letter == "p":
            memory.workgroup_store(self.other, self.lane, self.lane)
        else:
            control.barrier()

    def both(self, letters):
        for letter in letters:
            self.do(letter)
        return ()


def parts(text):
    """Whether accesses between two barriers are of one kind."""
    return all(len(set(part)) <= 1 for part in text.split("B"))


@pytest.mark.parametrize("count", range(5))
def test_no_barrier_is_missing_and_without_any_one_there_is_one(evaluate, count):
    """By definition, on every word of so many accesses between all that may stand around it."""
    seen = 0
    for letters in product("rw", repeat=count):
        for earlier, later in product((None, "read", "write"), repeat=2):
            stretch = Stretch("".join(letters), earlier=earlier, later=later)
            evaluate(stretch)
            assert stretch.seen.replace("B", "") == stretch.letters
            text = (earlier or "")[:1] + stretch.seen + (later or "")[:1]
            assert parts(text) or not count
            for place in re.finditer("B", text):
                assert not parts(text[: place.start()] + text[place.end() :]), f"{text}: one parts nothing"
                seen += 1
    assert seen > 0 or not count


@pytest.mark.parametrize(
    ("letters", "around", "seen"),
    [
        ("w", {"later": "read"}, "wB"),
        ("rw", {"later": "read"}, "rBwB"),
        ("Rw", {"later": "read"}, "iBwB"),
        ("WR", {"earlier": "read"}, "BiBi"),
        ("rpr", {"later": "read"}, "rwr"),
        ("pP", {"later": "read"}, "wi"),
    ],
)
def test_a_branch_is_one_access_and_another_buffer_is_none(evaluate, letters, around, seen):
    stretch = Stretch(letters, **around)
    evaluate(stretch)
    assert stretch.seen == seen


@pytest.mark.parametrize(
    ("letters", "told"),
    [
        ("rbw", "core.barrier is placed by what is read and written, not by hand"),
        ("rB", "core.barrier is placed by what is read and written, not by hand"),
        ("wX", "core.workgroup_load and core.workgroup_store stand in one branch or loop, where no barrier parts them"),
    ],
)
def test_what_is_placed_by_hand_or_cannot_be_parted_is_told(evaluate, letters, told):
    with pytest.raises(IRError, match=told) as caught:
        evaluate(Stretch(letters, later="read"))
    assert str(caught.value).count("test_tile_parting.py") >= 1 + letters.count("X")
