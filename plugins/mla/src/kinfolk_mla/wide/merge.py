"""Putting together what two groups of waves have for the same rows, through workgroup memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import attrs

from kinfolk.ir.ops import arithmetic, control, convert, lanes, memory, vector
from kinfolk.ir.types import F32, BufferType, VectorType
from kinfolk.ir.value import Value
from kinfolk.tile.parting import parted
from kinfolk.tile.softmax import OnlineSoftmax, RowState
from kinfolk.tile.transposed import TransposedOperand
from kinfolk_mla.decode.epilogue import Rows, store_lse, store_pair
from kinfolk_mla.decode.sequence import Work

Window = tuple[int, int, Sequence[Value]]
PIECE: Final = VectorType(F32, 4)
PIECE_BYTES: Final = 16


@attrs.frozen(eq=False)
class Merge:
    """Group 1 hands its rows to group 0, which stores them; `buffer` is memory that the loop read last.

    A piece is 16 bytes of each lane. Of a wave, pieces follow each other, lanes next to each other in each.
    """

    work: Work
    softmax: OnlineSoftmax
    operand: TransposedOperand
    buffer: Value

    def store(self, rows: Sequence[RowState], output: Sequence[Value]) -> None:
        """Write the rows of both groups: `output` is ordered by head tile, then by fragment of `operand`."""
        with parted(self.buffer, earlier="read"):
            merged, factors = self._weighed(*self._exchanged(rows))
            windows = self._windows(output, len(rows))
            size = max(1, self._capacity() // len(_cut(windows[0][2])))
            for begin in range(0, len(windows), size):
                self._chunk(windows[begin : begin + size], factors)
        self._if_group(0, lambda: self._store_weights(merged))

    def _weighed(
        self, own: Sequence[RowState], other: Sequence[RowState]
    ) -> tuple[Sequence[RowState], Sequence[Value]]:
        """Return the rows of both groups together, and what each accumulator of this one is multiplied by.

        Rows of a segment of the keys are not normalised.
        """
        merged: list[RowState] = []
        factors: list[Value] = []
        for mine, theirs in zip(own, other, strict=True):
            maximum = arithmetic.fmax(mine.maximum, theirs.maximum)
            factor, their_factor = (
                arithmetic.exp2((row.maximum - maximum) * self.softmax.scale_log2) for row in (mine, theirs)
            )
            merged.append(RowState(maximum, mine.total * factor + theirs.total * their_factor))
            inverse, _ = self.softmax.finish(merged[-1])
            factors.append(arithmetic.select(self.work.is_split, factor, factor * inverse))
        return merged, factors

    def _store_weights(self, merged: Sequence[RowState]) -> None:
        def part() -> tuple[()]:
            for tile, row in enumerate(merged):
                store_pair(self.work, row.maximum, self.softmax.total(row), tile)
            return ()

        def whole() -> tuple[()]:
            for tile, row in enumerate(merged):
                store_lse(self.work, self.softmax.finish(row)[1], tile)
            return ()

        control.if_else(self.work.is_split, part, whole)

    def _windows(self, output: Sequence[Value], tiles: int) -> list[Window]:
        """Return (head tile, window, accumulators) of all windows."""
        count, width = len(output) // tiles, self.operand.width
        return [
            (tile, window, output[tile * count + window * width :][:width])
            for tile in range(tiles)
            for window in range(count // width)
        ]

    def _chunk(self, windows: Sequence[Window], factors: Sequence[Value]) -> None:
        """Hand over as many windows as the memory holds."""
        pieces = len(_cut(windows[0][2]))

        def hand() -> None:
            for number, (tile, _, accumulators) in enumerate(windows):
                for place, piece in enumerate(_cut(accumulators)):
                    self._write(self.work.member, number * pieces + place, piece * _splat(factors[tile]))

        def merge(rows: Callable[[Work, TransposedOperand, int], Rows]) -> tuple[()]:
            tiles = dict.fromkeys(tile for tile, _, _ in windows)
            stores = {tile: rows(self.work, self.operand, tile) for tile in tiles}
            for number, (tile, window, accumulators) in enumerate(windows):
                merged = [
                    piece * _splat(factors[tile]) + self._read(self.work.member, number * pieces + place)
                    for place, piece in enumerate(_cut(accumulators))
                ]
                stores[tile].store(window, _joined(merged, len(accumulators)))
                control.schedule_fence()
            return ()

        def merge_either() -> None:
            control.if_else(self.work.is_split, lambda: merge(Rows.of_segment), lambda: merge(Rows.of_output))

        self._if_group(1, hand)
        self._if_group(0, merge_either)

    def _exchanged(self, rows: Sequence[RowState]) -> tuple[Sequence[RowState], Sequence[RowState]]:
        """Return the rows of this wave, and those of the wave that has its rows in the other group."""
        waves = self.work.geometry.spec.waves
        partner = self.work.wave ^ self.work.geometry.spec.row_waves
        for number, row in enumerate(rows):
            pair = vector.pack(row.maximum, row.total, row.maximum, row.total)
            self._write(self.work.wave, number, pair, waves)
        pairs = [self._read(partner, number, waves) for number in range(len(rows))]
        others = [RowState(vector.extract(pair, index=0), vector.extract(pair, index=1)) for pair in pairs]
        return rows, others

    def _if_group(self, group: int, do: Callable[[], None]) -> None:
        def run() -> tuple[()]:
            do()
            return ()

        control.if_else(self.work.group.eq(group), run)

    @property
    def _lane_elements(self) -> int:
        return PIECE_BYTES // self.work.geometry.element.bytes

    def _capacity(self) -> int:
        """How many pieces of each wave that hands over the buffer holds."""
        assert isinstance(self.buffer.type, BufferType)
        a_piece = self.work.geometry.wave_size * PIECE_BYTES
        return self.buffer.type.bytes // (a_piece * self.work.geometry.spec.row_waves)

    def _place(self, wave: Value, piece: int, waves: int | None) -> tuple[Value, int]:
        waves = self.work.geometry.spec.row_waves if waves is None else waves
        a_piece = self.work.geometry.wave_size * self._lane_elements
        return wave * a_piece + lanes.lane_id() * self._lane_elements, piece * waves * a_piece

    def _write(self, wave: Value, piece: int, value: Value, waves: int | None = None) -> None:
        index, offset = self._place(wave, piece, waves)
        words = convert.bitcast(value, to=VectorType(self.work.geometry.element, self._lane_elements))
        memory.workgroup_store(self.buffer, index, words, offset=offset, alignment=PIECE_BYTES)

    def _read(self, wave: Value, piece: int, waves: int | None = None) -> Value:
        index, offset = self._place(wave, piece, waves)
        words = memory.workgroup_load(
            self.buffer, index, count=self._lane_elements, offset=offset, alignment=PIECE_BYTES
        )
        return convert.bitcast(words, to=PIECE)


def _cut(accumulators: Sequence[Value]) -> list[Value]:
    """Return f32 vectors as pieces."""
    pieces: list[Value] = []
    for accumulator in accumulators:
        assert isinstance(accumulator.type, VectorType)
        count = accumulator.type.count
        whole = count == PIECE.count
        pieces += [accumulator if whole else vector.slice_(accumulator, at, PIECE.count) for at in range(0, count, 4)]
    return pieces


def _joined(pieces: Sequence[Value], count: int) -> list[Value]:
    """Return `count` vectors out of the pieces they were cut to."""
    each = len(pieces) // count
    vectors: list[Value] = []
    for first in range(0, len(pieces), each):
        parts = list(pieces[first : first + each])
        while len(parts) > 1:
            assert isinstance(parts[0].type, VectorType)
            indices = tuple(range(2 * parts[0].type.count))
            parts = [vector.shuffle(a, b, indices=indices) for a, b in zip(parts[::2], parts[1::2], strict=True)]
        vectors.append(parts[0])
    return vectors


def _splat(factor: Value) -> Value:
    return vector.splat(factor, count=PIECE.count)
