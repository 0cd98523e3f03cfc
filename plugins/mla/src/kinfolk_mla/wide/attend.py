"""What happens to a tile's scores: weights of the rows, and in the rare case masks and larger maxima."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce

import attrs

from kinfolk.ir.ops import arithmetic, control, convert, lanes, vector
from kinfolk.ir.types import I32
from kinfolk.ir.value import Value
from kinfolk.tile.lane_index import lane_again, lane_index
from kinfolk.tile.layout import Step
from kinfolk.tile.narrow import narrow_weights
from kinfolk.tile.reduction import in_lane
from kinfolk.tile.softmax import OnlineSoftmax, RowState, scale_accumulators
from kinfolk.tile.state import branch
from kinfolk.tile.timeline import Job
from kinfolk_mla.decode.epilogue import row_of_score
from kinfolk_mla.decode.sequence import Sight, Work
from kinfolk_mla.wide.ring import Pages
from kinfolk_mla.wide.scores import ScoreUnits
from kinfolk_mla.wide.values import ValueUnits


@attrs.frozen(eq=False)
class Attended:
    """Scores of a tile, if any are there, and what the tiles before come to: per head tile the row, all accumulators,
    and how many page ids were refused.
    """

    refused: Value
    scores: Sequence[Value]
    rows: Sequence[RowState]
    output: Sequence[Value]


@attrs.frozen(eq=False)
class Attention:
    """The steps of the softmax between both products."""

    work: Work
    pages: Pages
    scores: ScoreUnits
    values: ValueUnits
    softmax: OnlineSoftmax
    sight: Sight

    def weigh(
        self, scores: Sequence[Value], before: Sequence[RowState]
    ) -> tuple[list[Value], list[RowState], list[Job]]:
        """Return where the weights of a tile and the rows with them added will be, and the jobs that form them."""
        operands: list[Value] = []
        rows: list[RowState] = []
        jobs: list[Job] = []
        for tile, row in zip(scores, before, strict=True):
            formed: dict[int, Value] = {}
            total: list[Value] = [row.total]
            for step in self.work.geometry.steps:
                jobs += [self._weight_job(tile, slot, row, formed, total) for slot in step.slots]
                jobs.append(self._pack_job(step, formed, operands))

            def sum_up(row: RowState = row, total: list[Value] = total) -> None:
                rows.append(RowState(row.maximum, total[0]))

            jobs.append(sum_up)
        return operands, rows, jobs

    def _pack_job(self, step: Step, formed: dict[int, Value], operands: list[Value]) -> Job:
        element = self.work.geometry.element
        return lambda: operands.append(narrow_weights([formed[slot] for slot in step.slots], element))

    def _weight_job(self, scores: Value, slot: int, row: RowState, formed: dict[int, Value], total: list[Value]) -> Job:
        def weigh() -> None:
            score = vector.extract(scores, index=slot)
            weight = arithmetic.exp2((score - row.maximum) * self.softmax.scale_log2)
            formed[slot] = weight
            total[0] = total[0] + weight

        return weigh

    def largest(self, total: list[Value], largest: list[Value]) -> list[Job]:
        """Return the jobs that find, per head tile, the largest score a lane holds."""

        def find(number: int) -> Callable[[], None]:
            return lambda: largest.append(in_lane(self.scores.elements(total[number]), arithmetic.fmax))

        return [find(number) for number in range(self.work.geometry.head_tiles)]

    def correct(
        self, tile: Value, now: Attended, valid: Sequence[Value], largest: Sequence[Value], ahead: int = 0
    ) -> Attended:
        """In the rare case, mask the scores of tile `tile` + `ahead` past the sequence and raise the maxima.

        Whether it is the rare case needs no other lane's scores: some lane holds the one that exceeds.
        """
        spec = self.work.geometry.spec
        rare = reduce(arithmetic.smin, valid) < spec.page_size
        rare = rare | self.sight.is_partial(tile, ahead)
        for row, score in zip(now.rows, largest, strict=True):
            rare = rare | self.softmax.exceeds(row, score)
        return branch(
            lanes.any_lane(rare),
            lambda: self.raised(control.opaque(tile, uniform=True) + ahead, now, valid),
            lambda: now,
            cold=True,
        )

    def raised(self, tile: Value, now: Attended, valid: Sequence[Value]) -> Attended:
        """Return the scores with -inf past `valid` keys of each page, rows under their larger maximum, accumulators
        scaled to it, and the refused page ids of the tile counted.
        """
        count, lane = len(now.output) // len(now.rows), lane_again()
        scores: list[Value] = []
        rows: list[RowState] = []
        output: list[Value] = []
        for number, (tile_scores, row) in enumerate(zip(now.scores, now.rows, strict=True)):
            masked = self.scores.masked(tile_scores, self._seen(tile, lane, number, valid))
            larger, factor = self.softmax.raise_maximum(row, self.softmax.tile_maximum(masked))
            scores.append(vector.pack(*masked))
            rows.append(larger)
            output += scale_accumulators(now.output[number * count : (number + 1) * count], factor)
        return Attended(now.refused + self._refused(tile, valid), scores, rows, output)

    def _seen(self, tile: Value, lane: Value, head_tile: int, valid: Sequence[Value]) -> list[Value]:
        """Return how many keys of each page of a tile a lane's row of a head tile sees, from the lane's first on."""
        spec = self.work.geometry.spec
        keys = self.sight.keys(row_of_score(self.work, lane, head_tile), tile * spec.tile_keys)
        first = lane_index(self.scores.first, lane)
        return [
            arithmetic.smin(keys - page * spec.page_size if page else keys, rows) - first
            for page, rows in enumerate(valid)
        ]

    def _refused(self, tile: Value, valid: Sequence[Value]) -> Value:
        """Return how many of a tile's page ids that are in use lie outside the cache, each where its page begins."""
        table = self.pages.table
        wrong = [
            convert.zext((number < table.tiles) & rows.eq(0) & table.opens(number), to=I32)
            for number, rows in zip(self.pages.numbers(tile), valid, strict=True)
        ]
        return reduce(arithmetic.add, wrong)
