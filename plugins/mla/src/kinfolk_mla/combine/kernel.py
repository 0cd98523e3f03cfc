"""MLA combine: one workgroup weighs the segments of one row against each other and adds them up.

A segment's weights were formed under its own maximum. Under the largest of all maxima it counts exp2(maximum - largest)
times as much, scores in log2 units. No segment without weight is read but for its maximum and sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import attrs

from kinfolk.ir import build_kernel
from kinfolk.ir.builder import constant
from kinfolk.ir.ops import arithmetic, control, lanes, memory, vector
from kinfolk.ir.types import F32, I32, SCALARS
from kinfolk.ir.value import Kernel, Value
from kinfolk.tile.narrow import narrow
from kinfolk.tile.reduction import across_lanes
from kinfolk.tile.softmax import LOWEST, OnlineSoftmax, RowState
from kinfolk_mla.decode.sequence import queries_of, wide

if TYPE_CHECKING:
    from kinfolk.arch import Arch
    from kinfolk_mla.combine.spec import MlaCombineSpec


def emit_combine(spec: MlaCombineSpec, arch: Arch) -> Kernel:
    """Build the kernel of `spec`: a workgroup per row and sequence."""

    def body(*parameters: Value) -> None:
        arguments = Arguments(*parameters)
        sequence = lanes.block_id(axis=1)
        token, queries = queries_of(arguments.cu_seqlens_q, sequence, arguments.total_q, arguments.max_seqlen_q)
        row = lanes.block_id(axis=0, below=spec.most_queries * spec.most_heads)

        def combine() -> tuple[()]:
            Combine.of(spec, arguments, wide(token) * wide(arguments.num_heads) + wide(row), arch.wave_size).run()
            return ()

        control.if_else(row < queries * arguments.num_heads, combine)

    return build_kernel(spec.symbol(), spec.parameters(), arch=arch, block=spec.threads, body=body)


@attrs.frozen(eq=False)
class Arguments:
    """The kernel's parameters as values, in declared order."""

    cu_seqlens_q: Value
    part_out: Value
    part_ml: Value
    out: Value
    lse: Value
    scale: Value
    k_scale: Value
    total_q: Value
    max_seqlen_q: Value
    num_heads: Value
    num_segments: Value


@attrs.frozen(eq=False)
class Combine:
    """One row, number `row` of all (i64), of which this lane has the columns from `column` on.

    A segment has `rows` rows (i64); `part_out` and `part_ml` are where the first segment has this one.
    """

    spec: MlaCombineSpec
    arguments: Arguments
    softmax: OnlineSoftmax
    wave_size: int
    row: Value
    rows: Value
    column: Value
    part_out: Value
    part_ml: Value

    @classmethod
    def of(cls, spec: MlaCombineSpec, arguments: Arguments, row: Value, wave_size: int) -> Combine:
        """Find this lane's columns of a row."""
        return cls(
            spec=spec,
            arguments=arguments,
            softmax=OnlineSoftmax.of(arguments.scale, (), unit=arguments.k_scale),
            wave_size=wave_size,
            row=row,
            rows=wide(arguments.total_q) * wide(arguments.num_heads),
            column=lanes.thread_id() * spec.columns_per_lane,
            part_out=memory.offset(arguments.part_out, row * spec.latent_width),
            part_ml=memory.offset(arguments.part_ml, row * 2),
        )

    def run(self) -> None:
        """Find the largest maximum, add up the segments under it, write the row."""
        largest = self._largest()
        zeros = vector.splat(constant(0.0, F32), count=self.spec.columns_per_lane)
        total, output = control.for_range(
            0,
            self.arguments.num_segments,
            self.spec.segments_ahead,
            [constant(0.0, F32), zeros],
            lambda first, now: self._added(first, largest, now),
        )
        self._store(RowState(largest, total), output)

    def _largest(self) -> Value:
        """Return the largest maximum of all segments with weight, the lowest number where none has any.

        Lanes take turns at the segments.
        """
        lane, count, lowest = lanes.lane_id(), self.arguments.num_segments, constant(LOWEST, F32)

        def step(first: Value, now: Sequence[Value]) -> list[Value]:
            segment = first + lane
            maximum, total = self._pair(arithmetic.smin(segment, count - 1), invariant=False)
            counts = (segment < count) & (total > 0.0)
            return [arithmetic.fmax(now[0], arithmetic.select(counts, maximum, lowest))]

        [found] = control.for_range(0, count, self.wave_size, [lowest], step)
        return across_lanes(found, [1 << bit for bit in range(self.wave_size.bit_length() - 1)], arithmetic.fmax)

    def _added(self, first: Value, largest: Value, now: Sequence[Value]) -> list[Value]:
        """Add the segments from `first` on; all are asked for before one is used."""
        total, output = now
        pairs = [self._segment(first + ahead if ahead else first) for ahead in range(self.spec.segments_ahead)]
        factors: list[Value] = []
        columns: list[Value] = []
        for segment, maximum, weight in pairs:
            factor = self._factor(maximum, largest)
            factors.append(arithmetic.select(weight > 0.0, factor, constant(0.0, F32)))
            columns.append(self._columns(segment, factors[-1]))
        control.schedule_fence()
        for (_, _, weight), factor, found in zip(pairs, factors, columns, strict=True):
            total = arithmetic.fma(weight, factor, total)
            output = arithmetic.fma(found, vector.splat(factor, count=self.spec.columns_per_lane), output)
        return [total, output]

    def _factor(self, maximum: Value, largest: Value) -> Value:
        """Return how much a segment's weights count under the largest maximum."""
        return arithmetic.exp2((maximum - largest) * self.softmax.scale_log2)

    def _segment(self, number: Value) -> tuple[Value, Value, Value]:
        """Return a segment with its maximum and sum; of one past the last, the last one's number and no weight."""
        last = self.arguments.num_segments - 1
        segment = arithmetic.smin(number, last)
        maximum, weight = self._pair(segment, invariant=True)
        return segment, maximum, arithmetic.select(number > last, constant(0.0, F32), weight)

    def _pair(self, segment: Value, *, invariant: bool) -> tuple[Value, Value]:
        """Return a segment's maximum and sum."""
        pointer = memory.offset(self.part_ml, wide(segment) * self.rows * 2)
        pair = memory.load(pointer, count=2, alignment=8, invariant=invariant)
        return vector.extract(pair, index=0), vector.extract(pair, index=1)

    def _columns(self, segment: Value, factor: Value) -> Value:
        """Ask for this lane's columns of a segment's row: 0, with nothing read, where its factor is 0."""
        width = constant(self.spec.latent_width, I32)
        count = lanes.uniform(arithmetic.select(factor > 0.0, width, constant(0, I32)))
        pointer = memory.offset(self.part_out, wide(segment) * self.rows * self.spec.latent_width)
        return memory.view_load(memory.bound(pointer, count), self.column, count=self.spec.columns_per_lane)

    def _store(self, state: RowState, output: Value) -> None:
        """Write the row, divided by its total weight, and the log of that."""
        inverse, lse = self.softmax.finish(state)
        pointer = memory.offset(self.arguments.out, self.row * self.spec.latent_width)
        view = memory.bound(pointer, constant(self.spec.latent_width, I32))
        columns = [vector.extract(output, index=index) * inverse for index in range(self.spec.columns_per_lane)]
        memory.view_store(view, self.column, narrow(columns, SCALARS[self.spec.dtype]))

        def store() -> tuple[()]:
            memory.store(memory.offset(self.arguments.lse, self.row), lse)
            return ()

        control.if_else(lanes.thread_id().eq(0), store)
