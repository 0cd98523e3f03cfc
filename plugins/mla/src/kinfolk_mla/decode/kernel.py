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
from kinfolk.ir.ops import arithmetic, control, lanes, memory
from kinfolk.ir.types import I32
from kinfolk.ir.value import Kernel, Value
from kinfolk.tile.reduction import in_lane
from kinfolk.tile.softmax import OnlineSoftmax, RowState, mask_scores, scale_accumulators
from kinfolk.tile.units import UnitSchedule
from kinfolk_mla.decode.epilogue import store_rows
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
        loop = DecodeLoop.of(work)

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
class TileState:
    """What the loop carries: softmax state, accumulators, the tile's valid rows and the next tile's page id."""

    row: RowState
    accumulators: list[Value]
    valid: Value
    following: Value

    def values(self) -> list[Value]:
        """Flatten, in the order `of` reads."""
        return [self.valid, self.following, self.row.maximum, self.row.total, *self.accumulators]

    @classmethod
    def of(cls, values: Sequence[Value]) -> TileState:
        """Rebuild from flattened values."""
        valid, following, maximum, total, *accumulators = values
        return cls(RowState(maximum, total), accumulators, valid, following)


@attrs.frozen(eq=False)
class DecodeLoop:
    """The stages of the kernel and the values they share."""

    work: Work
    keys: KeyTile
    scores: ScoreProduct
    values: ValueProduct
    softmax: OnlineSoftmax
    parked: Value | None

    @classmethod
    def of(cls, work: Work) -> DecodeLoop:
        """Reserve workgroup memory and set the stages up."""
        geometry = work.geometry
        keys = KeyTile.of(work)
        return cls(
            work,
            keys,
            ScoreProduct.of(geometry, keys.tile),
            ValueProduct.of(geometry, keys.tile),
            OnlineSoftmax.of(work.arguments.scale, geometry.head_masks),
            Query.reserve(geometry),
        )

    def run(self) -> None:
        """Stage the first tile, walk the tiles, store the rows."""
        query = load_query(self.work, self.parked)
        zero = constant(0, I32)
        first = self.keys.pages.resolve(self.keys.pages.lookup(zero), zero)
        self.keys.store(self.keys.load(first))
        control.barrier()
        start = TileState(RowState.start(), self.values.start(), first.rows, self.keys.pages.lookup(zero + 1))
        end = TileState.of(
            control.for_range(
                0,
                self.work.tiles,
                1,
                start.values(),
                lambda tile, carried: self._step(query, tile, TileState.of(carried)).values(),
            )
        )

        def store() -> tuple[()]:
            store_rows(self.work, self.softmax, end.row, self.values, end.accumulators)
            return ()

        control.if_else(self.work.wave_has_heads, store) if self.work.geometry.idle_waves else store()

    def _step(self, query: Query, tile: Value, state: TileState) -> TileState:
        """Attend over the staged tile while the next one loads; then put that in its place."""
        page = self.keys.pages.resolve(state.following, tile + 1)
        following = self.keys.pages.lookup(tile + 2)
        loaded = self.keys.load(page)
        row, accumulators = self._attend_if_any_head(query, state)
        control.barrier()
        self.keys.store(loaded)
        control.barrier()
        return TileState(row, accumulators, page.rows, following)

    def _attend_if_any_head(self, query: Query, state: TileState) -> tuple[RowState, list[Value]]:
        if not self.work.geometry.idle_waves:
            return self._attend(query, state)

        def attend() -> list[Value]:
            row, accumulators = self._attend(query, state)
            return [row.maximum, row.total, *accumulators]

        def keep() -> list[Value]:
            return [state.row.maximum, state.row.total, *state.accumulators]

        maximum, total, *accumulators = control.if_else(self.work.wave_has_heads, attend, keep)
        return RowState(maximum, total), accumulators

    def _attend(self, query: Query, state: TileState) -> tuple[RowState, list[Value]]:
        spec = self.work.geometry.spec
        scores = self.scores.scores(query, UnitSchedule(ahead=spec.key_read_ahead, fence_every=spec.fence_every))
        row, accumulators, scores = self._correct(state, scores)
        row, weights = self.softmax.weights(row, scores)
        schedule = UnitSchedule(ahead=spec.value_read_ahead, fence_every=1)
        return row, self.values.accumulate(weights, accumulators, schedule)

    def _correct(self, state: TileState, scores: list[Value]) -> tuple[RowState, list[Value], list[Value]]:
        """In the rare case, mask the scores past the sequence and raise the maximum; the decision needs no other lane's
        scores.
        """
        partial = state.valid < self.work.geometry.spec.page_size
        exceeds = self.softmax.exceeds(state.row, in_lane(scores, arithmetic.fmax))
        count = len(scores)

        def correct() -> list[Value]:
            masked = mask_scores(scores, self.scores.keys, state.valid)
            row, factor = self.softmax.raise_maximum(state.row, self.softmax.tile_maximum(masked))
            self._count_refused_page(state.valid)
            return [*masked, row.maximum, row.total, *scale_accumulators(state.accumulators, factor)]

        def keep() -> list[Value]:
            return [*scores, state.row.maximum, state.row.total, *state.accumulators]

        result = control.if_else(lanes.any_lane(exceeds | partial), correct, keep, cold=True)
        return RowState(result[count], result[count + 1]), list(result[count + 2 :]), list(result[:count])

    def _count_refused_page(self, valid: Value) -> None:
        """A tile without a valid row is a page id outside the cache: the first wave of the first head group counts it,
        once.
        """
        counts = valid.eq(0) & self.work.first_head.eq(0) & lanes.lane_id().eq(0)

        def count() -> tuple[()]:
            memory.atomic_add(self.work.arguments.status, constant(1, I32))
            return ()

        control.if_else(counts, count, cold=True)
