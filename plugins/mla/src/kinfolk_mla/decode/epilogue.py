"""Normalise, round and store the wave's rows, and the log of their weight."""

from __future__ import annotations

from collections.abc import Sequence

from kinfolk.ir.builder import constant
from kinfolk.ir.ops import arithmetic, control, convert, lanes, memory, vector
from kinfolk.ir.types import I32, I64
from kinfolk.ir.value import Value
from kinfolk.tile.lane_index import lane_index
from kinfolk.tile.layout import per_lane
from kinfolk.tile.narrow import narrow
from kinfolk.tile.softmax import OnlineSoftmax, RowState
from kinfolk_mla.decode.sequence import Work
from kinfolk_mla.decode.values import ValueProduct


def store_rows(
    work: Work, softmax: OnlineSoftmax, state: RowState, values: ValueProduct, accumulators: Sequence[Value]
) -> None:
    """Write the wave's heads: `out` in vectors of 16 bytes, `lse` by the first lane of each head."""
    inverse, lse = softmax.finish(state)
    _store_out(work, values, accumulators, inverse)
    _store_lse(work, lse)


def _store_out(work: Work, values: ValueProduct, accumulators: Sequence[Value], inverse: Value) -> None:
    geometry = work.geometry
    width = geometry.spec.latent_width
    first, order = values.operand.columns_of_result()
    heads = per_lane(geometry.value.shape.c.columns, "the head of an output element")
    view = work.rows_of_token(work.arguments.out, width)
    index = work.first_head * width + lane_index(heads * width + first)
    piece = geometry.spec.vector_bytes // geometry.element.bytes
    for window in range(values.windows):
        tiles = accumulators[window * values.operand.width : (window + 1) * values.operand.width]
        columns = [vector.extract(tiles[fragment], index=slot) * inverse for fragment, slot in order]
        for start in range(0, len(columns), piece):
            column = window * values.operand.window + start
            memory.view_store(view, index + column, narrow(columns[start : start + piece], geometry.element))


def _store_lse(work: Work, lse: Value) -> None:
    geometry = work.geometry
    heads = per_lane(geometry.score.shape.c.columns, "the head of a score")
    row = convert.sext(work.token, to=I64) * geometry.spec.num_heads
    pointer = memory.offset(memory.offset(work.arguments.lse, row), work.first_head + lane_index(heads))

    def store() -> tuple[()]:
        memory.store(pointer, lse)
        return ()

    first_lanes = geometry.spec.heads_per_wave
    control.if_else(arithmetic.icmp(lanes.lane_id(), constant(first_lanes, I32), predicate="ult"), store)


def count_refused_pages(work: Work, refused: Value) -> None:
    """Add the page ids outside the cache to the status word: once a sequence, by the wave of the first heads."""

    def count() -> tuple[()]:
        memory.atomic_add(work.arguments.status, refused)
        return ()

    control.if_else((refused > 0) & work.first_head.eq(0) & lanes.lane_id().eq(0), count, cold=True)
