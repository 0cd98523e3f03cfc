"""MLA decode in one pass: each workgroup walks a sequence's pages once, for up to 64 rows of its query.

The absorbed form: all heads share one latent row per key, so a page staged once serves both products of four waves. The
loop holds one tile in workgroup memory while the next is on its way in registers; two barriers a tile keep them apart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from kinfolk.ir.builder import constant
from kinfolk.ir.ops import arithmetic, control, lanes
from kinfolk.ir.types import I32
from kinfolk.ir.value import Kernel, Value
from kinfolk.tile.lane_index import lane_again, lane_index
from kinfolk.tile.parting import parted
from kinfolk.tile.reduction import in_lane
from kinfolk.tile.softmax import OnlineSoftmax, RowState, scale_accumulators
from kinfolk.tile.state import branch, loop
from kinfolk_mla.decode.epilogue import row_of_score, store_rows
from kinfolk_mla.decode.frame import build
from kinfolk_mla.decode.gathered import GatheredTile
from kinfolk_mla.decode.keys import KeyTile, Places
from kinfolk_mla.decode.query import Query, load_query
from kinfolk_mla.decode.scores import ScoreProduct
from kinfolk_mla.decode.sequence import Sight, Work
from kinfolk_mla.decode.values import ValueProduct

if TYPE_CHECKING:
    from kinfolk.arch import Arch
    from kinfolk_mla.spec import MlaDecodeSpec


def emit_decode(spec: MlaDecodeSpec, arch: Arch) -> Kernel:
    """Build the kernel of `spec` from what `arch` has."""
    return build(spec, arch, "vgpr", lambda work: DecodeLoop.of(work, spec).run)


@attrs.frozen(eq=False)
class Accumulated:
    """What the tiles so far come to: softmax state, output accumulators, and how many page ids were refused (i32)."""

    refused: Value
    row: RowState
    output: list[Value]


@attrs.frozen(eq=False)
class TileState:
    """What the loop carries: the tile's valid rows, the next tile's page ids, and what the tiles so far come to."""

    valid: Value
    following: list[Value]
    accumulated: Accumulated


@attrs.frozen(eq=False)
class DecodeLoop:
    """The stages of the kernel and the values they share."""

    work: Work
    spec: MlaDecodeSpec
    sight: Sight
    keys: KeyTile | GatheredTile
    scores: ScoreProduct
    values: ValueProduct
    softmax: OnlineSoftmax
    parked: Value | None

    @classmethod
    def of(cls, work: Work, spec: MlaDecodeSpec) -> DecodeLoop:
        """Reserve workgroup memory and set the stages up."""
        geometry = work.geometry
        keys = GatheredTile.of(work) if spec.gathers else KeyTile.of(work)
        return cls(
            work,
            spec,
            work.sight(),
            keys,
            ScoreProduct.of(geometry, keys.tile),
            ValueProduct.of(geometry, keys.tile),
            OnlineSoftmax.of(work.arguments.scale, geometry.head_masks, unit=work.arguments.k_scale),
            Query.reserve(geometry, spec.parked_query_reads),
        )

    def run(self) -> None:
        """Stage the first tile, walk the tiles, store the rows."""
        query = load_query(self.work, self.parked, self.spec.parked_query_reads)
        zero = constant(0, I32)
        first = self.keys.resolve(self.keys.lookup(zero), zero)
        with parted(self.keys.tile.buffer, later="read"):
            self.keys.store(first.load())
        nothing = Accumulated(zero, RowState.start(), self.values.start())
        start = TileState(first.rows, self.keys.lookup(zero + 1), nothing)
        last = loop(0, self.keys.tiles, start, lambda tile, state: self._step(query, tile, state))
        self._finish(last.accumulated)

    def _finish(self, accumulated: Accumulated) -> None:
        def store() -> tuple[()]:
            store_rows(self.work, self.softmax, [accumulated.row], self.values.operand, accumulated.output)
            return ()

        self.keys.count(accumulated.refused)
        if self.spec.idle_waves:
            control.if_else(self.work.wave_has_rows, store)
        else:
            store()

    def _step(self, query: Query, tile: Value, state: TileState) -> TileState:
        """Attend over the staged tile while the next one loads; then put that in its place."""
        coming = self.keys.resolve(state.following, tile + 1)
        following = self.keys.lookup(tile + 2)
        loaded = coming.load()
        with parted(self.keys.tile.buffer, later="read"):
            accumulated = self._attend_if_any_row(query, tile, state)
            self.keys.store(loaded)
        return TileState(coming.rows, following, accumulated)

    def _attend_if_any_row(self, query: Query, tile: Value, state: TileState) -> Accumulated:
        if not self.spec.idle_waves:
            return self._attend(query, tile, state)
        return branch(self.work.wave_has_rows, lambda: self._attend(query, tile, state), lambda: state.accumulated)

    def _attend(self, query: Query, tile: Value, state: TileState) -> Accumulated:
        spec = self.spec
        raw = self.scores.scores(query, spec)
        scores, corrected = self._correct(tile, state, raw)
        row, weights = self.softmax.weights(corrected.row, scores)
        output = self.values.accumulate(weights, corrected.output, spec.value_read_ahead)
        return Accumulated(corrected.refused, row, output)

    def _correct(self, tile: Value, state: TileState, scores: list[Value]) -> tuple[list[Value], Accumulated]:
        """In the rare case, mask the scores past the sequence and raise the maximum; count a page that is refused once.

        Whether it is the rare case needs no other lane's scores: some lane holds the one that exceeds.
        """
        before = state.accumulated
        partial = self.keys.partial(state.valid) | self.sight.is_partial(tile)
        exceeds = self.softmax.exceeds(before.row, in_lane(scores, arithmetic.fmax))

        def correct() -> tuple[list[Value], Accumulated]:
            lane = lane_again()
            seen = self.sight.keys(row_of_score(self.work, lane), tile * self.spec.tile_keys)
            places = Places(lane_index(self.scores.first, lane), self.scores.keys)
            masked = self.keys.masked(scores, places, seen, tile, state.valid)
            row, factor = self.softmax.raise_maximum(before.row, self.softmax.tile_maximum(masked))
            refused = before.refused + self.keys.refused(tile, state.valid)
            return masked, Accumulated(refused, row, scale_accumulators(before.output, factor))

        return branch(lanes.any_lane(exceeds | partial), correct, lambda: (scores, before), cold=True)
