"""Steps of loads that go from global straight to workgroup memory, and of the wait for them.

A staging reads at once and delivers late: until the wave has waited for it, its place in workgroup memory is in flight,
which nobody may touch (a race), and counts as never written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, cast

import attrs
import numpy as np

from kinfolk.ir.meaning import MemoryAccess
from kinfolk.ir.numpy_lanes import Array
from kinfolk.ir.types import element_type, vector
from kinfolk_runtime.simulator.access import Transfer, on_active, read_pointers
from kinfolk_runtime.simulator.races import Access
from kinfolk_runtime.simulator.views import read_view
from kinfolk_runtime.simulator.wave import Wave
from kinfolk_runtime.simulator.workgroup import Allocation, Workgroup

if TYPE_CHECKING:
    from kinfolk.ir.value import Operation

Step = Callable[[Wave], None]
MOST_PENDING: Final = 1024
"""Stagings that a wave may have on their way; more than any hardware counts, and than its workgroup memory takes."""


@attrs.frozen(eq=False)
class Delivery:
    """What one staging brings: `units` [count, lanes] to the unit numbers `places` of an allocation."""

    op: Operation
    lanes: Array
    allocation: Allocation
    places: Array
    units: Array
    number: int = 0
    """The race sanitizer's number of it."""

    def hide(self, group: Workgroup) -> None:
        """Let the bytes count as never written."""
        _, marks = group.views(self.allocation, self.units.dtype)
        marks[self.places] = 0
        group.hidings += 1

    def fly(self, w: Wave) -> Delivery:
        """Let the bytes be in flight, where anyone looks for races; return the delivery with its number."""
        races = w.group.races
        if races is None:
            return self
        spots = races.spots(self.allocation, self.places, self.units.dtype.itemsize)
        return attrs.evolve(self, number=races.issue(w, Access("store", self.op, w.index, self.lanes, spots)))

    def arrive(self, group: Workgroup) -> None:
        """Write the bytes."""
        if group.races is not None:
            group.races.arrive(self.number)
        data, marks = group.views(self.allocation, self.units.dtype)
        data[self.places] = self.units
        marks[self.places] = np.iinfo(self.units.dtype).max


def stage(op: Operation, meaning: MemoryAccess, sources: Sequence[int], allocation: Allocation) -> Step:
    """Return the step of a staging: each active lane reads its elements, which go behind those of the lanes below."""
    count, extra = op.attributes["count"], op.attributes.get("offset", 0)
    assert isinstance(count, int) and isinstance(extra, int)
    source, element = op.operands[0].type, allocation.type.element
    transfer = Transfer(op, "load", unit_limit=4, data=vector(element_type(source), count))
    words = meaning.space == "view"
    transfer.alignment = transfer.unit.itemsize if words else min(4, transfer.bytes)
    start, size = sources[-1], element_type(source).bytes

    def step(w: Wave) -> None:
        r = w.registers
        if words:
            index = on_active(w, r[sources[1]])
            strict = "memory" in w.group.sanitize
            if strict and ((index.astype(np.int64) * size) % min(4, transfer.bytes)).any():
                w.fail(op, "alignment", "stages from an offset in the view that is no multiple of 4 bytes")
            units = read_view(w, transfer, r[sources[0]], index)
        else:
            units = read_pointers(w, transfer, on_active(w, r[sources[0]]), w.lanes)
        first = w.integer(op, start, "place in workgroup memory") + extra
        elements, lanes = first + w.lanes * count, w.lanes
        wrong = (elements < 0) | (elements + count > allocation.type.count)
        if "memory" not in w.group.sanitize:
            elements, lanes, units = elements[~wrong], lanes[~wrong], units[:, ~wrong]
        elif wrong.any():
            what = f"reaches outside {allocation.name} (element {int(elements[wrong][0])} of {allocation.type.count})"
            w.fail(op, "memory", what, w.lanes[wrong], buffer=allocation.name, element=int(elements[wrong][0]))
        elif (first * element.bytes + allocation.begin) % transfer.bytes:
            what = f"stages to {allocation.name} at a place that is no multiple of {transfer.bytes} bytes"
            w.fail(op, "alignment", what, buffer=allocation.name, element=first)
        if len(w.pending) == MOST_PENDING:
            what = f"is one more than the {MOST_PENDING} stagings a wave may have on their way; wait for some"
            w.fail(op, "sync", what)
        places = elements * element.bytes // transfer.unit.itemsize + _steps(transfer)
        delivery = Delivery(op, lanes, allocation, places, units).fly(w)
        delivery.hide(w.group)
        w.pending.append(delivery)

    return step


def _steps(transfer: Transfer) -> Array:
    return cast("Array", np.arange(transfer.count, dtype=np.int64)[:, None])


def wait(op: Operation) -> Step:
    """Return the step that delivers the wave's oldest stagings, all but the latest `outstanding`."""
    outstanding = op.attributes["outstanding"]
    assert isinstance(outstanding, int)

    def step(w: Wave) -> None:
        while len(w.pending) > outstanding:
            w.pending.pop(0).arrive(w.group)

    return step
