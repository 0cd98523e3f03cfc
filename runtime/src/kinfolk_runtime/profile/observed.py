"""The reference engine with an observer: each step of a kernel is wrapped once, when the kernel is prepared.

A run that is not observed prepares the plain steps and knows nothing of this.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

import attrs
import numpy as np
import numpy.typing as npt

from kinfolk.banks import BankAction, BankCost, BankModel
from kinfolk.ir.meaning import Control, MemoryAccess
from kinfolk.ir.numpy_lanes import Array
from kinfolk.ir.types import DataType, PointerType, element_type, vector
from kinfolk_runtime.profile.counts import SEGMENTS, Counts, Index, Instruction, Segments, Touched, WorkgroupAccess
from kinfolk_runtime.simulator.access import Transfer, on_active
from kinfolk_runtime.simulator.engine import Simulator
from kinfolk_runtime.simulator.program import Program, Step, Stop
from kinfolk_runtime.simulator.space import SLOT_BITS
from kinfolk_runtime.simulator.wave import Stops, Wave
from kinfolk_runtime.simulator.workgroup import Allocation

if TYPE_CHECKING:
    from kinfolk.ir.value import Kernel, Operation
    from kinfolk_runtime.simulator.sanitizers import Sanitizer

Observe = Callable[[Wave], None]
Judged = tuple[int, WorkgroupAccess, "BankCost | None"]
"""The distinct bytes of an access to workgroup memory, the access, and its cost."""


class CountingSimulator(Simulator):
    """The reference engine, which counts what every launch does; of a large grid at most `most` workgroups are run.

    Those are spread evenly over the grid; None runs them all.
    """

    def __init__(self, counts: Counts, most: int | None = None) -> None:
        super().__init__(engine="reference")
        self._counts = counts
        self._most = most

    def places(self, count: int) -> npt.NDArray[np.int64]:
        """Return the workgroups that are run."""
        return sampled(count, self._most)

    def _program(self, kernel: Kernel) -> Program:
        if kernel not in self._programs:
            self._programs[kernel] = ObservedProgram(kernel, self.sanitize, self._counts)
        return self._programs[kernel]


def sampled(count: int, most: int | None) -> npt.NDArray[np.int64]:
    """Return at most `most` numbers below `count`, spread evenly, the first among them."""
    if most is None or count <= most:
        return np.arange(count, dtype=np.int64)
    return np.arange(most, dtype=np.int64) * count // most


class ObservedProgram(Program):
    """A prepared kernel whose steps count into `counts`."""

    def __init__(self, kernel: Kernel, sanitize: frozenset[Sanitizer], counts: Counts) -> None:
        self._counts = counts
        super().__init__(kernel, sanitize)

    def _step(self, op: Operation) -> Step | None:
        step = super()._step(op)
        if step is None:
            return None
        count = _executions(self._counts.instruction(op))
        access = self._observed_access(op)

        def observed(w: Wave) -> None:
            step(w)
            count(w)
            if access is not None:
                access(w)

        return observed

    def _control(self, op: Operation, meaning: Control) -> tuple[Step | None, Stop | None]:
        step, stop = super()._control(op, meaning)
        instruction = self._counts.instruction(op)
        count = _executions(instruction)
        branch = _both_ways(instruction, self._slot(op.operands[0])) if meaning.kind == "if" else None

        def before(w: Wave) -> None:
            count(w)
            if branch is not None:
                branch(w)

        def observed_step(w: Wave) -> None:
            before(w)
            assert step is not None
            step(w)

        def observed_stop(w: Wave) -> Stops:
            before(w)
            assert stop is not None
            yield from stop(w)

        return observed_step if step else None, observed_stop if stop else None

    def _observed_access(self, op: Operation) -> Observe | None:
        meaning = op.definition.meaning
        if not isinstance(meaning, MemoryAccess) or meaning.action not in ("load", "store", "atomic_add", "stage"):
            return None
        instruction = self._counts.instruction(op)
        sources = [self._slot(value) for value in op.operands]
        if meaning.action == "stage":
            taken = _GlobalAccess.staged(op, meaning, instruction, sources, self._counts)
            given = _BankedAccess.staged(op, instruction, sources, self._held(op, op.operands[-2]), self._counts.banks)

            def stage(w: Wave) -> None:
                taken(w)
                given(w)

            return stage
        if meaning.space == "workgroup":
            held = self._held(op, op.operands[0])
            return _BankedAccess.of(op, meaning, instruction, sources, held, self._counts.banks)
        return _GlobalAccess.of(op, meaning, instruction, sources, self._counts)


def _executions(instruction: Instruction) -> Observe:
    def count(w: Wave) -> None:
        instruction.executions += 1
        instruction.active += len(w.lanes)
        instruction.lanes += w.size

    return count


def _both_ways(instruction: Instruction, condition: int) -> Observe:
    def count(w: Wave) -> None:
        asked: Array = w.registers[condition]
        taken = int(np.count_nonzero(w.mask & asked[0]))
        instruction.both_ways += 0 < taken < len(w.lanes)

    return count


@attrs.frozen(eq=False, kw_only=True)
class _GlobalAccess:
    """Counts the bytes and segments of one op's accesses to global memory, of the active lanes and inside views."""

    transfer: Transfer
    is_view: bool
    reads: bool
    writes: bool
    address: int
    index: int
    extra: int
    element: int
    instruction: Instruction
    counts: Counts
    known: dict[bytes, tuple[Segments, ...]] = attrs.field(factory=dict[bytes, tuple[Segments, ...]])

    @classmethod
    def of(
        cls, op: Operation, meaning: MemoryAccess, instruction: Instruction, sources: Sequence[int], counts: Counts
    ) -> _GlobalAccess:
        """Return what observes a load, a store or an atomic addition."""
        view = meaning.space == "view"
        return cls(
            transfer=Transfer(op, cast("Any", meaning.action), unit_limit=4 if view else 8),
            is_view=view,
            reads=meaning.action != "store",
            writes=meaning.action != "load",
            address=sources[0],
            index=sources[1] if view else -1,
            extra=_offset(op),
            element=element_type(op.operands[0].type).bytes,
            instruction=instruction,
            counts=counts,
        )

    @classmethod
    def staged(
        cls, op: Operation, meaning: MemoryAccess, instruction: Instruction, sources: Sequence[int], counts: Counts
    ) -> _GlobalAccess:
        """Return what observes the source of a staging; its offset is one in workgroup memory."""
        source = op.operands[0].type
        return cls(
            transfer=Transfer(op, "load", unit_limit=4, data=_staged_data(op)),
            is_view=not isinstance(source, PointerType),
            reads=True,
            writes=False,
            address=sources[0],
            index=sources[1],
            extra=0,
            element=element_type(source).bytes,
            instruction=instruction,
            counts=counts,
        )

    def __call__(self, w: Wave) -> None:
        addresses: Index = np.unique(self._addresses(w))
        if not addresses.size:
            return
        slots = addresses >> SLOT_BITS
        found = tuple(Segments(size=size) for size in SEGMENTS)
        for number in (slots[:1] if slots[0] == slots[-1] else np.unique(slots)).tolist():
            mapped = w.group.memory.at(number << SLOT_BITS)
            assert mapped is not None  # the step would have failed
            offsets = addresses[slots == number] - int(mapped.base)
            for each, other in zip(found, self._segments(offsets), strict=True):
                each.add(other)
            unit = self.transfer.unit.itemsize
            if self.reads:
                self.counts.read.setdefault(mapped.name, Touched()).mark(offsets, unit)
                self.instruction.global_read += offsets.size * unit
            if self.writes:
                self.counts.written.setdefault(mapped.name, Touched()).mark(offsets, unit)
                self.instruction.global_written += offsets.size * unit
        self.instruction.count_segments(found)

    def _segments(self, offsets: Index) -> tuple[Segments, ...]:
        """Return the segments of units at offsets in a buffer, which begins at a multiple of any segment."""
        key = (offsets - int(offsets[0]) // SEGMENTS[-1] * SEGMENTS[-1]).tobytes()
        if key not in self.known:
            size = offsets.size * self.transfer.unit.itemsize
            self.known[key] = tuple(
                Segments(size=each, touched=np.unique(offsets // each).size, fewest=-(-size // each))
                for each in SEGMENTS
            )
        return self.known[key]

    def _addresses(self, w: Wave) -> Index:
        """Return the addresses of the units that the access moves."""
        r, transfer = w.registers, self.transfer
        if not self.is_view:
            return on_active(w, r[self.address]).astype(np.int64) + transfer.steps
        view = r[self.address]
        begin = (on_active(w, r[self.index]).astype(np.int64) + self.extra) * self.element
        inside = begin + (transfer.steps // 4 * 4 + min(4, transfer.bytes)) <= view.size
        return view.base + (begin + transfer.steps)[inside]


_ACTIONS: dict[str, BankAction] = {"load": "read", "store": "write", "atomic_add": "atomic_add"}


@attrs.frozen(eq=False, kw_only=True)
class _BankedAccess:
    """Counts the bytes and bank cycles of one op's accesses to workgroup memory."""

    action: BankAction
    index: int
    extra: int
    element: int
    lane_bytes: int
    alignment: int
    allocation: Allocation
    instruction: Instruction
    model: BankModel | None
    known: dict[bytes, Judged] = attrs.field(factory=dict[bytes, "Judged"])

    @classmethod
    def of(
        cls,
        op: Operation,
        meaning: MemoryAccess,
        instruction: Instruction,
        sources: Sequence[int],
        allocation: Allocation,
        model: BankModel | None,
    ) -> _BankedAccess:
        """Return what observes a load, a store or an atomic addition."""
        transfer = Transfer(op, cast("Any", meaning.action))
        return cls(
            action="transpose_read" if meaning.exchange is not None else _ACTIONS[meaning.action],
            index=sources[1],
            extra=_offset(op),
            element=allocation.type.element.bytes,
            lane_bytes=transfer.bytes,
            alignment=transfer.alignment,
            allocation=allocation,
            instruction=instruction,
            model=model,
        )

    @classmethod
    def staged(
        cls,
        op: Operation,
        instruction: Instruction,
        sources: Sequence[int],
        allocation: Allocation,
        model: BankModel | None,
    ) -> _BankedAccess:
        """Return what observes where a staging goes: lane after lane, from one place on."""
        size = Transfer(op, "load", unit_limit=4, data=_staged_data(op)).bytes
        return cls(
            action="stage",
            index=sources[-1],
            extra=_offset(op),
            element=allocation.type.element.bytes,
            lane_bytes=size,
            alignment=size,
            allocation=allocation,
            instruction=instruction,
            model=model,
        )

    def __call__(self, w: Wave) -> None:
        index = on_active(w, w.registers[self.index])
        key = index.tobytes() if w.full else index.tobytes() + w.mask.tobytes()
        if key not in self.known:
            self.known[key] = self._judged(index, w.lanes)
        size, access, cost = self.known[key]
        if self.action not in ("write", "stage"):
            self.instruction.workgroup_read += size
        if self.action in ("write", "stage", "atomic_add"):
            self.instruction.workgroup_written += size
        if cost is not None:
            self.instruction.count_banks(access, cost)

    def _judged(self, index: Array, lanes: Index) -> Judged:
        """Return the distinct bytes of an access, the access, and its cost."""
        first = index.view(np.int32).astype(np.int64)[0] + self.extra
        addresses = first * self.element + self.allocation.begin
        if self.action == "stage":
            addresses = addresses + lanes * self.lane_bytes
        access = WorkgroupAccess(self.action, self.lane_bytes, self.alignment, addresses, lanes)
        touched = np.unique(addresses[:, None] + np.arange(0, self.lane_bytes, self.element)).size * self.element
        if self.model is None:
            return touched, access, None
        return touched, access, self.model.access_cost(self.action, self.lane_bytes, self.alignment, addresses, lanes)


def _offset(op: Operation) -> int:
    extra = op.attributes.get("offset", 0)
    assert isinstance(extra, int)
    return extra


def _staged_data(op: Operation) -> DataType:
    count = op.attributes["count"]
    assert isinstance(count, int)
    return vector(element_type(op.operands[0].type), count)
