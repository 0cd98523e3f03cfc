"""Normalise, round and store the wave's rows, and the log of their weight."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs

from kinfolk.ir.builder import constant
from kinfolk.ir.ops import arithmetic, control, convert, lanes, memory, vector
from kinfolk.ir.types import I32, I64
from kinfolk.ir.value import Value
from kinfolk.tile.lane_index import lane_index
from kinfolk.tile.layout import per_lane
from kinfolk.tile.narrow import narrow
from kinfolk.tile.softmax import OnlineSoftmax, RowState
from kinfolk.tile.transposed import TransposedOperand
from kinfolk_mla.decode.sequence import Work


def store_rows(
    work: Work,
    softmax: OnlineSoftmax,
    state: RowState,
    operand: TransposedOperand,
    accumulators: Sequence[Value],
    head_tile: int = 0,
) -> None:
    """Write the heads of one atom: `out` in vectors of 16 bytes, `lse` by the first lane of each head.

    `accumulators` are ordered by window of `operand`, then by fragment in the window.
    """
    inverse, lse = softmax.finish(state)
    rows = OutputRows.of(work, operand, head_tile)
    for window in range(len(accumulators) // operand.width):
        rows.store(window, accumulators[window * operand.width : (window + 1) * operand.width], inverse)
    rows.store_lse(lse)


@attrs.frozen(eq=False)
class OutputRows:
    """Where this lane writes of the heads of one atom."""

    work: Work
    operand: TransposedOperand
    first_head: Value
    view: Value
    index: Value

    @classmethod
    def of(cls, work: Work, operand: TransposedOperand, head_tile: int = 0) -> OutputRows:
        """Find the lane's rows and columns of `out`."""
        geometry = work.geometry
        width = geometry.spec.latent_width
        first_head = work.first_head + head_tile * geometry.spec.atom_heads if head_tile else work.first_head
        first, _ = operand.columns_of_result()
        heads = per_lane(geometry.value.shape.c.columns, "the head of an output element")
        view = work.rows_of_token(work.arguments.out, width)
        return cls(work, operand, first_head, view, first_head * width + lane_index(heads * width + first))

    def store(self, window: int, accumulators: Sequence[Value], factor: Value | None = None) -> None:
        """Write a window's columns, the accumulators of its fragments multiplied by `factor`."""
        geometry = self.work.geometry
        piece = geometry.spec.vector_bytes // geometry.element.bytes
        _, order = self.operand.columns_of_result()
        elements = (vector.extract(accumulators[fragment], index=slot) for _, fragment, slot in order)
        columns = [element if factor is None else element * factor for element in elements]
        for start, end in _runs([offset for offset, _, _ in order], piece):
            column = window * self.operand.window + order[start][0]
            memory.view_store(self.view, self.index + column, narrow(columns[start:end], geometry.element))

    def store_lse(self, lse: Value) -> None:
        """Write the log of each head's weight."""
        geometry = self.work.geometry
        heads = per_lane(geometry.score.shape.c.columns, "the head of a score")
        row = convert.sext(self.work.token, to=I64) * geometry.spec.num_heads
        pointer = memory.offset(memory.offset(self.work.arguments.lse, row), self.first_head + lane_index(heads))

        def store() -> tuple[()]:
            memory.store(pointer, lse)
            return ()

        first_lanes = geometry.spec.atom_heads
        control.if_else(arithmetic.icmp(lanes.lane_id(), constant(first_lanes, I32), predicate="ult"), store)


def _runs(columns: Sequence[int], longest: int) -> Iterator[tuple[int, int]]:
    """Yield begin and end of each run of neighbouring columns, of at most `longest`."""
    begin = 0
    for end in range(1, len(columns) + 1):
        if end == len(columns) or columns[end] != columns[end - 1] + 1 or end - begin == longest:
            yield begin, end
            begin = end


def count_refused_pages(work: Work, refused: Value) -> None:
    """Add the page ids outside the cache to the status word: once a sequence, by the wave of the first heads."""

    def count() -> tuple[()]:
        memory.atomic_add(work.arguments.status, refused)
        return ()

    control.if_else((refused > 0) & work.first_head.eq(0) & lanes.lane_id().eq(0), count, cold=True)
