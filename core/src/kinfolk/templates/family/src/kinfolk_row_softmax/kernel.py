"""Row softmax in two walks over a row: one for its maximum and sum of weights, one for the weights themselves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import attrs

from kinfolk.ir import build_kernel
from kinfolk.ir.builder import constant
from kinfolk.ir.ops import arithmetic, control, convert, lanes, memory
from kinfolk.ir.types import F32, I32, I64
from kinfolk.ir.value import Kernel, Value
from kinfolk.tile.reduction import across_lanes, in_lane
from kinfolk.tile.softmax import OnlineSoftmax, RowState, mask_scores
from kinfolk.tile.workgroup_tile import WorkgroupTile
from kinfolk_row_softmax.row import Row

if TYPE_CHECKING:
    from kinfolk.arch import Arch
    from kinfolk_row_softmax.spec import RowSoftmaxSpec


Step = Callable[[Value, tuple[Value, ...]], Sequence[Value]]


def emit_row_softmax(spec: RowSoftmaxSpec, arch: Arch) -> Kernel:
    """Build the kernel of `spec` for waves as wide as the arch's."""

    def body(x: Value, y: Value, lse: Value, scale: Value, columns: Value, row_stride: Value) -> None:
        row = lanes.block_id(axis=0)
        wide = convert.sext(row, to=I64)
        walk = RowWalk(
            Row.of(x, wide * row_stride, columns),
            spec.waves * arch.wave_size,
            spec.columns_per_lane,
            OnlineSoftmax.of(scale, wave_masks(arch.wave_size)),
        )
        partials = WorkgroupTile.allocate(F32, spec.waves, 2, padding=0)
        state = exchanged(partials, walk.softmax, walk.state())
        whole = OnlineSoftmax.of(scale, ())  # the exchanged state is the whole row's on every lane
        inverse, log_sum = whole.finish(state)
        walk.store(state, inverse, Row.of(y, wide * convert.sext(columns, to=I64), columns))
        store_once(memory.offset(lse, row), log_sum)

    return build_kernel(
        spec.symbol(), spec.parameters(), arch=arch, block=spec.waves * arch.wave_size, attributes={}, body=body
    )


def wave_masks(wave_size: int) -> tuple[int, ...]:
    """Return the masks by which values of all lanes of a wave are combined."""
    return tuple(1 << bit for bit in range(wave_size.bit_length() - 1))


@attrs.frozen(eq=False)
class RowWalk:
    """A row in steps of `columns_per_lane` columns for each of `threads` lanes; neighbouring lanes read neighbours."""

    row: Row
    threads: int
    columns_per_lane: int
    softmax: OnlineSoftmax

    def columns(self, start: Value) -> list[Value]:
        """Return this lane's columns of the step at `start`; the last step's may lie past the row."""
        first = start + lanes.thread_id()
        return [first + piece * self.threads if piece else first for piece in range(self.columns_per_lane)]

    def scores(self, columns: list[Value]) -> list[Value]:
        """Return the raw scores of columns, -inf for those past the row."""
        return mask_scores([self.row.load(column) for column in columns], columns, self.row.columns)

    def state(self) -> RowState:
        """Walk the row once: the wave's maximum, and this lane's share of the total weight under it."""
        begin = RowState.start()

        def step(start: Value, carried: tuple[Value, ...]) -> tuple[Value, Value]:
            state, scores = RowState(*carried), self.scores(self.columns(start))
            state, _ = self.softmax.weights(self._raised(state, scores), scores)
            return state.maximum, state.total

        return RowState(*self._each(step, (begin.maximum, begin.total)))

    def store(self, state: RowState, inverse: Value, target: Row) -> None:
        """Walk the row again and store its weights, normalised; those of columns past the row go nowhere."""

        def step(start: Value, carried: tuple[Value, ...]) -> tuple[()]:
            columns = self.columns(start)
            _, weights = self.softmax.weights(state, [self.row.load(column) for column in columns])
            for column, weight in zip(columns, weights, strict=True):
                target.store(column, weight * inverse)
            return ()

        self._each(step, ())

    def _each(self, step: Step, carried: tuple[Value, ...]) -> tuple[Value, ...]:
        return control.for_range(0, self.row.columns, self.threads * self.columns_per_lane, carried, step)

    def _raised(self, state: RowState, scores: list[Value]) -> RowState:
        """In the rare case that a lane's scores call for it, raise the wave's maximum."""
        exceeds = self.softmax.exceeds(state, in_lane(scores, arithmetic.fmax))

        def raised() -> tuple[Value, Value]:
            higher, _ = self.softmax.raise_maximum(state, self.softmax.tile_maximum(scores))
            return higher.maximum, higher.total

        return RowState(
            *control.if_else(lanes.any_lane(exceeds), raised, lambda: (state.maximum, state.total), cold=True)
        )


def exchanged(partials: WorkgroupTile, softmax: OnlineSoftmax, state: RowState) -> RowState:
    """Return the state of all waves together: each leaves its own in workgroup memory, and reads everyone's."""
    total = across_lanes(state.total, softmax.masks, arithmetic.fadd)
    place = lanes.wave_id() * partials.columns

    def leave() -> tuple[()]:
        partials.store(place, state.maximum, 1, column=0)
        partials.store(place, total, 1, column=1)
        return ()

    control.if_else(lanes.lane_id() < 1, leave)
    control.barrier()
    start = constant(0, I32)
    waves = [RowState(*(partials.load(start, 1, row=wave, column=c) for c in (0, 1))) for wave in range(partials.rows)]
    maximum = in_lane([wave.maximum for wave in waves], arithmetic.fmax)
    scaled = [softmax.under(wave, maximum)[0] for wave in waves]
    return RowState(maximum, in_lane([wave.total for wave in scaled], arithmetic.fadd))


def store_once(pointer: Value, value: Value) -> None:
    """Write a value that all lanes have, by the first."""

    def store() -> tuple[()]:
        memory.store(pointer, value)
        return ()

    control.if_else(lanes.thread_id() < 1, store)
