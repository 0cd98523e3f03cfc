"""MLA decode in one pass: each workgroup walks a sequence's pages once, for up to 64 heads.

The absorbed form: all heads share one latent row per key, so a page staged once serves both products of four waves. The
loop holds one tile in workgroup memory while the next is on its way in registers; two barriers a tile keep them apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import attrs

from kinfolk.ir import build_kernel
from kinfolk.ir.builder import constant
from kinfolk.ir.ops import arithmetic, control, convert, lanes
from kinfolk.ir.types import I32
from kinfolk.ir.value import Kernel, Value
from kinfolk.tile.reduction import in_lane
from kinfolk.tile.softmax import OnlineSoftmax, RowState, mask_scores, scale_accumulators
from kinfolk.tile.units import UnitSchedule
from kinfolk_mla.decode.epilogue import count_refused_pages, store_rows
from kinfolk_mla.decode.geometry import Geometry
from kinfolk_mla.decode.keys import KeyTile
from kinfolk_mla.decode.query import Query, load_query
from kinfolk_mla.decode.scores import ScoreProduct
from kinfolk_mla.decode.sequence import Arguments, Work
from kinfolk_mla.decode.values import ValueProduct

if TYPE_CHECKING:
    from kinfolk.arch import Arch
    from kinfolk_mla.spec import MlaDecodeSpec


def emit_decode(spec: MlaDecodeSpec, arch: Arch) -> Kernel:
    """Build the kernel of `spec` from what `arch` has."""
    geometry = Geometry.of(spec, arch)

    def body(*parameters: Value) -> None:
        work = Work.of(Arguments(*parameters), geometry)
        loop = DecodeLoop.of(work, spec)

        def attend() -> tuple[()]:
            loop.run()
            return ()

        control.if_else(work.has_query, attend)

    return build_kernel(
        spec.symbol(),
        spec.parameters(),
        arch=arch,
        block=geometry.threads,
        attributes={"workgroups_per_cu": spec.workgroups_per_cu, "accumulators": "vgpr"},
        body=body,
    )


@attrs.frozen(eq=False)
class Accumulated:
    """What the tiles so far come to: softmax state, output accumulators, and how many page ids were refused (i32)."""

    refused: Value
    row: RowState
    output: list[Value]

    def values(self) -> list[Value]:
        """Flatten, in the order `of` reads."""
        return [self.refused, self.row.maximum, self.row.total, *self.output]

    @classmethod
    def of(cls, values: Sequence[Value]) -> Accumulated:
        """Rebuild from flattened values."""
        refused, maximum, total, *output = values
        return cls(refused, RowState(maximum, total), output)


@attrs.frozen(eq=False)
class TileState:
    """What the loop carries: the tile's valid rows, the next tile's page id, and what the tiles so far come to."""

    valid: Value
    following: Value
    accumulated: Accumulated

    def values(self) -> list[Value]:
        """Flatten, in the order `of` reads."""
        return [self.valid, self.following, *self.accumulated.values()]

    @classmethod
    def of(cls, values: Sequence[Value]) -> TileState:
        """Rebuild from flattened values."""
        valid, following, *accumulated = values
        return cls(valid, following, Accumulated.of(accumulated))


@attrs.frozen(eq=False)
class DecodeLoop:
    """The stages of the kernel and the values they share."""

    work: Work
    spec: MlaDecodeSpec
    keys: KeyTile
    scores: ScoreProduct
    values: ValueProduct
    softmax: OnlineSoftmax
    parked: Value | None

    @classmethod
    def of(cls, work: Work, spec: MlaDecodeSpec) -> DecodeLoop:
        """Reserve workgroup memory and set the stages up."""
        geometry = work.geometry
        keys = KeyTile.of(work)
        return cls(
            work,
            spec,
            keys,
            ScoreProduct.of(geometry, keys.tile),
            ValueProduct.of(geometry, keys.tile),
            OnlineSoftmax.of(work.arguments.scale, geometry.head_masks),
            Query.reserve(geometry, spec.parked_query_reads),
        )

    def run(self) -> None:
        """Stage the first tile, walk the tiles, store the rows."""
        query = load_query(self.work, self.parked, self.spec.parked_query_reads)
        zero = constant(0, I32)
        first = self.keys.pages.resolve(self.keys.pages.lookup(zero), zero)
        self.keys.store(self.keys.load(first))
        control.barrier()
        nothing = Accumulated(zero, RowState.start(), self.values.start())
        start = TileState(first.rows, self.keys.pages.lookup(zero + 1), nothing)
        carried = control.for_range(
            0,
            self.keys.pages.tiles,
            1,
            start.values(),
            lambda tile, values: self._step(query, tile, TileState.of(values)).values(),
        )
        self._finish(TileState.of(carried).accumulated)

    def _finish(self, accumulated: Accumulated) -> None:
        def store() -> tuple[()]:
            store_rows(self.work, self.softmax, accumulated.row, self.values.operand, accumulated.output)
            return ()

        count_refused_pages(self.work, accumulated.refused)
        if self.work.geometry.idle_waves:
            control.if_else(self.work.wave_has_heads, store)
        else:
            store()

    def _step(self, query: Query, tile: Value, state: TileState) -> TileState:
        """Attend over the staged tile while the next one loads; then put that in its place."""
        page = self.keys.pages.resolve(state.following, tile + 1)
        following = self.keys.pages.lookup(tile + 2)
        loaded = self.keys.load(page)
        accumulated = self._attend_if_any_head(query, state)
        control.barrier()
        self.keys.store(loaded)
        control.barrier()
        return TileState(page.rows, following, accumulated)

    def _attend_if_any_head(self, query: Query, state: TileState) -> Accumulated:
        if not self.work.geometry.idle_waves:
            return self._attend(query, state)
        return Accumulated.of(
            control.if_else(
                self.work.wave_has_heads, lambda: self._attend(query, state).values(), state.accumulated.values
            )
        )

    def _attend(self, query: Query, state: TileState) -> Accumulated:
        spec = self.spec
        ahead = (spec.key_read_ahead, spec.query_read_ahead)
        raw = self.scores.scores(query, UnitSchedule(ahead=ahead, fence_every=spec.fence_every))
        scores, corrected = self._correct(state, raw)
        row, weights = self.softmax.weights(corrected.row, scores)
        schedule = UnitSchedule(ahead=(spec.value_read_ahead,), fence_every=1)
        return Accumulated(corrected.refused, row, self.values.accumulate(weights, corrected.output, schedule))

    def _correct(self, state: TileState, scores: list[Value]) -> tuple[list[Value], Accumulated]:
        """In the rare case, mask the scores past the sequence and raise the maximum.

        Whether it is the rare case needs no other lane's scores: some lane holds the one that exceeds.
        """
        before = state.accumulated
        partial = state.valid < self.spec.page_size
        exceeds = self.softmax.exceeds(before.row, in_lane(scores, arithmetic.fmax))

        def correct() -> list[Value]:
            masked = mask_scores(scores, self.scores.keys, state.valid)
            row, factor = self.softmax.raise_maximum(before.row, self.softmax.tile_maximum(masked))
            refused = before.refused + convert.zext(state.valid.eq(0), to=I32)
            return [*masked, *Accumulated(refused, row, scale_accumulators(before.output, factor)).values()]

        def keep() -> list[Value]:
            return [*scores, *before.values()]

        result = control.if_else(lanes.any_lane(exceeds | partial), correct, keep, cold=True)
        return list(result[: len(scores)]), Accumulated.of(result[len(scores) :])
