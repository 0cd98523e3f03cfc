"""The first product as units, S' = K Q', and what becomes of scores: weights, and the largest of a lane."""

from __future__ import annotations

from collections.abc import Sequence as Many

import attrs

from kinfolk.ir.builder import constant
from kinfolk.ir.ops import arithmetic, vector
from kinfolk.ir.types import F32, VectorType
from kinfolk.ir.value import Value
from kinfolk.tile.attention.frame import Frame
from kinfolk.tile.attention.rows import READ
from kinfolk.tile.attention.schedule import Schedule
from kinfolk.tile.contraction import Contraction
from kinfolk.tile.lane_index import lane_index
from kinfolk.tile.layout import Layout, Step, per_lane, steps_of
from kinfolk.tile.narrow import narrow_weights
from kinfolk.tile.reduction import in_lane
from kinfolk.tile.softmax import OnlineSoftmax, RowState
from kinfolk.tile.timeline import Job, Read, Use
from kinfolk.tile.workgroup_tile import WorkgroupTile


def key_steps(frame: Frame, tile_keys: int) -> tuple[Step, ...]:
    """Return how the scores of a tile, a block of keys after the other, are operands B of the second product."""
    shape = frame.atom.shape
    steps = steps_of(Layout.of("scores", shape.c), shape.b)
    blocks = range(tile_keys // shape.m)
    return tuple(Step(step.slots, step.rows + block * shape.m) for block in blocks for step in steps)


@attrs.frozen(eq=False)
class TileScores:
    """Of a tile's keys, in blocks of an atom's rows. A unit is one read of a key row and its matrix operations, the
    blocks taking turns.

    `start` is where a lane reads, `first_key` the number in a block of the key of its first score, `places` how much
    further those of all scores of a block are.
    """

    schedule: Schedule
    frame: Frame
    softmax: OnlineSoftmax
    tile: WorkgroupTile
    contraction: Contraction
    start: Value
    first_key: Value
    places: tuple[int, ...]

    @classmethod
    def of(
        cls, schedule: Schedule, frame: Frame, softmax: OnlineSoftmax, tile: WorkgroupTile, width: int
    ) -> TileScores:
        """Find where this lane reads, of keys of `width` columns, and which keys its scores are of."""
        shape = frame.atom.shape
        contraction = frame.contraction(width)
        rows = per_lane(shape.a.rows, "the key of an A element")
        places = shape.c.rows - shape.c.rows[:, :1]
        assert (places == places[0]).all()
        start, first = lane_index(rows * tile.pitch + contraction.start_a), lane_index(shape.c.rows[:, 0])
        return cls(schedule, frame, softmax, tile, contraction, start, first, tuple(map(int, places[0])))

    @property
    def block_keys(self) -> int:
        """How many keys a block has."""
        return self.frame.atom.shape.m

    @property
    def blocks(self) -> int:
        """How many atoms the keys of a tile take."""
        return self.schedule.tile_keys // self.block_keys

    @property
    def units(self) -> int:
        """How many units the product of a tile has."""
        return self.contraction.reads * self.blocks // self.schedule.reads_together

    def _places_of(self, unit: int) -> list[tuple[int, int]]:
        """Return the reads of a row, each with its block, that a unit makes."""
        first = unit * self.schedule.reads_together
        return [divmod(place, self.blocks) for place in range(first, first + self.schedule.reads_together)]

    def start_at_zero(self) -> list[Value]:
        """Return accumulators, one a block."""
        return [constant(0.0, VectorType(F32, self.frame.atom.shape.c.slots))] * self.blocks

    def reads(self, slot: Value) -> Read:
        """Return what reads the keys of a slot."""
        address: list[Value] = []

        def read(unit: int) -> list[Value]:
            if not address:
                address.append(self.start + slot)
            width, places = self.contraction.width, self._places_of(unit)
            found = [
                self.tile.load(address[0], width, row=block * self.block_keys, column=number * width, scope=READ)
                for number, block in reversed(places)
            ]
            return found[::-1]

        return read

    def use(self, query: Many[Value], total: list[Value]) -> Use:
        """Return what multiplies a read with the query, into `total`."""

        def use(unit: int, operands: Many[Value]) -> None:
            places = self._places_of(unit)
            parts = [
                list(zip(self.contraction.split(keys), self.contraction.split(query[number]), strict=True))
                for (number, _), keys in zip(places, operands, strict=True)
            ]
            for step in range(self.contraction.steps):
                for (_, block), part in zip(places, parts, strict=True):
                    total[block] = self.frame.atom(*part[step], total[block])

        return use

    def elements(self, scores: Many[Value]) -> list[Value]:
        """Return a lane's scores, those of a block after the other."""
        slots = range(self.frame.atom.shape.c.slots)
        return [vector.extract(block, index=slot) for block in scores for slot in slots]

    def largest(self, scores: list[Value], found: list[Value]) -> list[Job]:
        """Return the jobs that find the largest of a lane's scores, of `scores` that are there when they run."""
        pieces: list[Value] = []
        width = 5

        def take(first: int) -> Job:
            return lambda: pieces.append(in_lane(self.elements(scores)[first : first + width], arithmetic.fmax))

        def join() -> None:
            found.append(in_lane(pieces, arithmetic.fmax))

        count = self.blocks * self.frame.atom.shape.c.slots
        return [*(take(first) for first in range(0, count, width)), join]

    def weigh(self, scores: Many[Value], row: RowState, weights: list[Value], total: list[Value]) -> list[Job]:
        """Return the jobs that form the weights of a tile: exponentials of a pair of scores, then, a job later, what
        takes them; `weights` gets an operand B a step, `total` the row's total weight so far.
        """
        slots = self.frame.atom.shape.b.slots
        elements = self.elements(scores)
        formed: list[Value] = []
        total.append(row.total)

        def exponentials(first: int) -> Job:
            def job() -> None:
                for score in elements[first : first + 2]:
                    formed.append(self.softmax.weight(row, score))

            return job

        def taken(first: int) -> Job:
            def job() -> None:
                for weight in formed[first : first + 2]:
                    total[0] = total[0] + weight
                if (first + 2) % slots == 0:
                    weights.append(narrow_weights(formed[first + 2 - slots : first + 2], self.frame.element))

            return job

        jobs: list[Job] = []
        for first in range(0, len(elements), 2):
            jobs.append(exponentials(first))
            if first:
                jobs.append(taken(first - 2))
        return [*jobs, taken(len(elements) - 2)]
