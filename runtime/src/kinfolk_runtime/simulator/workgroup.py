"""A workgroup while it runs, and the steps of its memory: bytes are marked once written, reading others is a fault."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

import attrs
import numpy as np
import numpy.typing as npt

from kinfolk.errors import InternalError
from kinfolk.ir.meaning import MemoryAccess
from kinfolk.ir.numpy_lanes import Array
from kinfolk.ir.types import BufferType
from kinfolk_runtime.simulator.access import Transfer, check_adds, exchanged
from kinfolk_runtime.simulator.fault import Party
from kinfolk_runtime.simulator.races import Access, Races, Role
from kinfolk_runtime.simulator.space import AddressSpace
from kinfolk_runtime.simulator.traffic import Traffic
from kinfolk_runtime.simulator.transfers import POISON, Inside, Probe, poisoned, settled
from kinfolk_runtime.simulator.wave import Wave, poison

if TYPE_CHECKING:
    from kinfolk.ir.value import Operation
    from kinfolk_runtime.simulator.program import Program

Step = Callable[[Wave], None]


@attrs.frozen
class Allocation:
    """Workgroup memory of `type`, from byte `begin` on; `name` says which allocation of the kernel it is."""

    name: str
    type: BufferType
    begin: int


class Workgroup:
    """What the waves of one workgroup share.

    `number` is its place in the grid as one number. `hidings` counts how often bytes ceased to count as written,
    `back_edges` the rounds that loops began after their first since the waves last met, `rounds` all of them, of which
    there may be `round_limit`.
    """

    def __init__(
        self,
        program: Program,
        kernel: str,
        place: tuple[int, int, int],
        number: int,
        memory: AddressSpace,
        traffic: Traffic | None = None,
        probe: Probe | None = None,
        round_limit: int | None = None,
    ) -> None:
        self.kernel = kernel
        self.place = place
        self.number = number
        self.memory = memory
        self.traffic = traffic
        self.probe = probe
        self.back_edges = 0
        self.rounds, self.round_limit = 0, round_limit
        self.sanitize = program.sanitize
        self.data = np.full(program.workgroup_bytes, POISON, np.uint8)
        self.marks = np.zeros(program.workgroup_bytes, np.uint8)
        self.hidings = 0
        self.races: Races | None = None
        if "race" in program.sanitize and program.allocations:
            self.races = Races(program.workgroup_bytes, program.granule, program.block // program.wave_size)
        self._allocations = program.allocations
        self._views: dict[tuple[int, np.dtype[Any]], tuple[Array, Array]] = {}

    def views(self, allocation: Allocation, unit: np.dtype[Any]) -> tuple[Array, Array]:
        """Return an allocation's data and marks as units; a marked unit has every bit set."""
        key = (allocation.begin, unit)
        if key not in self._views:
            span = slice(allocation.begin, allocation.begin + allocation.type.bytes // unit.itemsize * unit.itemsize)
            self._views[key] = self.data[span].view(unit), self.marks[span].view(unit)
        return self._views[key]

    def element_at(self, byte: int) -> tuple[str, int]:
        """Return the name of the allocation that a byte lies in, and the element there."""
        holder = max((one for one in self._allocations if one.begin <= byte), key=lambda one: one.begin)
        return holder.name, (byte - holder.begin) // holder.type.element.bytes


def workgroup_access(
    op: Operation,
    meaning: MemoryAccess,
    sources: Sequence[int],
    targets: Sequence[int],
    allocation: Allocation,
    remember: Callable[[Any], int],
) -> Step:
    """Return the step of a load, a store or an atomic addition in workgroup memory."""
    if meaning.action not in ("load", "store", "atomic_add"):
        raise InternalError(f"{op.name}: workgroup memory is not used for {meaning.action}")
    access = _Access(op, meaning, sources[1], allocation, remember)
    if meaning.action == "load":
        return access.load(targets[0])
    if meaning.action == "store":
        return access.store(sources[2])
    return access.add(sources[2])


class _Access:
    """One op's access; where its index is the same array as last time in this wave, so are its unit numbers.

    What was found written once need not be asked again, unless some bytes have ceased to count as written since.
    """

    def __init__(
        self, op: Operation, meaning: MemoryAccess, index: int, allocation: Allocation, remember: Callable[[Any], int]
    ) -> None:
        self.op = op
        self.transfer = Transfer(op, cast("Role", meaning.action))
        self.allocation = allocation
        self.index = index
        self.exchange = meaning.exchange
        self.unit_bytes = self.transfer.unit.itemsize
        self.marked = int(np.iinfo(self.transfer.unit).max)
        element = allocation.type.element.bytes
        self.element = element
        self.units_per_element = element // self.transfer.unit.itemsize
        extra = op.attributes.get("offset", 0)
        assert isinstance(extra, int)
        self.extra = extra
        self.elements = self.transfer.bytes // element
        self.kept = remember(("units", op))
        alignment = self.transfer.alignment
        self.alignment = alignment if alignment > element else 0
        self.steps = np.arange(self.transfer.count, dtype=np.int64)[:, None]

    def watch(self, w: Wave, numbers: Array, lanes: Array) -> None:
        """Tell the race sanitizer of an access; what is the same as last time in an epoch is known already."""
        races = w.group.races
        if races is None:
            return
        known: list[Any] | None = w.memory[self.kept]
        kept = known if known is not None and known[1] is numbers else None
        access: Access | None = kept[3] if kept is not None else None
        if access is None or access.lanes is not lanes:
            spots = access.spots if access is not None else races.spots(self.allocation, numbers, self.unit_bytes)
            access = Access(self.transfer.role, self.op, w.index, lanes, spots)
            if kept is not None:
                kept[3] = access
        races.touch(w, access)
        if kept is None or kept[4] != races.epoch:
            races.note(access)
            if kept is not None:
                kept[4] = races.epoch

    def units(self, w: Wave) -> tuple[Array, Array, Inside | None]:
        """Return the unit numbers [count, lanes or 1] of an access that is in bounds and aligned, or raise; the lanes
        they are of; which of the active lanes that are, None for all. It may be fewer where nobody looks for faults of
        memory.
        """
        index: Array = w.registers[self.index]
        if not w.full and index.shape[1] != 1:
            return self._numbers(w, index[:, w.lanes])
        known = w.memory[self.kept]
        if known is not None and known[0] is index:
            return known[1], w.lanes, None
        numbers, lanes, there = self._numbers(w, index)
        w.memory[self.kept] = None if there is not None else [index, numbers, -1, None, -1]
        return numbers, lanes, there

    def _numbers(self, w: Wave, index: Array) -> tuple[Array, Array, Inside | None]:
        first = index.view(np.int32).astype(np.int64)
        if self.extra:
            first = first + self.extra
        lanes, there, strict = w.lanes, None, "memory" in w.group.sanitize
        count = self.allocation.type.count
        low, high = int(np.minimum.reduce(first, axis=None)), int(np.maximum.reduce(first, axis=None))
        if low < 0 or high > count - self.elements:
            wrong = (first[0] < 0) | (first[0] > count - self.elements)
            if strict:
                self._fail(w, "memory", f"reaches outside {self.allocation.name}", first, wrong)
            there = ~wrong
            first, lanes = first[:, there], lanes[there] if len(there) == len(lanes) else lanes
        if self.alignment and strict:
            address = first * self.element + self.allocation.begin
            if int(np.bitwise_or.reduce(address, axis=None)) & (self.alignment - 1):
                wrong = (address[0] & (self.alignment - 1)) != 0
                what = f"accesses {self.allocation.name} at an address that is no multiple of {self.alignment} bytes"
                self._fail(w, "alignment", what, first, wrong)
        return (first * self.units_per_element if self.units_per_element != 1 else first) + self.steps, lanes, there

    def _fail(
        self, w: Wave, kind: Any, what: str, first: Array, wrong: npt.NDArray[np.bool_], lanes: Array | None = None
    ) -> None:
        element = int(first[0][wrong][0])
        concerned = w.lanes if lanes is None else lanes
        concerned = concerned[wrong] if len(wrong) == len(concerned) else concerned
        w.fail(
            self.op,
            kind,
            f"{what} (element {element} and the {self.elements - 1} after it, of {self.allocation.type.count})"
            if self.elements > 1
            else f"{what} (element {element} of {self.allocation.type.count})",
            concerned,
            address=self.allocation.begin + element * self.element,
            buffer=self.allocation.name,
            element=element,
        )

    def _check_written(self, w: Wave, marks: Array, numbers: Array, lanes: Array) -> None:
        if "initialisation" not in w.group.sanitize:
            return
        known: list[Any] | None = w.memory[self.kept]
        kept = known if known is not None and known[1] is numbers else None
        if kept is not None and kept[2] == w.group.hidings:
            return
        found = marks.take(numbers)
        if int(np.bitwise_and.reduce(found, axis=None)) != self.marked:
            wrong = found != self.marked
            element = numbers.min(axis=0, where=wrong, initial=1 << 62)[None, :] // self.units_per_element
            what = f"reads what no wave has written of {self.allocation.name}"
            self._fail(w, "initialisation", what, element, wrong.any(axis=0), lanes)
        if kept is not None:
            kept[2] = w.group.hidings

    def _check_kept(self, w: Wave, data: Array, numbers: Array, value: Array, lanes: Array) -> None:
        """Raise where a lane finds another value than the one it stored."""
        lost = data.take(numbers) != value
        if not lost.any():
            return
        unit = int(numbers[lost].min())
        element = unit // self.units_per_element
        losers, winners = (
            [int(lane) for lane in lanes[((numbers == unit) & which).any(axis=0)]] for which in (lost, ~lost)
        )
        w.fail(
            self.op,
            "race",
            f"writes different values to element {element} of {self.allocation.name} from several lanes",
            losers,
            address=self.allocation.begin + element * self.element,
            buffer=self.allocation.name,
            element=element,
            other=Party(self.op.name, str(self.op.location), w.group.place, w.index, tuple(winners)),
        )

    def _given(self, w: Wave, value: Array, there: Inside | None) -> Array:
        """Return the value on the lanes that have a place."""
        if value.shape[1] == 1:
            return value
        active = value if w.full else value[:, w.lanes]
        return active if there is None or len(there) != active.shape[1] else active[:, there]

    def load(self, target: int) -> Step:
        """Return the step of a load."""
        transfer = self.transfer

        def step(w: Wave) -> None:
            numbers, lanes, there = self.units(w)
            data, marks = w.group.views(self.allocation, transfer.unit)
            if numbers.size:
                self.watch(w, numbers, lanes)
                self._check_written(w, marks, numbers, lanes)
            units = data.take(numbers)
            if there is not None:
                part = units
                units = poisoned((transfer.count, len(there)), transfer.unit)
                units[:, there] = part
            if not w.full and units.shape[1] != 1:
                whole = poison((transfer.count, w.size), transfer.unit)
                whole[:, w.lanes] = units
                units = whole
            loaded = transfer.to_storage(units)
            w.registers[target] = loaded if self.exchange is None else exchanged(w, self.op, self.exchange, loaded)

        return step

    def store(self, source: int) -> Step:
        """Return the step of a store; of two lanes that write one element the higher one's value stays, a race unless
        they are equal.
        """
        transfer = self.transfer

        def step(w: Wave) -> None:
            numbers, lanes, there = self.units(w)
            if not numbers.size:
                return
            data, marks = w.group.views(self.allocation, transfer.unit)
            self.watch(w, numbers, lanes)
            value = self._given(w, transfer.to_units(w.registers[source]), there)
            if numbers.shape[1] < value.shape[1]:
                numbers = numbers.repeat(value.shape[1], axis=1)
            data[numbers] = value if "race" in w.group.sanitize else settled(numbers, value)
            marks[numbers] = self.marked
            if w.group.races is not None:
                self._check_kept(w, data, numbers, value, lanes)

        return step

    def add(self, source: int) -> Step:
        """Return the step of an atomic addition, lane after lane."""
        transfer = self.transfer
        check_adds(transfer)

        def step(w: Wave) -> None:
            numbers, lanes, there = self.units(w)
            if not numbers.size:
                return
            data, marks = w.group.views(self.allocation, transfer.unit)
            self.watch(w, numbers, lanes)
            self._check_written(w, marks, numbers, lanes)
            value = self._given(w, w.registers[source], there)
            shape = (transfer.count, len(lanes))
            np.add.at(data.view(transfer.storage), np.broadcast_to(numbers, shape), np.broadcast_to(value, shape))

        return step
