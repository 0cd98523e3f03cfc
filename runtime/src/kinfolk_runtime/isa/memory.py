"""Memory of a launch as machine code reaches it: each argument's buffer at an address, and the argument block."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, cast

import numpy as np
import numpy.typing as npt

from kinfolk.errors import BindError
from kinfolk.ir.types import I8, PointerType
from kinfolk.machine import AccessError
from kinfolk.parameters import Access, Parameter
from kinfolk.plan import ArgumentValue, Kind
from kinfolk_runtime.artifact import argument_layout
from kinfolk_runtime.isa.arguments import Given
from kinfolk_runtime.packing import packed
from kinfolk_runtime.simulator.buffers import Buffer, SparseBuffer, Storage, Unavailable
from kinfolk_runtime.simulator.space import LARGEST, SLOT_BITS, AddressSpace

Array = npt.NDArray[Any]
BLOCK_SLOT: Final = 127
"""The slot of the argument block; buffers take those from 1 on."""
BLOCK_ALIGNMENT: Final = 64
BLOCK_GRANULE: Final = 16
"""The argument block's alignment in HSA: LLVM reads whole multiples of it, past the last argument too."""
IMAGE_SLOT: Final = 126
IMAGE_ALIGNMENT: Final = 1 << 16
"""The slot of the code object, and where in it that begins."""
OBJECT_ALIGNMENT: Final = 256
"""Where a buffer of an object's kernel begins: what allocators of AMD's runtimes keep to."""


