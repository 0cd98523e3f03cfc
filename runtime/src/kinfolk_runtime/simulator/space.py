"""Global memory as kernels see it: each argument's buffer in a slot of its own, addresses as tagged 64-bit numbers."""

from __future__ import annotations

from typing import Any, Final

import attrs
import numpy as np
import numpy.typing as npt

from kinfolk.errors import InternalError
from kinfolk.ir.types import PointerType
from kinfolk.parameters import Parameter
from kinfolk_runtime.simulator.buffers import Storage

Addresses = npt.NDArray[np.uint64]

SLOT_BITS: Final = 40
"""An address is (buffer number << 40) + offset; numbers 1 to 127 keep it within the 47 bits of a user address."""
GUARD: Final = 1 << 20
"""Bytes at both ends of a slot that are never part of a buffer."""
LARGEST: Final = (1 << SLOT_BITS) - 4 * GUARD
"""The most bytes of a buffer that fit a slot at any alignment."""


@attrs.frozen(kw_only=True, eq=False)
class Mapped:
    """A buffer at its address. `base` is a multiple of the parameter's alignment and of no larger power of two."""

    parameter: Parameter
    storage: Storage
    base: np.uint64
    element_bytes: int

    @property
    def name(self) -> str:
        """The parameter's name."""
        return self.parameter.name

    @property
    def size(self) -> int:
        """Bytes of the true allocation."""
        return self.storage.size


class AddressSpace:
    """The buffers of one launch by number; where each begins in its slot is drawn from a seed."""

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)
        self._mapped: list[Mapped] = []

    def map(self, parameter: Parameter, storage: Storage) -> Addresses:
        """Give a buffer an address and return it as a value that is equal on all lanes."""
        assert isinstance(parameter.type, PointerType)
        number, step = len(self._mapped) + 1, 2 * parameter.alignment
        if number > 127:
            raise InternalError("the simulator maps at most 127 buffers in one launch")
        room = (1 << SLOT_BITS) - 2 * GUARD - storage.size - 2 * step
        assert room >= 0, f"{parameter.name} is larger than a slot"
        offset = (GUARD + int(self._random.integers(0, room + 1))) // step * step + parameter.alignment
        base = (number << SLOT_BITS) + offset
        self._mapped.append(
            Mapped(
                parameter=parameter, storage=storage, base=np.uint64(base), element_bytes=parameter.type.element.bytes
            )
        )
        return np.array([[base]], np.uint64)

    @property
    def buffers(self) -> tuple[Mapped, ...]:
        """Those mapped, by number from 1 on."""
        return tuple(self._mapped)

    def at(self, address: Any) -> Mapped | None:
        """Return the buffer in whose slot an address lies."""
        number = int(address) >> SLOT_BITS
        return self._mapped[number - 1] if 1 <= number <= len(self._mapped) else None
