"""What the waves of a workgroup have of the same rows, put together through workgroup memory and stored."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Many

import attrs

from kinfolk.ir.builder import constant
from kinfolk.ir.ops import arithmetic, control, convert, lanes, memory, vector
from kinfolk.ir.types import F32, VectorType
from kinfolk.ir.value import Value
from kinfolk.tile.fused_softmax import FusedRow, FusedSoftmax
from kinfolk.tile.lane_index import lane_again, lane_index
from kinfolk.tile.narrow import narrow
from kinfolk.tile.softmax import LOWEST
from kinfolk_attention_fwd.segmented.arguments import Arguments
from kinfolk_attention_fwd.segmented.frame import Frame
from kinfolk_attention_fwd.segmented.rows import Row
from kinfolk_attention_fwd.segmented.work import Work
from kinfolk_attention_fwd.sinks import with_sink

PAIR = 2
PIECE = VectorType(F32, 4)
PIECE_BYTES = 16


@attrs.frozen(eq=False)
class Merge:
    """Of a row's columns, a lane has those of slot s of each of its products in wave s behind the merge: neighbours, as
    many as a stretch is wide.

    `pairs` has PAIR numbers a wave and row, `pieces` 16 bytes a thread and slot.
    """

    work: Work
    frame: Frame
    softmax: FusedSoftmax
    pairs: Value
    pieces: Value

    @staticmethod
    def piece_bytes(frame: Frame, waves: int) -> int:
        """Return the workgroup memory that `pieces` take."""
        return waves * frame.value.shape.c.slots * frame.spec.lanes * PIECE_BYTES

    def store(self, row: FusedRow, output: Many[Value]) -> None:
        """Write the workgroup's rows; `output` has the products of a stretch's columns, in order of the stretches."""
        merged, factor = self._weighed(row)
        parts = self._exchanged(output, factor)
        place = Row.of(self.work, lane_index(self.frame.column, lane_again()))

        def whole() -> tuple[()]:
            inverse, lse = with_sink(self._arguments, place.head, *attrs.evolve(self.softmax, masks=()).finish(merged))
            unit = arithmetic.fmin(inverse * self.work.arguments.v_scale, constant(-LOWEST, F32))
            self._store_out(place, [part * _splat(unit) for part in parts])
            self._of_first_lanes(lambda: memory.store(memory.offset(self._arguments.lse, place.place_in_lse()), lse))
            return ()

        def part() -> tuple[()]:
            self._store_part(place, parts)
            store_pair(self.work, place, merged.maximum, merged.total)
            return ()

        def both() -> tuple[()]:
            control.if_else(self.work.is_split, part, whole)
            return ()

        control.if_else(place.exists, both)

    @property
    def _arguments(self) -> Arguments:
        return self.work.arguments

    def _weighed(self, row: FusedRow) -> tuple[FusedRow, Value]:
        """Return the row of all waves together, and what this wave's accumulators are multiplied by."""
        off = arithmetic.fma(row.maximum, row.factor, row.minus)
        own = arithmetic.exp2(arithmetic.fneg(off))
        pair = vector.pack(row.maximum, self.softmax.total(row) * own)
        place = lanes.wave_id() * (self.work.spec.columns * PAIR) + self._column() * PAIR
        memory.workgroup_store(self.pairs, place, pair, alignment=PAIR * F32.bytes)
        control.barrier()
        found = [self._pair(wave) for wave in range(self.work.spec.waves)]
        highest = found[0][0]
        for maximum, _ in found[1:]:
            highest = arithmetic.fmax(highest, maximum)
        merged = self.softmax.begun(highest)
        total = constant(0.0, F32)
        for maximum, weight in found:
            total = arithmetic.fma(weight, self.softmax.weight(merged, maximum), total)
        factor = self.softmax.weight(merged, row.maximum) * own
        return attrs.evolve(merged, total=total), factor

    def _column(self) -> Value:
        return lane_index(self.frame.column)

    def _pair(self, wave: int) -> tuple[Value, Value]:
        index, offset = self._column() * PAIR, wave * self.work.spec.columns * PAIR
        pair = memory.workgroup_load(self.pairs, index, count=PAIR, offset=offset, alignment=PAIR * F32.bytes)
        return vector.extract(pair, index=0), vector.extract(pair, index=1)

    def _exchanged(self, output: Many[Value], factor: Value) -> list[Value]:
        """Return this wave's pieces of the sums over all waves, four columns each."""
        slots, waves = self.frame.value.shape.c.slots, self.work.spec.waves
        found: list[Value] = []
        for begin in range(0, len(output), PIECE.count):
            if begin:
                control.barrier()
            products = output[begin : begin + PIECE.count]
            for slot in range(slots):
                piece = vector.pack(*(vector.extract(each, index=slot) * factor for each in products))
                self._write(slot, piece)
            control.barrier()
            total = self._read(0)
            for wave in range(1, waves):
                total = total + self._read(wave)
            found.append(total)
        return found

    def _write(self, slot: int, piece: Value) -> None:
        size = PIECE_BYTES // self.frame.element.bytes
        slots, lanes_ = self.frame.value.shape.c.slots, self.work.spec.lanes
        index = (lanes.wave_id() * (slots * lanes_) + lanes.lane_id()) * size
        words = convert.bitcast(piece, to=VectorType(self.frame.element, size))
        memory.workgroup_store(self.pieces, index, words, offset=slot * lanes_ * size, alignment=PIECE_BYTES)

    def _read(self, wave: int) -> Value:
        size = PIECE_BYTES // self.frame.element.bytes
        slots, lanes_ = self.frame.value.shape.c.slots, self.work.spec.lanes
        index = (lanes.wave_id() * lanes_ + lanes.lane_id()) * size
        words = memory.workgroup_load(
            self.pieces, index, count=size, offset=wave * slots * lanes_ * size, alignment=PIECE_BYTES
        )
        return convert.bitcast(words, to=PIECE)

    def _store_out(self, place: Row, parts: Many[Value]) -> None:
        def store(column: Value, pieces: Many[Value]) -> None:
            elements = [vector.extract(piece, index=index) for piece in pieces for index in range(PIECE.count)]
            pointer = memory.offset(self._arguments.out, place.place() * self.work.spec.head_size)
            value = narrow(elements, self.frame.element)
            memory.store(memory.offset(pointer, column), value, alignment=len(elements) * self.frame.element.bytes)

        self._each_stretch(parts, store)

    def _store_part(self, place: Row, parts: Many[Value]) -> None:
        def store(column: Value, pieces: Many[Value]) -> None:
            pointer = memory.offset(self._arguments.part_out, place.segment() * self.work.spec.head_size)
            for number, piece in enumerate(pieces):
                at = column + number * PIECE.count if number else column
                memory.store(memory.offset(pointer, at), piece, alignment=PIECE_BYTES)

        self._each_stretch(parts, store)

    def _each_stretch(self, parts: Many[Value], store: Callable[[Value, Many[Value]], None]) -> None:
        """Store the pieces of every stretch that this lane has columns of."""
        rows = self.frame.value.shape.c.rows
        begin = 0
        for stretch in self.frame.stretches:
            pieces = parts[begin : begin + stretch.width // PIECE.count]
            begin += len(pieces)
            first = lane_index(rows[:, 0] * stretch.width + stretch.first)
            column = first + lanes.wave_id() * stretch.width
            last = stretch.first + stretch.width * self.work.spec.columns

            def do(column: Value = column, pieces: Many[Value] = pieces) -> tuple[()]:
                store(column, pieces)
                return ()

            if last <= self.work.spec.head_size:
                do()
            else:
                control.if_else(column < self.work.spec.head_size, do)

    def _of_first_lanes(self, store: Callable[[], None]) -> None:
        of_first_lanes(self.work, store)


def of_first_lanes(work: Work, store: Callable[[], None]) -> None:
    """Store in one of the lanes that have a row."""

    def stored() -> tuple[()]:
        store()
        return ()

    control.if_else(lanes.thread_id() < work.spec.columns, stored)


def store_pair(work: Work, place: Row, maximum: Value, total: Value) -> None:
    """Write the largest score and the weight of a row that exists, as the segment has them."""

    def store() -> None:
        pointer = memory.offset(work.arguments.part_ml, place.segment() * PAIR)
        memory.store(pointer, vector.pack(maximum, total), alignment=8)

    of_first_lanes(work, store)


def _splat(factor: Value) -> Value:
    return vector.splat(factor, count=PIECE.count)