class LaunchMemory:
    """The buffers of a launch, its argument block at `arguments`, and the code object where one is loaded.

    Where buffers lie is drawn from a seed. `read_bytes` and `written_bytes` count what was asked of buffers.
    """

    def __init__(
        self, parameters: Sequence[Parameter], values: Sequence[object], seed: int, block: bytes = b""
    ) -> None:
        """`values` are the arguments in order: a buffer or an array for a pointer, a number for others.

        `block` has what else the argument block holds, zeros where arguments go.
        """
        self._start(seed)
        addresses: dict[str, int] = {}
        named: list[ArgumentValue] = []
        for parameter, value in zip(parameters, values, strict=True):
            if parameter.is_pointer:
                addresses[parameter.name] = self._map(parameter, value)
                named.append(ArgumentValue(parameter.name, "pointer", parameter.name))
            else:
                assert isinstance(value, int | float)
                named.append(ArgumentValue(parameter.name, cast("Kind", parameter.kind), value))
        declared = packed(named, argument_layout(parameters), addresses)
        self._set_block(declared + block[len(declared) :])

    @classmethod
    def of_object(cls, given: Sequence[Given], block: bytes, seed: int) -> LaunchMemory:
        """Return the memory of a launch whose arguments a code object declares, with `block` for what else it has."""
        memory = cls.__new__(cls)
        memory._start(seed)
        whole = bytearray(block)
        for each in given:
            data = each.data
            if each.place.kind == "pointer":
                data = (0 if each.storage is None else memory._map_storage(each)).to_bytes(8, "little")
            whole[each.place.offset : each.place.offset + len(data)] = data
        memory._set_block(bytes(whole))
        return memory

    def _start(self, seed: int) -> None:
        self._space = AddressSpace(seed)
        self._image = np.zeros(0, np.uint8)
        self.read_bytes = self.written_bytes = 0
        self.arguments = (BLOCK_SLOT << SLOT_BITS) + BLOCK_ALIGNMENT
        self.image = (IMAGE_SLOT << SLOT_BITS) + IMAGE_ALIGNMENT

    def _set_block(self, block: bytes) -> None:
        self._block = np.frombuffer(block.ljust(-(-len(block) // BLOCK_GRANULE) * BLOCK_GRANULE, b"\0"), np.uint8)

    def load(self, image: Callable[[int], bytes]) -> None:
        """Take the bytes of a code object, which `image` gives for the address `image` where they lie."""
        self._image = np.frombuffer(image(self.image), np.uint8)

    def _map_storage(self, given: Given) -> int:
        assert given.storage is not None
        access: Access = "read" if given.read_only else "readwrite"
        pointer = Parameter(name=given.name, type=PointerType(I8), access=access, alignment=OBJECT_ALIGNMENT)
        return self._map(pointer, given.storage)

    def _map(self, parameter: Parameter, value: object) -> int:
        if not isinstance(value, np.ndarray | Buffer | SparseBuffer):
            raise BindError(f"parameter {parameter.name} is a pointer, got {value!r}: pass an array of this host.")
        storage: Storage = Buffer(cast("Array", value)) if isinstance(value, np.ndarray) else value
        if storage.size > LARGEST:
            raise BindError(f"parameter {parameter.name} has {storage.size} bytes, at most {LARGEST} can be mapped.")
        return int(self._space.map(parameter, storage)[0, 0])

    def read(self, addresses: Array, unit: int) -> Array:
        """Return units at addresses; AccessError for what is not allocated or was never written."""
        result = np.empty(addresses.shape, f"u{unit}")
        for chosen, slot in self._slots(addresses):
            part = addresses if chosen is None else addresses[chosen]
            try:
                data = self._read_slot(part, slot, unit)
            except AccessError as error:
                raise _of_all(error, addresses.shape, chosen) from None
            if chosen is None:
                return data
            result[chosen] = data
        return result

    def write(self, addresses: Array, values: Array) -> None:
        """Write units; AccessError for what is not allocated, or may only be read."""
        for chosen, slot in self._slots(addresses):
            part, data = (addresses, values) if chosen is None else (addresses[chosen], values[chosen])
            try:
                self._write_slot(part, slot, data)
            except AccessError as error:
                raise _of_all(error, addresses.shape, chosen) from None

    def _slots(self, addresses: Array) -> list[tuple[Array | None, int]]:
        """Return the slots of addresses, each with which are in it; None for all of them."""
        if addresses.size == 0:
            return []
        numbers = addresses >> np.uint64(SLOT_BITS)
        low, high = int(numbers.min()), int(numbers.max())
        if low == high:
            return [(None, low)]
        return [(numbers == number, int(number)) for number in np.unique(numbers)]

    def _read_slot(self, addresses: Array, slot: int, unit: int) -> Array:
        if slot in (BLOCK_SLOT, IMAGE_SLOT):
            return self._read_held(addresses, unit, slot)
        storage, offsets = self._offsets(addresses, slot, unit, "reads")
        if unit > 1 and (offsets % unit).any():
            half = unit // 2
            low, high = self._read_slot(addresses, slot, half), self._read_slot(addresses + np.uint64(half), slot, half)
            return low.astype(f"u{unit}") | high.astype(f"u{unit}") << np.uint8(8 * half)
        self.read_bytes += unit * addresses.size
        try:
            return storage.read(offsets, np.dtype(f"u{unit}"))
        except Unavailable as missing:
            raise self._unavailable(missing, slot) from None

    def _write_slot(self, addresses: Array, slot: int, values: Array) -> None:
        unit = values.dtype.itemsize
        storage, offsets = self._offsets(addresses, slot, unit, "writes")
        parameter = self._space.buffers[slot - 1].parameter
        if parameter.access == "read":
            every = np.ones(addresses.shape, np.bool_)
            raise AccessError("memory", f"writes {parameter.name}, which is declared to be only read", every)
        if unit > 1 and (offsets % unit).any():
            half = unit // 2
            self._write_slot(addresses, slot, values.astype(f"u{half}"))
            self._write_slot(addresses + np.uint64(half), slot, (values >> np.uint8(8 * half)).astype(f"u{half}"))
            return
        self.written_bytes += unit * addresses.size
        try:
            storage.write(offsets, values)
        except Unavailable as missing:
            raise self._unavailable(missing, slot) from None

    def _read_held(self, addresses: Array, unit: int, slot: int) -> Array:
        """Return units of the argument block or of the code object, at any alignment."""
        of_block = slot == BLOCK_SLOT
        base, held = (self.arguments, self._block) if of_block else (self.image, self._image)
        offsets = addresses.astype(np.int64) - base
        wrong = (offsets < 0) | (offsets + unit > len(held))
        if wrong.any():
            what = "argument block" if of_block else "code object"
            raise AccessError("memory", f"reads past the {len(held)} bytes of the {what}", wrong)
        each = offsets[..., None] + np.arange(unit)
        return held[each].view(f"<u{unit}")[..., 0]

    def _offsets(self, addresses: Array, slot: int, unit: int, verb: str) -> tuple[Storage, Array]:
        """Return a slot's storage and the offsets of addresses in it; AccessError for those outside."""
        if not 1 <= slot <= len(self._space.buffers):
            first = int(addresses.reshape(-1)[0])
            every = np.ones(addresses.shape, np.bool_)
            if slot in (BLOCK_SLOT, IMAGE_SLOT):
                what = "the argument block" if slot == BLOCK_SLOT else "the code object, which is read alone"
                raise AccessError("memory", f"{verb} {what}", every)
            raise AccessError("memory", f"{verb} address {first:#x}, where nothing is allocated", every)
        mapped = self._space.buffers[slot - 1]
        offsets = (addresses - mapped.base).view(np.int64)
        wrong = (offsets < 0) | (offsets + unit > mapped.size)
        if wrong.any():
            first = int(offsets[wrong].reshape(-1)[0])
            what = f"{verb} byte {first} of {mapped.name}, which has {mapped.size} bytes"
            raise AccessError("memory", what, wrong)
        return mapped.storage, offsets

    def _unavailable(self, missing: Unavailable, slot: int) -> AccessError:
        kind = "uninitialised" if missing.kind == "initialisation" else "memory"
        return AccessError(kind, f"{missing.why} {self._space.buffers[slot - 1].name}", missing.wrong)


def _of_all(error: AccessError, shape: tuple[int, ...], chosen: Array | None) -> AccessError:
    """Return an error about some addresses as one about all that were given."""
    if chosen is None:
        return error
    wrong = np.zeros(shape, np.bool_)
    wrong[chosen] = error.wrong
    return AccessError(error.kind, error.why, wrong)
