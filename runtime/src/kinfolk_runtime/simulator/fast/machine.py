"""What one thread needs to run workgroups of a program, and the records of a launch's buffers."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from kinfolk_runtime.simulator import control
from kinfolk_runtime.simulator.buffers import Range
from kinfolk_runtime.simulator.fast import layout as at
from kinfolk_runtime.simulator.fast.program import FastProgram
from kinfolk_runtime.simulator.fast.race_ops import wave_bits
from kinfolk_runtime.simulator.space import Mapped
from kinfolk_runtime.simulator.traffic import Traffic, Watched
from kinfolk_runtime.simulator.transfers import POISON

Words = npt.NDArray[np.int64]
_ENDLESS: Final = 1 << 62
_RUN: Final = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)


def aligned(size: int, fill: int = 0) -> npt.NDArray[np.uint8]:
    """Return bytes that begin at a whole line."""
    whole = np.full(size + 64, fill, np.uint8) if fill else np.zeros(size + 64, np.uint8)  # touched when first used
    begin = -whole.ctypes.data % 64
    return whole[begin : begin + size]


class Records:
    """The buffers of a launch as compiled code reads them; they point into the buffers' own memory."""

    def __init__(self, mapped: Sequence[Mapped], traffic: Traffic | None = None) -> None:
        self.count = len(mapped)
        self.table: Words = np.zeros((max(1, len(mapped)), at.RECORD_WORDS), np.int64)
        self._kept: list[Any] = []
        for record, one in zip(self.table, mapped, strict=False):
            ranges = one.storage.ranges()
            [whole] = ranges if len(ranges) == 1 else [None]
            covers = whole is not None and whole.start == 0 and whole.end == one.size
            simple = covers and whole is not None and not whole.marks and whole.axes is None
            access = {"read": at.MAY_READ, "write": at.MAY_WRITE, "readwrite": at.MAY_READ | at.MAY_WRITE}
            record[at.BASE], record[at.SIZE] = int(one.base), one.size
            record[at.HOST] = whole.address if whole is not None else 0
            record[at.ACCESS] = access[one.parameter.access]
            record[at.SIMPLE] = int(simple)
            watched = traffic.of(one) if traffic is not None else None
            record[at.GRANULE] = watched.granule if watched is not None else 0
            record[at.RANGE_COUNT], record[at.RANGES] = len(ranges), self._ranges(ranges, watched)

    def _ranges(self, ranges: Sequence[Range], watched: Watched | None) -> int:
        table: Words = np.zeros((max(1, len(ranges)), at.RANGE_WORDS), np.int64)
        for row, one in zip(table, ranges, strict=False):
            row[at.START], row[at.END] = one.start, one.end
            row[at.RANGE_HOST], row[at.RANGE_MARKS], row[at.ITEM_BYTES] = one.address, one.marks, one.item_bytes
            if one.axes is not None:
                axes: Words = np.array(one.axes, np.int64)
                self._kept.append(axes)
                row[at.AXIS_COUNT], row[at.AXES] = len(one.axes), axes.ctypes.data
        for row, stretch in zip(table, watched.stretches if watched is not None else (), strict=False):
            row[at.TRAFFIC] = stretch.words.ctypes.data
        self._kept.append(table)
        return table.ctypes.data


