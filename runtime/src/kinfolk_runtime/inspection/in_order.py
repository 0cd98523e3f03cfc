"""An in-order model of one wave: how many clocks a round of a loop takes, from what each instruction needs and costs.

One instruction issues after the other, each when its registers are there, its unit is free and, where it waits, few
enough accesses are in flight. Nothing is known of caches, bank conflicts, or of other waves on the same SIMD; what
waves of a compute unit share, workgroup memory, is held as long as all of them hold it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kinfolk.machine import CostModel, Instruction

SETTLING_ROUNDS: Final = 2
"""Rounds that fill queues and units, and are not counted."""
COUNTED_ROUNDS: Final = 12
"""A whole number of periods, where a wait for the access of some rounds ago lets rounds take turns."""


class _Wave:
    def __init__(self, model: CostModel, sharing: int) -> None:
        self.clock = 0.0
        self._model: CostModel = model
        self._sharing = sharing
        self._ready: dict[str, float] = {}
        self._by_matrix: set[str] = set()
        self._matrix_free = 0.0
        self._shared_free = 0.0
        self._flying: dict[str, list[float]] = {}

    def issue(self, instruction: Instruction) -> None:
        """Let one instruction issue as soon as it can."""
        cost = instruction.costs.get(self._model)
        if cost is None:
            return
        begin = max((self._ready.get(name, 0.0) for name in instruction.reads), default=0.0)
        begin = max(begin, self.clock, self._landed(instruction))
        matrix = instruction.issue == "matrix"
        for name in instruction.adds_to:
            early = instruction.forward if name in self._by_matrix else 0.0
            begin = max(begin, self._ready.get(name, 0.0) - early)
        if matrix:
            begin = max(begin, self._matrix_free)
            self._matrix_free = begin + instruction.matrix_clocks
        else:
            begin = max([begin, *(self._ready.get(name, 0.0) for name in instruction.writes)])
        done = begin + cost.result
        if cost.shared:
            held = max(begin, self._shared_free)
            self._shared_free = held + cost.shared * self._sharing
            done = self._shared_free + cost.result
        if instruction.queue:
            flying = self._flying.setdefault(instruction.queue, [])
            done = max(done, flying[-1] if flying else 0.0)
            flying.append(done)
        self._ready.update(dict.fromkeys(instruction.writes, done))
        (self._by_matrix.update if matrix else self._by_matrix.difference_update)(instruction.writes)
        self.clock = begin + cost.issue

    def _landed(self, instruction: Instruction) -> float:
        """Return when few enough accesses are in flight for a wait, and forget those that are not."""
        landed = 0.0
        for queue, most in instruction.waits.items():
            flying = self._flying.get(queue, [])
            over = len(flying) - most
            if over > 0:
                landed = max(landed, flying[over - 1])
                del flying[:over]
        return landed


def clocks_per_round(body: Sequence[Instruction], model: CostModel, sharing: int = 1) -> float:
    """Return the clocks of one round of a loop in its steady state, for a wave that is alone on its SIMD.

    `sharing` waves, each on a SIMD of its own, hold workgroup memory for every access.
    """
    wave = _Wave(model, sharing)
    marks = [wave.clock]
    for _ in range(SETTLING_ROUNDS + COUNTED_ROUNDS):
        for instruction in body:
            wave.issue(instruction)
        marks.append(wave.clock)
    return (marks[-1] - marks[SETTLING_ROUNDS]) / COUNTED_ROUNDS
