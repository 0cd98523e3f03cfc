"""The order in which the waves of a workgroup run, drawn from a seed: the same in every engine."""

from __future__ import annotations

from typing import Final

STEP: Final = 0x9E3779B97F4A7C15
MULTIPLIERS: Final = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
"""The constants of splitmix64 (Steele, Lea and Flood, 2014)."""
FACTORS: Final = (0xD1342543DE82EF95, 0xAF251AF3B0F025B5, 0xB564EF22EC7AECE5)
"""Odd numbers that spread seeds, places and rounds over the states."""
_MASK: Final = (1 << 64) - 1


def wave_order(seed: int, place: int, round_: int, count: int) -> list[int]:
    """Return a permutation of `count` waves for a round, between two barriers, of the workgroup at `place`.

    Seed 0 stands for ascending order.
    """
    order = list(range(count))
    if seed == 0:
        return order
    state = (seed * FACTORS[0] + place * FACTORS[1] + round_ * FACTORS[2]) & _MASK
    for last in range(count - 1, 0, -1):
        state = (state + STEP) & _MASK
        mixed = ((state ^ state >> 30) * MULTIPLIERS[0]) & _MASK
        mixed = ((mixed ^ mixed >> 27) * MULTIPLIERS[1]) & _MASK
        other = (mixed ^ mixed >> 31) % (last + 1)
        order[last], order[other] = order[other], order[last]
    return order