class Machine:
    """Frames, workgroup memory and contexts for one workgroup of a program at a time; for one thread at a time."""

    def __init__(self, program: FastProgram) -> None:
        self.program = program
        waves, size = program.waves, program.wave_size
        self._frames = aligned(waves * program.frame_bytes).reshape(waves, -1)
        for wave in range(waves):
            program.fill(self._frames[wave], wave)
        self._data = aligned(program.workgroup_bytes + 256, POISON)
        self._marks = aligned(program.workgroup_bytes + 256)
        self._scratch = aligned(program.scratch_size + 256)
        self._scratch[at.ONES : at.ONES + at.SPARE_BYTES] = 0xFF
        self._scratch[at.POISONED : at.POISONED + at.SPARE_BYTES] = POISON
        self._order: Words = np.zeros(waves + 1, np.int64)
        self._shared: Words = np.zeros(at.SHARED_WORDS, np.int64)
        self._entries: Words = np.zeros((program.region_count + 1, 2), np.int64)
        self._shared[at.ENTRIES] = self._entries.ctypes.data
        self._contexts: Words = aligned(waves * at.CONTEXT_WORDS * 8).view(np.int64).reshape(waves, -1)
        contexts = self._contexts
        contexts[:, at.WAVE] = range(waves)
        contexts[:, at.DATA] = self._data.ctypes.data
        contexts[:, at.MARKS] = self._marks.ctypes.data
        contexts[:, at.SHARED] = self._shared.ctypes.data
        contexts[:, at.SCRATCH] = self._scratch.ctypes.data
        self._job: Words = np.zeros(at.JOB_WORDS, np.int64)
        job = self._job
        job[at.JOB_WAVES], job[at.JOB_CONTEXTS] = waves, contexts.ctypes.data
        job[at.JOB_FRAMES], job[at.JOB_FRAME_BYTES] = self._frames.ctypes.data, program.frame_bytes
        job[at.JOB_MARKS], job[at.JOB_MARK_BYTES] = self._marks.ctypes.data, program.workgroup_bytes
        job[at.JOB_CODE], job[at.JOB_ORDER] = program.code.ctypes.data, self._order.ctypes.data
        job[at.JOB_SHARED] = self._shared.ctypes.data
        self._lay_out_races()
        self._run = _RUN(program.run_address)
        self._size = size

    def _lay_out_races(self) -> None:
        """Give the sets of waves that read, wrote, added, and the marks of bytes in flight, their place."""
        program, contexts, job = self.program, self._contexts, self._job
        checks = program.checks
        set_bytes = -(-checks.set_bytes_of(-(-program.workgroup_bytes // 16) * 16) // 64) * 64
        flying = program.workgroup_bytes if checks.flies else 0
        self._races = aligned(at.SET_SLACK + 3 * set_bytes + flying + 256)
        first = self._races.ctypes.data + at.SET_SLACK
        for number, area in enumerate((at.READS, at.WRITES, at.ADDS, at.FLYING)):
            contexts[:, area] = first + number * set_bytes
        contexts[:, at.WAVE_BITS] = [wave_bits(wave, checks.set_bytes) for wave in range(program.waves)]
        job[at.JOB_RACES], job[at.JOB_SET_BYTES] = first, set_bytes
        job[at.JOB_RACE_BYTES] = 3 * set_bytes + flying

    def prepare(
        self,
        records: Records,
        values: Sequence[npt.NDArray[Any]],
        grid: Sequence[int],
        seed: int,
        round_limit: int | None,
    ) -> None:
        """Set what is the launch's own: buffers, arguments, grid, order, and how many rounds its loops may take."""
        self._entries[:] = 0
        self._shared[at.VIEW_READ] = self._shared[at.VIEW_WRITTEN] = 0
        self._shared[at.MOST_BACK_EDGES] = control.MOST_BACK_EDGES
        self._shared[at.ROUND_LIMIT] = _ENDLESS if round_limit is None else round_limit
        self._contexts[:, at.BUFFERS] = records.table.ctypes.data
        self._contexts[:, at.BUFFER_COUNT] = records.count
        self._job[at.JOB_GRID_X], self._job[at.JOB_GRID_Y] = grid[0], grid[1]
        self._job[at.JOB_SEED : at.JOB_SEED + 1] = np.array([seed & ((1 << 64) - 1)], np.uint64).view(np.int64)
        for parameter, value in zip(self.program.parameters, values, strict=True):
            image = np.ascontiguousarray(np.broadcast_to(value.reshape(-1)[:1], (self._size,))).view(np.uint8)
            offset = self.program.frame.offset(parameter)
            self._frames[:, offset : offset + len(image)] = image

    def run(self, places: Words, begin: int, count: int) -> int:
        """Run workgroups `places[begin : begin + count]`; return how many ran to their end, in order."""
        return int(self._run(self._job.ctypes.data, places.ctypes.data + 8 * begin, count))

    def counted(self) -> Words | None:
        """Return how often regions were entered and, last, how many bytes of views were read and written since
        `prepare`; None where the program does not count.
        """
        self._entries[-1] = self._shared[at.VIEW_READ], self._shared[at.VIEW_WRITTEN]
        return self._entries if self.program.region_count else None

    @property
    def limited(self) -> bool:
        """Whether the last run was stopped by the limit on rounds."""
        return bool(self._shared[at.ROUNDS_LEFT] < 0)

    def fault(self) -> tuple[int, int]:
        """Return the wave that stopped the last run, and the word of the code at which."""
        word = (int(self._job[at.JOB_FAULT_AT]) - self.program.code.ctypes.data) // 8
        return int(self._job[at.JOB_FAULT_WAVE]), word
