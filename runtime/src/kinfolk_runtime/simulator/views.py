"""Steps of accesses to global memory through bounded views, which keep both their clamp and the true allocation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import attrs
import numpy as np

from kinfolk.errors import InternalError
from kinfolk.ir.meaning import MemoryAccess
from kinfolk.ir.numpy_lanes import Array
from kinfolk.ir.types import element_type
from kinfolk_runtime.simulator.access import Transfer, allowed, exchanged, on_active, verb
from kinfolk_runtime.simulator.space import Mapped
from kinfolk_runtime.simulator.transfers import Inside, fail, fetch, poisoned, put
from kinfolk_runtime.simulator.wave import Wave, poison

if TYPE_CHECKING:
    from kinfolk.ir.value import Operation

Step = Callable[[Wave], None]


@attrs.frozen
class View:
    """The value of a bounded view: where it begins and how many bytes it lets through."""

    base: int
    size: int


def bound(op: Operation, sources: Sequence[int], target: int) -> Step:
    """Return the step that makes a view; base and size are claimed to be equal on all lanes."""
    pointer, count = sources
    size = element_type(op.operands[0].type).bytes

    def step(w: Wave) -> None:
        base = int(w.one(op, pointer, "base")[0, 0])
        extent = w.integer(op, count, "size") * size
        if not 0 <= extent < 1 << 31 or extent % 4:
            w.fail(op, "argument", f"bounds a view to {extent} bytes, a multiple of 4 in [0, 2^31) is needed")
        if base % 4 and "memory" in w.group.sanitize:
            w.fail(op, "alignment", "begins a view at an address that is no multiple of 4 bytes", address=base)
        w.registers[target] = View(base, extent)

    return step


def view_access(op: Operation, meaning: MemoryAccess, sources: Sequence[int], targets: Sequence[int]) -> Step:
    """Return the step of a load or store through a view, with its exchange among lanes where it has one.

    Each 4-byte part of an access is judged alone: outside the view it reads 0 or vanishes, inside it must be allocated.
    """
    if meaning.action not in ("load", "store"):
        raise InternalError(f"{op.name}: a view is read or written, not used for {meaning.action}")
    transfer = Transfer(op, meaning.action, unit_limit=4)
    transfer.alignment = transfer.unit.itemsize
    extra = op.attributes.get("offset", 0)
    assert isinstance(extra, int)

    if meaning.action == "load":
        exchange = meaning.exchange

        def load(w: Wave) -> None:
            view, index = w.registers[sources[0]], w.registers[sources[1]]
            wide = index if w.full else on_active(w, index)
            units = read_view(w, transfer, view, wide, extra)
            if not w.full:
                whole = poison((transfer.count, w.size), transfer.unit)
                whole[:, w.lanes] = units
                units = whole
            loaded = transfer.to_storage(units)
            w.registers[targets[0]] = loaded if exchange is None else exchanged(w, op, exchange, loaded)

        return load

    def store(w: Wave) -> None:
        r = w.registers
        value = on_active(w, transfer.to_units(r[sources[2]]))
        offsets, inside = _placed(w, transfer, on_active(w, r[sources[1]]), r[sources[0]], extra)
        if not inside.any():
            return
        mapped, distance, there = _allocated(w, transfer, r[sources[0]], offsets, inside)
        if mapped is not None:
            put(w, transfer, mapped, w.lanes, distance, there, value)

    return store


def _placed(w: Wave, transfer: Transfer, index: Array, view: View, extra: int) -> tuple[Array, Array]:
    """Return the byte offset of every unit of an access, and whether the 4 bytes it lies in are inside the view."""
    if "integer" in w.group.sanitize:
        _check_index(w, transfer, index.view(np.int32))
    begin = (index.astype(np.int64) + extra) * element_type(transfer.op.operands[0].type).bytes
    inside = begin + (transfer.steps // 4 * 4 + min(4, transfer.bytes)) <= view.size
    return begin + transfer.steps, inside


def _check_index(w: Wave, transfer: Transfer, index: Array) -> None:
    """Raise the fault of an index that a 32-bit byte offset, or one in two parts, takes elsewhere."""
    size = element_type(transfer.op.operands[0].type).bytes
    limit = (1 << 31) // size
    if size > 1 and (int(index.max()) >= limit or int(index.min()) < -limit):
        wrong = (index >= limit) | (index < -limit)
        what = f"{verb(transfer)} a view at an index whose {size}-byte offset does not fit 32 bits"
        w.fail(transfer.op, "integer", what, _lanes(w, wrong))
    added = added_constant(transfer.op)
    if added and int(index.min()) < added:
        wrong = (index >= 0) & (index < added)
        if wrong.any():
            what = (
                f"{verb(transfer)} a view at a sum of {added} and a negative number, which need not be added before the"
            )
            w.fail(transfer.op, "integer", f"{what} index is compared with the size", _lanes(w, wrong))


def _lanes(w: Wave, wrong: Array) -> Array:
    flat = np.atleast_1d(wrong.any(axis=0))
    return w.lanes[flat] if len(flat) == len(w.lanes) else w.lanes


def added_constant(op: Operation) -> int:
    """Return the positive constant that the index of a view access is a sum with, 0 where it is none."""
    add = op.operands[1].defining_op
    if add is None or add.name != "core.add":
        return 0
    constants = [
        made for made in (value.defining_op for value in add.operands) if made and made.name == "core.constant"
    ]
    bits = constants[0].attributes["bits"] if constants else 0
    return bits if isinstance(bits, int) and bits < 1 << 31 else 0


def read_view(w: Wave, transfer: Transfer, view: View, index: Array, extra: int = 0) -> Array:
    """Return the units at element indices [1, n] of a view, 0 outside it."""
    offsets, inside = _placed(w, transfer, index, view, extra)
    if not inside.any():
        return np.zeros(offsets.shape, transfer.unit)
    mapped, distance, there = _allocated(w, transfer, view, offsets, inside)
    if mapped is not None:
        units = fetch(w, transfer, mapped, w.lanes, distance, there)
        if there is inside:
            return units
    else:
        units = np.zeros(offsets.shape, transfer.unit)
    return np.where(inside & ~there, poisoned((1, 1), transfer.unit), units)


def _allocated(
    w: Wave, transfer: Transfer, view: View, offsets: Array, inside: Inside
) -> tuple[Mapped | None, Array, Inside]:
    """Return the buffer of a view, offsets into it, and which units are allocated: those `inside`, or raise the fault.

    Where nobody looks for that, it may be fewer, or no buffer at all.
    """
    mapped = w.group.memory.at(view.base)
    strict = "memory" in w.group.sanitize
    if mapped is None:
        if strict:
            w.fail(transfer.op, "memory", f"{verb(transfer)} a view of an address in no buffer", address=view.base)
        return None, offsets, np.zeros(offsets.shape, np.bool_)
    distance = offsets + (view.base - int(mapped.base))
    wrong = inside & ((distance < 0) | (distance + transfer.unit.itemsize > mapped.size))
    if wrong.any():
        if not strict:
            return (mapped if allowed(w, transfer, mapped) else None), distance, inside & ~wrong
        first = int(distance[wrong].min())
        what = f"{verb(transfer)} {mapped.name} within a view that reaches past the allocation,"
        fail(w, transfer, "memory", what, mapped, first, _lanes(w, wrong))
    if not allowed(w, transfer, mapped):
        return None, distance, np.zeros(offsets.shape, np.bool_)
    if strict and (view.base | int(np.bitwise_or.reduce(offsets, axis=None))) & (transfer.alignment - 1):
        w.fail(transfer.op, "alignment", f"{verb(transfer)} {mapped.name} at an unaligned address", address=view.base)
    return mapped, distance, inside
