"""A row's segments weighed against each other and added up, by a workgroup whose waves take turns at them.

Which segments have keys follows from the sequence's length, as in the kernel that wrote them: so all that is to be
read is asked for at once, weights and sums of segments alike.
"""

from __future__ import annotations

from collections.abc import Sequence as Many
from typing import TYPE_CHECKING

import attrs

from kinfolk.ir import build_kernel
from kinfolk.ir.builder import constant
from kinfolk.ir.ops import arithmetic, control, lanes, memory, vector
from kinfolk.ir.types import F32, I32, SCALARS, VectorType
from kinfolk.ir.value import Kernel, Value
from kinfolk.tile.fused_softmax import FusedRow, FusedSoftmax
from kinfolk.tile.narrow import narrow
from kinfolk.tile.paging import bounded
from kinfolk.tile.reduction import across_lanes
from kinfolk.tile.softmax import LOWEST
from kinfolk.tile.state import flattened, rebuilt
from kinfolk_attention_fwd.bending import unit_scale
from kinfolk_attention_fwd.segmented.division import Division, Sequence, wide
from kinfolk_attention_fwd.segmented.frame import NOWHERE
from kinfolk_attention_fwd.segmented.spec import AttentionSegmentSpec
from kinfolk_attention_fwd.sinks import with_sink

if TYPE_CHECKING:
    from kinfolk.arch import Arch
    from kinfolk_attention_fwd.segmented.reduce.spec import AttentionReduceSpec


def emit_reduce(spec: AttentionReduceSpec, arch: Arch) -> Kernel:
    """Build the kernel of `spec`: a workgroup per row and sequence."""

    def body(*parameters: Value) -> None:
        arguments = Arguments(*parameters)
        row = lanes.block_id(axis=0, below=spec.most_rows)
        sequence = Sequence.of(
            lanes.block_id(axis=1),
            arguments.cu_seqlens_q,
            arguments.seqused_k,
            arguments.total_q,
            arguments.max_seqlen_q,
            arguments.max_seqlen_k,
        )
        reduce = Reduce.of(spec, arguments, sequence, row)
        control.if_else(row < sequence.queries * arguments.num_heads, reduce.run)

    return build_kernel(spec.symbol(), spec.parameters(), arch=arch, block=spec.waves * spec.lanes, body=body)


@attrs.frozen(eq=False)
class Arguments:
    """The kernel's parameters as values, in declared order."""

    cu_seqlens_q: Value
    seqused_k: Value
    part_out: Value
    part_ml: Value
    out: Value
    lse: Value
    sink: Value
    v_scale: Value
    total_q: Value
    max_seqlen_q: Value
    max_seqlen_k: Value
    num_heads: Value
    window_left: Value
    num_segments: Value
    sinks: Value


@attrs.frozen(eq=False)
class Sum:
    """Of the segments so far: the row, of whose total a lane has its segments' share, and this wave's part of the
    lane's columns.
    """

    row: FusedRow
    columns: Value


