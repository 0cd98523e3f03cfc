"""Atomics of workgroup memory and values pushed to other lanes, by their words, and what of them is a race.

The oracle is AMD's pseudo-code of each, by hand.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from by_words import LANE, ds, step_of, waves

from kinfolk_amdgcn.isa.fault import Stop
from kinfolk_amdgcn.isa.local_steps import swizzle_lanes
from kinfolk_amdgcn.isa.waves import EXEC

WORD = 0xFFFFFFFF


def signed(value: int) -> int:
    return value - (value >> 31 << 32)


BY_HAND: dict[int, Any] = {
    0: lambda m, x, y: m + x,
    1: lambda m, x, y: m - x,
    2: lambda m, x, y: x - m,
    3: lambda m, x, y: 0 if m >= x else m + 1,
    4: lambda m, x, y: x if m == 0 or m > x else m - 1,
    5: lambda m, x, y: min(m, x, key=signed),
    6: lambda m, x, y: max(m, x, key=signed),
    7: lambda m, x, y: min(m, x),
    8: lambda m, x, y: max(m, x),
    9: lambda m, x, y: m & x,
    10: lambda m, x, y: m | x,
    11: lambda m, x, y: m ^ x,
    12: lambda m, x, y: m & ~x | y,
    16: lambda m, x, y: y if m == x else m,
}
"""What is left by opcodes, from what was and the two data operands."""


def prepared(held: list[int]) -> Any:
    w = waves()
    w.batch.local.bytes.view(np.uint32)[: len(held)] = held
    w.batch.local.written[:] = True
    generator = np.random.default_rng(2)
    w.v[1, 0] = LANE % 4 * 4
    for row in (2, 3):
        w.v[row, 0] = generator.choice(np.array([0, 1, 5, 7, 0x80000000, WORD, 0xF0F0], np.uint32), 64)
    return w


@pytest.mark.parametrize("opcode", sorted(BY_HAND))
def test_lanes_change_a_place_in_turn_and_get_what_was_there(opcode: int) -> None:
    """The returning form is 32 opcodes on; data1 is v3 in both."""
    held = [5, 0x80000001, 0xF0F0, 0]
    expected, before = list(held), []
    plain, returning = prepared(held), prepared(held)
    for lane in range(64):
        place, x, y = lane % 4, int(plain.v[2, 0, lane]), int(plain.v[3, 0, lane])
        before.append(expected[place])
        expected[place] = BY_HAND[opcode](expected[place], x, y) & WORD
    low, high = ds(opcode, address=1, data=2, target=4)
    step_of(low, high | 3 << 16).run(plain)
    low, high = ds(opcode + 32, address=1, data=2, target=4)
    step_of(low, high | 3 << 16).run(returning)
    for w in (plain, returning):
        assert w.batch.local.bytes.view(np.uint32)[:4].tolist() == expected
    assert returning.v[4, 0].tolist() == before
    assert plain.v[4, 0].tolist() == [0] * 64


def test_two_places_are_exchanged_at_once_and_one_wraps() -> None:
    w = prepared(list(range(100, 300)))
    w.v[1, 0], w.v[2, 0], w.v[3, 0] = LANE * 4, LANE, LANE + 500
    low, high = ds(46, 0 | 70 << 8, address=1, data=2, target=4)  # ds_wrxchg2_rtn_b32 offset1:70
    step_of(low, high | 3 << 16).run(w)
    assert w.v[4, 0].tolist() == (LANE + 100).tolist() and w.v[5, 0].tolist() == (LANE + 170).tolist()
    words = w.batch.local.bytes.view(np.uint32)
    assert words[:64].tolist() == LANE.tolist() and words[70:134].tolist() == (LANE + 500).tolist()
    w.v[2, 0], w.v[3, 0] = 10, 7
    low, high = ds(52, address=1, data=2, target=4)  # ds_wrap_rtn_b32
    step_of(low, high | 3 << 16).run(w)
    assert words[:64].tolist() == np.where(LANE >= 10, LANE - 10, LANE + 7).tolist()


def test_values_are_pushed_to_lanes_and_the_last_one_wins() -> None:
    w = prepared([0])
    w.v[1, 0], w.v[2, 0] = LANE // 2 * 4, LANE + 100
    w.s[:, EXEC : EXEC + 2] = [0xFFFFFFFF, 0xFFFFFFFE]
    w.exec_written()
    w.v[4, 0] = 77
    step_of(*ds(62, address=1, data=2, target=4)).run(w)
    expected = [2 * lane + 1 + 100 if lane < 32 else 0 for lane in range(64)]
    expected[16] = 33 + 100  # lane 32 is not live, 33 goes to the same place
    expected[32] = 77
    assert w.v[4, 0].tolist() == expected


@pytest.mark.parametrize(
    ("pattern", "lanes"),
    [
        (0xC020, LANE // 32 * 32 + (LANE + 1) % 32),
        (0xC420, LANE // 32 * 32 + (LANE - 1) % 32),
        (0xC038, LANE // 8 * 8 + (LANE + 1) % 8),
    ],
)
def test_lanes_are_read_in_rotation(pattern: int, lanes: Any) -> None:
    """`swizzle(ROTATE, direction, count, mask)`: lanes that the mask has not stay among each other."""
    assert swizzle_lanes(pattern).tolist() == lanes.tolist()


def test_atomics_of_waves_meet_and_with_other_accesses_they_are_a_race() -> None:
    w = waves(3)
    w.batch.local.written[:] = True
    w.v[1], w.v[2] = 64, 1
    parts = [w.part(np.arange(3) == number) for number in range(3)]
    add, read, write = (step_of(*ds(*each)) for each in ((0, 0, 1, 2), (54, 0, 1, 0, 3), (13, 0, 1, 2)))
    for part in parts:
        add.run(part)
    assert w.batch.local.bytes.view(np.uint32)[16] == 192 + w.batch.local.bytes.view(np.uint32)[17]
    for other, verb in ((read, "reads"), (write, "writes")):
        with pytest.raises(Stop, match=f"{verb} workgroup memory that wave 1 wrote"):
            other.run(parts[0])
    for part in parts:
        part.local_loads.clear()
    w.batch.local.barrier(np.array([0]), parts)
    write.run(parts[0])
    with pytest.raises(Stop, match="writes workgroup memory that wave 0 wrote"):
        add.run(parts[1])


def test_an_atomic_that_nothing_waited_for_may_meet_others_past_a_barrier() -> None:
    w = waves(2)
    w.batch.local.written[:] = True
    w.v[1] = w.v[2] = 0
    first, second = (w.part(np.arange(2) == number) for number in range(2))
    add = step_of(*ds(0, address=1, data=2))
    add.run(first)
    w.batch.local.barrier(np.array([0]), [first, second])
    add.run(second)
    with pytest.raises(Stop, match="that wave 0 wrote"):
        step_of(*ds(54, address=1, target=3)).run(second)
