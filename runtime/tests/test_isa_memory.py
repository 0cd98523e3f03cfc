"""Memory as machine code reaches it: by address, whatever its alignment, inside what is allocated alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kinfolk.errors import BindError
from kinfolk.ir.types import F32, I32, PointerType
from kinfolk.machine import AccessError
from kinfolk.parameters import Parameter
from kinfolk_runtime.isa import LaunchMemory
from kinfolk_runtime.simulator.buffers import Buffer

READ = Parameter(name="x", type=PointerType(I32), alignment=4)
WRITTEN = Parameter(name="y", type=PointerType(F32), access="write", alignment=16)
COUNT = Parameter(name="n", type=I32)


def launched(x: Any, y: Any, n: int = 7, seed: int = 0) -> tuple[LaunchMemory, int, int]:
    """Return memory of three arguments, with the addresses of the two buffers as the argument block has them."""
    memory = LaunchMemory((READ, WRITTEN, COUNT), (x, y, n), seed)
    words = memory.read(memory.arguments + np.arange(0, 20, 4, dtype=np.uint64), 4).astype(np.uint64)
    assert int(words[4]) == n
    return memory, int(words[0] | words[1] << np.uint64(32)), int(words[2] | words[3] << np.uint64(32))


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_what_is_written_is_read_at_any_alignment(seed: int) -> None:
    x = np.arange(1000, 1016, dtype=np.int32)
    memory, at, to = launched(x, np.zeros(16, np.float32), seed=seed)
    whole = x.tobytes()
    for offset, unit in ((0, 4), (1, 4), (2, 4), (3, 4), (5, 2), (6, 2), (7, 1), (60, 4)):
        found = memory.read(np.array([at + offset], np.uint64), unit)
        assert int(found[0]) == int.from_bytes(whole[offset : offset + unit], "little")
    memory.write(np.array([to + 5], np.uint64), np.array([0x11223344], np.uint32))
    assert memory.read(np.array([to + 4, to + 8], np.uint64), 4).tolist() == [0x22334400, 0x11]


def test_bytes_past_a_buffer_are_not_there() -> None:
    memory, at, _ = launched(np.zeros(16, np.int32), np.zeros(16, np.float32))
    memory.read(np.array([at + 60], np.uint64), 4)
    for address in (at + 61, at + 64, at - 1):
        with pytest.raises(AccessError, match="of x, which has 64 bytes") as caught:
            memory.read(np.array([at, address], np.uint64), 4)
        assert caught.value.wrong.tolist() == [False, True] and caught.value.kind == "memory"
    with pytest.raises(AccessError, match="nothing is allocated"):
        memory.read(np.array([0x1234], np.uint64), 4)


def test_what_is_declared_to_be_read_is_not_written_and_outputs_are_written_first() -> None:
    memory, at, to = launched(np.zeros(16, np.int32), Buffer(np.zeros(16, np.float32), initialized=False))
    with pytest.raises(AccessError, match="writes x, which is declared to be only read"):
        memory.write(np.array([at], np.uint64), np.zeros(1, np.uint32))
    with pytest.raises(AccessError, match="never written") as caught:
        memory.read(np.array([to], np.uint64), 4)
    assert caught.value.kind == "uninitialised"
    memory.write(np.array([to], np.uint64), np.ones(1, np.uint32))
    assert memory.read(np.array([to], np.uint64), 4).tolist() == [1]


def test_the_argument_block_ends_at_its_granule() -> None:
    """20 bytes of arguments: LLVM reads up to 32, beyond is nothing."""
    memory, _, _ = launched(np.zeros(16, np.int32), np.zeros(16, np.float32))
    assert memory.read(np.array([memory.arguments + 28], np.uint64), 4).tolist() == [0]
    with pytest.raises(AccessError, match="past the 32 bytes of the argument block"):
        memory.read(np.array([memory.arguments + 32], np.uint64), 4)


def test_a_number_is_no_pointer() -> None:
    with pytest.raises(BindError, match="parameter x is a pointer, got 3"):
        LaunchMemory((READ,), (3,), 0)
