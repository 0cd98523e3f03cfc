"""Store the wave's rows: normalised and rounded, with the log of their weight; as they are where keys are split."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import attrs

from kinfolk.ir.builder import constant
from kinfolk.ir.ops import arithmetic, control, lanes, memory, vector
from kinfolk.ir.types import F32, I32, ScalarType
from kinfolk.ir.value import Value
from kinfolk.tile.lane_index import lane_again, lane_index
from kinfolk.tile.layout import per_lane
from kinfolk.tile.narrow import narrow
from kinfolk.tile.softmax import LOWEST, OnlineSoftmax, RowState
from kinfolk.tile.transposed import TransposedOperand
from kinfolk_mla.decode.sequence import Work


def store_rows(
    work: Work,
    softmax: OnlineSoftmax,
    states: Sequence[RowState],
    operand: TransposedOperand,
    accumulators: Sequence[Value],
) -> None:
    """Write the wave's rows, of which each atom has a state.

    `accumulators` are ordered by atom, then by window of `operand`, then by fragment in the window.
    """
    tiles = list(enumerate(states))
    count = len(accumulators) // len(tiles)

    def store(rows: Rows, tile: int, factor: Value | None = None) -> None:
        for window in range(count // operand.width):
            begin = tile * count + window * operand.width
            rows.store(window, accumulators[begin : begin + operand.width], factor)

    def store_part() -> tuple[()]:
        for tile, state in tiles:
            store(Rows.of_segment(work, operand, tile), tile)
            store_pair(work, state.maximum, softmax.total(state), tile)
        return ()

    def store_whole() -> tuple[()]:
        for tile, state in tiles:
            inverse, lse = softmax.finish(state)
            store(Rows.of_output(work, operand, tile), tile, inverse)
            store_lse(work, lse, tile)
        return ()

    control.if_else(work.is_split, store_part, store_whole)


@attrs.frozen(eq=False)
class Rows:
    """Where this lane writes of the rows of one atom, elements of a type in vectors of 16 bytes."""

    work: Work
    operand: TransposedOperand
    element: ScalarType
    view: Value
    index: Value

    @classmethod
    def of_output(cls, work: Work, operand: TransposedOperand, head_tile: int = 0) -> Rows:
        """Find the lane's rows and columns of `out`."""
        view = work.rows_of(work.arguments.out, work.geometry.spec.latent_width)
        return cls(work, operand, work.geometry.element, view, cls._index(work, operand, head_tile))

    @classmethod
    def of_segment(cls, work: Work, operand: TransposedOperand, head_tile: int = 0) -> Rows:
        """Find the lane's rows and columns of `part_out`."""
        view = work.rows_of_segment(work.arguments.part_out, work.geometry.spec.latent_width)
        return cls(work, operand, F32, view, cls._index(work, operand, head_tile))

    @classmethod
    def _index(cls, work: Work, operand: TransposedOperand, head_tile: int) -> Value:
        width = work.geometry.spec.latent_width
        first, _ = operand.columns_of_result()
        rows = per_lane(work.geometry.value.shape.c.columns, "the row of an output element")
        return _first_row(work, head_tile) * width + lane_index(rows * width + first)

    def store(self, window: int, accumulators: Sequence[Value], factor: Value | None = None) -> None:
        """Write a window's columns, the accumulators of its fragments multiplied by `factor`."""
        piece = self.work.geometry.spec.vector_bytes // self.element.bytes
        _, order = self.operand.columns_of_result()
        elements = (vector.extract(accumulators[fragment], index=slot) for _, fragment, slot in order)
        columns = [element if factor is None else element * factor for element in elements]
        for start, end in _runs([offset for offset, _, _ in order], piece):
            column = window * self.operand.window + order[start][0]
            memory.view_store(self.view, self.index + column, self._vector(columns[start:end]))

    def _vector(self, columns: Sequence[Value]) -> Value:
        return vector.pack(*columns) if self.element == F32 else narrow(columns, self.element)


def store_lse(work: Work, lse: Value, head_tile: int = 0) -> None:
    """Write the log of the weight of each row of an atom."""
    lane = lanes.lane_id()
    view, index = work.rows_of(work.arguments.lse, 1), row_of_score(work, lane, head_tile)
    _in_first_lanes(work, lane, lambda: memory.view_store(view, index, lse))


def store_pair(work: Work, maximum: Value, total: Value, head_tile: int = 0) -> None:
    """Write the maximum and the weight of each row of an atom, as the segment has them."""
    lane = lane_again()
    view = work.rows_of_segment(work.arguments.part_ml, 2)
    index = row_of_score(work, lane, head_tile) * 2
    _in_first_lanes(work, lane, lambda: memory.view_store(view, index, vector.pack(maximum, total)))


def or_nothing(work: Work, attend: Callable[[], None]) -> None:
    """Attend over the segment's keys. Where a sequence is split and the segment has none, write that and nothing else.

    Nothing of the query, of the page table or of the cache is read for it.
    """

    def empty() -> tuple[()]:
        for tile in range(work.geometry.head_tiles):
            store_pair(work, constant(LOWEST, F32), constant(0.0, F32), tile)
        return ()

    def attended() -> tuple[()]:
        attend()
        return ()

    def nothing() -> tuple[()]:
        control.if_else(work.stores_rows, empty)
        return ()

    control.if_else(work.is_split & work.length.eq(0), nothing, attended)


def _first_row(work: Work, head_tile: int) -> Value:
    return work.wave_row + head_tile * work.geometry.spec.atom_heads if head_tile else work.wave_row


def row_of_score(work: Work, lane: Value, head_tile: int = 0) -> Value:
    """Return the row, among those of the workgroup, of which a lane has scores."""
    rows = per_lane(work.geometry.score.shape.c.columns, "the row of a score")
    return _first_row(work, head_tile) + lane_index(rows, lane)


def _in_first_lanes(work: Work, lane: Value, store: Callable[[], None]) -> None:
    """Store in one of the lanes that share a head."""

    def stored() -> tuple[()]:
        store()
        return ()

    first_lanes = constant(work.geometry.spec.atom_heads, I32)
    control.if_else(arithmetic.icmp(lane, first_lanes, predicate="ult"), stored)


def _runs(columns: Sequence[int], longest: int) -> Iterator[tuple[int, int]]:
    """Yield begin and end of each run of neighbouring columns, of at most `longest`."""
    begin = 0
    for end in range(1, len(columns) + 1):
        if end == len(columns) or columns[end] != columns[end - 1] + 1 or end - begin == longest:
            yield begin, end
            begin = end


def count_refused_pages(work: Work, refused: Value, counting_lanes: int = 1) -> None:
    """Add the page ids outside the cache to the status word: once a segment, by a wave of the last row, each of its
    first lanes what it has found.
    """

    def count() -> tuple[()]:
        memory.atomic_add(work.arguments.status, refused)
        return ()

    lane = lanes.lane_id()
    counts = lane.eq(0) if counting_lanes == 1 else lane < counting_lanes
    control.if_else((refused > 0) & work.counts_pages & counts, count, cold=True)
