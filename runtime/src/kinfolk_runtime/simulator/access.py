"""Steps of accesses to global memory through pointers, and what a checked access is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, cast

import numpy as np

from kinfolk.errors import InternalError
from kinfolk.ir.meaning import MemoryAccess
from kinfolk.ir.numpy_lanes import Array, storage_dtype
from kinfolk.ir.types import DataType, component_count, element_type
from kinfolk_runtime.simulator.races import DOES, Role
from kinfolk_runtime.simulator.space import Addresses, Mapped
from kinfolk_runtime.simulator.transfers import fail, fetch, poisoned, put
from kinfolk_runtime.simulator.wave import Wave, poison

if TYPE_CHECKING:
    from kinfolk.ir.value import Operation

Step = Callable[[Wave], None]


class Transfer:
    """What one op moves per lane: `count` units of dtype `unit`, at consecutive addresses from one that is
    `alignment`-aligned. `extra` are the bytes that the op's own offset adds to a pointer, modulo 2^64.

    Values cross between their storage (bool for i1, 8-byte scalars) and units here.
    """

    def __init__(
        self,
        op: Operation,
        role: Role,
        unit_limit: int = 8,
        data: DataType | None = None,
    ) -> None:
        data = data or cast("DataType", op.results[0].type if role == "load" else op.operands[-1].type)
        self.op = op
        self.role: Role = role
        self.storage = storage_dtype(element_type(data))
        self.components = component_count(data)
        element = element_type(data).bytes
        self.unit = np.dtype(f"u{min(element, unit_limit)}")
        self.count = self.components * element // self.unit.itemsize
        self.bytes = self.components * element
        claimed = op.attributes.get("alignment", 0)
        assert isinstance(claimed, int)
        self.alignment = claimed or element
        offset = op.attributes.get("offset", 0)
        assert isinstance(offset, int)
        self.extra = np.uint64(offset * element % (1 << 64))
        self.steps = (np.arange(self.count, dtype=np.int64) * self.unit.itemsize)[:, None]

    def to_units(self, value: Array) -> Array:
        """Return components as units [count, lanes]."""
        plain = value.view(f"u{value.dtype.itemsize}")
        if plain.dtype == self.unit:
            return plain
        low = plain & np.iinfo(self.unit).max
        return np.stack([low, plain >> 32], axis=1).reshape(self.count, -1).astype(self.unit)

    def to_storage(self, units: Array) -> Array:
        """Return units [count, lanes] as components."""
        if self.storage.itemsize != self.unit.itemsize:
            pairs = units.reshape(self.components, 2, -1).astype(np.uint64)
            return (pairs[:, 0] | pairs[:, 1] << 32).view(self.storage)
        return units != 0 if self.storage == np.bool_ else units.view(self.storage)


def pointer_offset(op: Operation, sources: Sequence[int], target: int) -> Step:
    """Return the step that moves a pointer by a signed index, in 64 bits."""
    pointer, index = sources
    size = np.int64(element_type(op.operands[0].type).bytes)

    def step(w: Wave) -> None:
        r = w.registers
        count: Array = r[index]
        distance = count.view(f"i{count.dtype.itemsize}") * size
        r[target] = r[pointer] + distance.view(np.uint64)

    return step


def pointer_access(op: Operation, meaning: MemoryAccess, sources: Sequence[int], targets: Sequence[int]) -> Step:
    """Return the step of a load, with its exchange among lanes where it has one, a store or an atomic addition through
    a pointer."""
    role = cast("Role", meaning.action)
    transfer = Transfer(op, role)
    if role == "load":
        return _pointer_load(transfer, meaning, sources[0], targets[0])
    if role == "atomic_add":
        check_adds(transfer)
    return _pointer_store(transfer, sources[0], sources[1])


def check_adds(transfer: Transfer) -> None:
    """Raise unless elements of the type can be added in memory: integers, f32 and f64."""
    element = element_type(transfer.op.operands[-1].type)
    if element.bits == 1 or (element.kind == "float" and element.bits < 32):
        raise InternalError(f"{transfer.op.name} adds {element} in memory, which integers, f32 and f64 are for")


def _pointer_load(transfer: Transfer, meaning: MemoryAccess, pointer: int, target: int) -> Step:
    exchange = meaning.exchange

    def step(w: Wave) -> None:
        address: Addresses = w.registers[pointer] + transfer.extra
        if w.full or address.shape[1] == 1:
            units = read_pointers(w, transfer, address, w.lanes)
        else:
            units = poison((transfer.count, w.size), transfer.unit)
            units[:, w.lanes] = read_pointers(w, transfer, address[:, w.lanes], w.lanes)
        loaded = transfer.to_storage(units)
        w.registers[target] = loaded if exchange is None else exchanged(w, transfer.op, exchange, loaded)

    return step


def _pointer_store(transfer: Transfer, pointer: int, source: int) -> Step:
    def step(w: Wave) -> None:
        r = w.registers
        address: Addresses = r[pointer] + transfer.extra
        value = transfer.to_units(r[source]) if transfer.role == "store" else r[source]
        if transfer.role == "atomic_add" or max(address.shape[1], value.shape[1]) != 1:
            address, value = on_active(w, address), on_active(w, value)
        for mapped, lanes, offsets in _targets(w, transfer, address):
            chosen = value if lanes is None or value.shape[1] == 1 else value[:, lanes]
            put(w, transfer, mapped, _concerned(w.lanes, lanes), offsets, np.ones(offsets.shape, np.bool_), chosen)

    return step


def on_active(w: Wave, value: Array) -> Array:
    """Return a value on the active lanes alone."""
    if value.shape[1] == 1:
        return value.repeat(len(w.lanes), axis=1)
    return value if w.full else value[:, w.lanes]


def read_pointers(w: Wave, transfer: Transfer, address: Addresses, lanes: Array) -> Array:
    """Return the units at addresses [1, n], which stand for `lanes`."""
    result: Array | None = None
    for mapped, part, offsets in _targets(w, transfer, address):
        everywhere = np.ones(offsets.shape, np.bool_)
        units = fetch(w, transfer, mapped, _concerned(lanes, part), offsets, everywhere)
        if part is None:
            return units
        if result is None:
            result = poisoned((transfer.count, address.shape[1]), transfer.unit)
        result[:, part] = units
    return poisoned((transfer.count, address.shape[1]), transfer.unit) if result is None else result


def _concerned(lanes: Array, columns: Array | None) -> Array:
    """Return the lanes of some columns of an address that has one for each lane, or one for all."""
    return lanes if columns is None or len(lanes) > len(columns) == 1 else lanes[columns]


_Targets = list[tuple[Mapped, "Array | None", Array]]


def _targets(w: Wave, transfer: Transfer, address: Addresses) -> _Targets:
    """Return, per buffer that is accessed, the columns of `address` that mean it and their byte offsets, all checked.

    Columns are None where one buffer takes them all. Where nobody looks for faults of memory, what is outside is left
    out.
    """
    mapped = w.group.memory.at(address[0, 0])
    if mapped is not None:
        offset = address - mapped.base
        past = int(np.maximum.reduce(offset, axis=None)) + transfer.bytes > mapped.size
        unaligned = int(np.bitwise_or.reduce(address, axis=None)) & (transfer.alignment - 1)
        if not past and not unaligned and allowed(w, transfer, mapped):
            return [(mapped, None, offset.view(np.int64) + transfer.steps)]
    numbers = [w.group.memory.at(one) for one in address[0]]
    result: _Targets = []
    for one in dict.fromkeys(numbers):
        columns = np.array([index for index, found in enumerate(numbers) if found is one])
        if "memory" in w.group.sanitize:
            offsets = _checked(w, transfer, one, address[:, columns], columns)
        elif one is None or not allowed(w, transfer, one):
            continue
        else:
            fits = [0 <= int(address[0, column]) - int(one.base) <= one.size - transfer.bytes for column in columns]
            columns = columns[fits]
            offsets = (address[:, columns] - one.base).view(np.int64) + transfer.steps
        if len(columns):
            result.append((cast("Mapped", one), columns, offsets))
    return result


def _checked(w: Wave, transfer: Transfer, mapped: Mapped | None, address: Addresses, columns: Array) -> Array:
    """Return byte offsets of addresses into one buffer, or raise the fault of the first wrong one."""
    lanes = _concerned(w.lanes, columns)
    if mapped is None:
        w.fail(transfer.op, "memory", f"{verb(transfer)} an address in no buffer", lanes, address=int(address[0, 0]))
    distance = [int(one) - int(mapped.base) for one in address[0]]
    wrong = np.array([not 0 <= one <= mapped.size - transfer.bytes for one in distance])
    if wrong.any():
        _outside(
            w, transfer, mapped, distance[int(np.argmax(wrong))], lanes[wrong] if len(lanes) == len(wrong) else lanes
        )
    unaligned = (address[0] & np.uint64(transfer.alignment - 1)) != 0
    if unaligned.any():
        first = distance[int(np.argmax(unaligned))]
        what = f"{verb(transfer)} {mapped.name} at an address that is no multiple of {transfer.alignment} bytes"
        fail(w, transfer, "alignment", what, mapped, first, lanes[unaligned] if len(lanes) == len(unaligned) else lanes)
    allowed(w, transfer, mapped)
    return (address - mapped.base).view(np.int64) + transfer.steps


def allowed(w: Wave, transfer: Transfer, mapped: Mapped) -> bool:
    """Raise unless the parameter is declared for what the op does; or say so, where nobody looks for it.

    Reading what is declared for writing only harms nobody.
    """
    access = mapped.parameter.access
    if not ((transfer.role != "store" and access == "write") or (transfer.role != "load" and access == "read")):
        return True
    if "memory" in w.group.sanitize:
        _refuse(w, transfer, mapped)
    return access != "read"


def _refuse(w: Wave, transfer: Transfer, mapped: Mapped) -> NoReturn:
    access = mapped.parameter.access
    declared = "writing" if access == "write" else "reading"
    w.fail(
        transfer.op,
        "permission",
        f"{verb(transfer)} {mapped.name}, a parameter declared for {declared} only",
        buffer=mapped.name,
    )


def verb(transfer: Transfer) -> str:
    """Return what an op does to memory, in words."""
    return DOES[transfer.role]


def _outside(w: Wave, transfer: Transfer, mapped: Mapped, distance: int, lanes: Array) -> NoReturn:
    if distance < 0:
        what = f"{min(-distance, transfer.bytes)} bytes before the start of"
    else:
        what = f"{min(distance + transfer.bytes - mapped.size, transfer.bytes)} bytes past the end of"
    fail(w, transfer, "memory", f"{verb(transfer)} {what} {mapped.name}", mapped, distance, lanes)


def exchanged(w: Wave, op: Operation, exchange: Any, loaded: Array) -> Array:
    """Return loaded components [count, lanes] where an op hands them; an inactive lane can hand over nothing."""
    component, lane = np.indices((len(loaded), w.size))
    lanes, components = exchange(w.size, lane, component)
    full = loaded if loaded.shape[1] != 1 else loaded.repeat(w.size, axis=1)
    if not w.full:
        missing = ~w.mask[lanes].all(axis=0) & w.mask
        if missing.any():
            w.fail(op, "lane", "takes elements that an inactive lane loads", np.flatnonzero(missing))
    return full[components, lanes]
