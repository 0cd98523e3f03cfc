"""Where things lie for the compiled code: values in a wave's frame, the words of contexts, jobs and buffer records."""

from __future__ import annotations

from functools import cache
from typing import Final

from kinfolk.ir.types import BufferType, PointerType, ScalarType, Type, VectorType, ViewType

WORD: Final = 8
"""Bytes of a word of code, of a context and of a record."""
SLOT_ALIGNMENT: Final = 64

# Words of a wave's context.
EXEC, WAVE, BLOCK, STATUS, PC, DATA, MARKS, BUFFERS, BUFFER_COUNT, SHARED, SCRATCH = 0, 1, 2, 5, 6, 7, 8, 9, 10, 11, 12
FLYING, READS, WRITES, ADDS, WAVE_BITS, GROUP, STAND = 13, 14, 15, 16, 17, 18, 19
CONTEXT_WORDS: Final = 24

# Words that the waves of a workgroup share: how often bytes ceased to count as written, back edges since the barrier,
# how many there may be, back edges left of those that the run allows, how many it allows, where entries of regions are
# counted, and how many bytes inside of views were read and written.
HIDINGS, BACK_EDGES, MOST_BACK_EDGES, ROUNDS_LEFT, ROUND_LIMIT, ENTRIES, VIEW_READ, VIEW_WRITTEN = range(8)
SHARED_WORDS: Final = 8
RUNNING, WAITS, RETURNED, FAULTED = 0, 1, 2, 3
"""Why a wave's code returned."""

# Words of a buffer's record, and of each of its ranges.
BASE, SIZE, HOST, ACCESS, SIMPLE, RANGE_COUNT, RANGES, GRANULE = 0, 1, 2, 3, 4, 5, 6, 7
RECORD_WORDS: Final = 8
MAY_READ, MAY_WRITE = 1, 2
START, END, RANGE_HOST, RANGE_MARKS, AXIS_COUNT, AXES, ITEM_BYTES, TRAFFIC = 0, 1, 2, 3, 4, 5, 6, 7
RANGE_WORDS: Final = 8

# Words of a view's value.
VIEW_BASE, VIEW_SIZE, VIEW_HOST, VIEW_ACCESS = 0, 1, 2, 3

# Words of a thread's job.
(
    JOB_WAVES,
    JOB_CONTEXTS,
    JOB_FRAMES,
    JOB_FRAME_BYTES,
    JOB_MARKS,
    JOB_MARK_BYTES,
    JOB_GRID_X,
    JOB_GRID_Y,
    JOB_CODE,
    JOB_SEED,
    JOB_ORDER,
    JOB_SHARED,
    JOB_FAULT_WAVE,
    JOB_FAULT_AT,
    JOB_RACES,
    JOB_RACE_BYTES,
    JOB_SET_BYTES,
) = range(17)
JOB_WORDS: Final = 24

# The scratch of a thread, in bytes: what masked lanes read (0, all bits set, poison), where they write, addresses of
# lanes, a word, addresses of their sets of waves, and the lanes' data.
ZEROS, ONES, POISONED, DUMP, ADDRESSES, KEPT, SPOTS, STAGED = 0, 256, 512, 768, 1024, 1536, 1600, 2112
SPARE_BYTES: Final = 256
SET_SLACK: Final = 8 * SPARE_BYTES
"""Bytes before the sets of waves, which masked lanes are entered into."""


def component_bytes(type_: ScalarType, wave_size: int) -> int:
    """Return the bytes of one component on all lanes; an i1 is one word of bits."""
    return WORD if type_.bits == 1 else type_.bytes * wave_size


@cache
def value_bytes(type_: Type, wave_size: int) -> int:
    """Return the bytes of a value in a frame: components one after the other, each lane by lane."""
    if isinstance(type_, PointerType):
        return 8 * wave_size
    if isinstance(type_, ViewType):
        return 4 * WORD
    if isinstance(type_, BufferType):
        return 0
    if isinstance(type_, VectorType):
        return type_.count * component_bytes(type_.element, wave_size)
    return component_bytes(type_, wave_size)


@cache
def slot_bytes(type_: Type, wave_size: int) -> int:
    """Return the bytes that a value takes in a frame, in whole lines."""
    return -(-value_bytes(type_, wave_size) // SLOT_ALIGNMENT) * SLOT_ALIGNMENT