@attrs.frozen(eq=False)
class Reduce:
    """One row, number `row` of its sequence's and `place` (i64) of all, and how many segments have keys."""

    spec: AttentionReduceSpec
    arguments: Arguments
    softmax: FusedSoftmax
    sequence: Sequence
    row: Value
    place: Value
    used: Value
    column: Value
    factors: Value
    parts: Value

    @classmethod
    def of(cls, spec: AttentionReduceSpec, arguments: Arguments, sequence: Sequence, row: Value) -> Reduce:
        """Reserve workgroup memory and find this lane's columns."""
        division = Division.of(
            sequence,
            arguments.num_segments,
            arguments.window_left,
            tile_keys=AttentionSegmentSpec.tile_keys,
            waves=AttentionSegmentSpec.waves,
        )
        column = lanes.lane_id() * spec.columns_per_lane
        return cls(
            spec=spec,
            arguments=arguments,
            softmax=FusedSoftmax.of(unit_scale(), tuple(1 << bit for bit in range(6))),
            sequence=sequence,
            row=row,
            place=wide(sequence.token) * wide(arguments.num_heads) + wide(row),
            used=division.used(),
            column=arithmetic.select(column < spec.head_size, column, constant(NOWHERE, I32)),
            factors=memory.allocate(F32, spec.waves * spec.together),
            parts=memory.allocate(F32, spec.waves * spec.lanes * spec.columns_per_lane),
        )

    def run(self) -> tuple[()]:
        """Add up the segments, write the row."""
        spec = self.spec
        start = Sum(self.softmax.start(), constant(0.0, VectorType(F32, spec.columns_per_lane)))
        end = control.for_range(
            0,
            self.used,
            spec.together,
            flattened(start),
            lambda first, now: flattened(self._added(first, rebuilt(start, now))),
        )
        self._store(rebuilt(start, end))
        return ()

    def _added(self, first: Value, now: Sum) -> Sum:
        """Add as many segments as are asked for together, from `first` on: a lane knows the weight of one of them."""
        spec, width, lane = self.spec, self.spec.columns_per_lane, lanes.lane_id()
        left = bounded(self.used - first, spec.together)
        begin = self.place * wide(self.arguments.num_segments) + wide(first)
        pairs = memory.bound(memory.offset(self.arguments.part_ml, begin * 2), left * 2)
        rows = memory.bound(memory.offset(self.arguments.part_out, begin * spec.head_size), left * spec.head_size)
        pair = memory.view_load(pairs, lane * 2, count=2)
        own = self.column + lanes.wave_id() * spec.head_size
        found = [
            memory.view_load(rows, own + turn * (spec.waves * spec.head_size), count=width)
            for turn in range(spec.together // spec.waves)
        ]
        control.schedule_fence()
        maximum = arithmetic.select(lane < left, vector.extract(pair, index=0), constant(LOWEST, F32))
        row, shrunk = self.softmax.raise_maximum(now.row, across_lanes(maximum, self.softmax.masks, arithmetic.fmax))
        assert isinstance(row, FusedRow)
        factor = self.softmax.weight(row, maximum)
        row = attrs.evolve(row, total=arithmetic.fma(vector.extract(pair, index=1), factor, row.total))
        columns = now.columns * vector.splat(shrunk, count=width)
        for each, weight in zip(found, self._handed(factor), strict=True):
            columns = arithmetic.fma(each, vector.splat(weight, count=width), columns)
        return Sum(row, columns)

    def _handed(self, factor: Value) -> list[Value]:
        """Return the factors of this wave's segments, which its lanes know: turn t is segment t * waves + wave."""
        spec, lane, piece = self.spec, lanes.lane_id(), 4
        turns, own = spec.together // spec.waves, lanes.wave_id() * spec.together
        place = lane % spec.waves * turns + lane // spec.waves
        memory.workgroup_store(self.factors, own + place, factor)
        read = [
            memory.workgroup_load(
                self.factors, own + lanes.wave_id() * turns, count=piece, offset=turn, alignment=piece * F32.bytes
            )
            for turn in range(0, turns, piece)
        ]
        return [vector.extract(each, index=index) for each in read for index in range(piece)]

    def _store(self, last: Sum) -> None:
        """Add up what the waves have, in one of them, and write the row."""
        spec, width = self.spec, self.spec.columns_per_lane
        size, index = spec.lanes * width, lanes.lane_id() * width
        bytes_ = width * F32.bytes
        memory.workgroup_store(self.parts, lanes.wave_id() * size + index, last.columns, alignment=bytes_)
        head = self.row % self.arguments.num_heads
        inverse, lse = with_sink(self.arguments, head, *self.softmax.finish(last.row))
        unit = arithmetic.fmin(inverse * self.arguments.v_scale, constant(-LOWEST, F32))
        control.barrier()

        def write() -> tuple[()]:
            parts = [
                memory.workgroup_load(self.parts, index, count=width, offset=wave * size, alignment=bytes_)
                for wave in range(spec.waves)
            ]
            self._write(_sum(parts), unit, lse)
            return ()

        control.if_else(lanes.thread_id() < spec.lanes, write)

    def _write(self, columns: Value, unit: Value, lse: Value) -> None:
        pointer = memory.offset(self.arguments.out, self.place * self.spec.head_size)
        view = memory.bound(pointer, constant(self.spec.head_size, I32))
        elements = [vector.extract(columns, index=index) * unit for index in range(self.spec.columns_per_lane)]
        memory.view_store(view, self.column, narrow(elements, SCALARS[self.spec.dtype]))

        def store() -> tuple[()]:
            token = self.row // self.arguments.num_heads
            head = self.row % self.arguments.num_heads
            place = wide(head) * wide(self.arguments.total_q) + wide(self.sequence.token) + wide(token)
            memory.store(memory.offset(self.arguments.lse, place), lse)
            return ()

        control.if_else(lanes.thread_id().eq(0), store)


def _sum(values: Many[Value]) -> Value:
    total = values[0]
    for each in values[1:]:
        total = total + each
    return total
