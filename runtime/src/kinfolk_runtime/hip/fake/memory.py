"""Memory of a fake device: bytes of this process at their own addresses, known by what was allocated."""

from __future__ import annotations

from typing import Final

import attrs
import numpy as np

from kinfolk_runtime.hip.fake.streams import failure
from kinfolk_runtime.tensors import Array

GRANULE: Final = 256
JUNK: Final = 0xA5


@attrs.define(eq=False)
class Block:
    """One allocation; `freed` when the stream came to its free."""

    address: int
    size: int
    device: int
    data: Array = attrs.field(repr=False)
    freed: bool = False
    foreign: bool = False
    """Whether a caller brought it: it is never freed here."""


class FakeMemory:
    """Allocations by address. Freed ones keep their bytes, so that nothing else is reached through a stale address."""

    def __init__(self) -> None:
        self.blocks: list[Block] = []

    @property
    def live(self) -> list[Block]:
        """What is allocated and was not freed."""
        return [block for block in self.blocks if not (block.freed or block.foreign)]

    def allocate(self, size: int, device: int) -> Block:
        raw = np.full(size + GRANULE, JUNK, np.uint8)
        begin = -raw.ctypes.data % GRANULE
        data = raw[begin : begin + size]
        block = Block(address=data.ctypes.data, size=size, device=device, data=data)
        self.blocks.append(block)
        return block

    def adopt(self, address: int, data: Array, device: int) -> Block:
        """Let memory of this process be the device's."""
        block = Block(address=address, size=data.size, device=device, data=data, foreign=True)
        self.blocks.append(block)
        return block

    def at(self, call: str, address: int, size: int = 0) -> Array:
        """Return the bytes from an address to the end of its allocation; HIP's error where `size` do not fit there."""
        here = [block for block in self.blocks if block.address <= address < block.address + max(block.size, 1)]
        if not here:
            raise failure(call, "hipErrorIllegalAddress", f"nothing is allocated at {address:#x}")
        block = max(here, key=lambda each: (not each.freed, each.address + each.size))
        rest = block.data[address - block.address :]
        if block.freed:
            raise failure(call, "hipErrorIllegalAddress", f"{address:#x} was freed")
        if size > rest.size:
            raise failure(call, "hipErrorIllegalAddress", f"{size} bytes at {address:#x}, {rest.size} are there")
        return rest

    def block(self, call: str, address: int) -> Block:
        """Return the live allocation that begins at an address."""
        for block in self.blocks:
            if block.address == address and not block.freed and not block.foreign:
                return block
        raise failure(call, "hipErrorInvalidValue", f"no allocation begins at {address:#x}")
