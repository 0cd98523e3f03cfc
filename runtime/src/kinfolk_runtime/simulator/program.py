"""A kernel prepared for execution: every op becomes a step, a closure over the slots of its operands and results.

Only the declared meanings are read, never an op's name. Regions without a barrier run straight through; the others are
generators that yield the barrier they stand at.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np

from kinfolk.errors import InternalError
from kinfolk.ir.builder import ALLOCATION_ALIGNMENT, workgroup_bytes
from kinfolk.ir.meaning import (
    Control,
    LaneFunction,
    LanePermutation,
    Matrix,
    MemoryAccess,
    ScheduleMarker,
)
from kinfolk.ir.types import BufferType
from kinfolk.ir.value import Kernel, Operation, Region, Value
from kinfolk_runtime.simulator import access, control, lanes, staging, views
from kinfolk_runtime.simulator.products import matrix
from kinfolk_runtime.simulator.sanitizers import ALL, Sanitizer
from kinfolk_runtime.simulator.wave import Stops, Wave
from kinfolk_runtime.simulator.workgroup import Allocation, workgroup_access

Step = Callable[[Wave], None]
Stop = Callable[[Wave], Stops]


class Program:
    """What runs a kernel's waves: `start` is the generator of one, `template` its registers with the constants."""

    def __init__(self, kernel: Kernel, sanitize: frozenset[Sanitizer] = ALL) -> None:
        self.sanitize = sanitize
        self.block, self.wave_size = kernel.block, kernel.wave_size  # the kernel itself is a weak key to its program
        self.template: list[Any] = []
        self.workgroup_bytes = 0
        self._slots: dict[Value, int] = {}
        self._memory: dict[Hashable, int] = {}
        self._allocations: dict[Value, Allocation] = {}
        self._changing: list[set[Value]] = []
        self.parameters = [self._slot(value) for value in kernel.body.arguments]
        self._body = self._region(kernel.body)

    @property
    def allocations(self) -> list[Allocation]:
        """The workgroup memory, ascending."""
        return list(self._allocations.values())

    @property
    def granule(self) -> int:
        """The largest power of two of bytes, at most 4, that every access of workgroup memory takes whole."""
        return min((min(4, one.type.element.bytes) for one in self._allocations.values()), default=4)

    @property
    def memory_slots(self) -> int:
        """How many things a wave remembers."""
        return len(self._memory)

    def start(self, wave: Wave) -> Stops:
        """Run one wave; it yields the barriers it stands at, in order."""
        steps, tail = self._body
        return control.run(steps, tail, wave)

    def _slot(self, value: Value) -> int:
        if value not in self._slots:
            self._slots[value] = len(self.template)
            self.template.append(None)
        return self._slots[value]

    def _remember(self, key: Hashable) -> int:
        return self._memory.setdefault(key, len(self._memory))

    def _region(self, region: Region) -> control.Body:
        """Return a region as runs of plain steps, each followed by a step that may stop."""
        segments: list[tuple[list[Step], Stop]] = []
        plain: list[Step] = []
        for op in region.operations:
            meaning = op.definition.meaning
            if self._changing and not isinstance(meaning, LaneFunction):
                self._changing[-1].update(op.results)
            if isinstance(meaning, Control):
                step, stop = self._control(op, meaning)
                if stop is not None:
                    segments.append((plain, stop))
                    plain = []
                if step is not None:
                    plain.append(step)
            else:
                step = self._step(op)
                if step is not None:
                    plain.append(step)
        return segments, plain

    def _step(self, op: Operation) -> Step | None:
        meaning = op.definition.meaning
        sources = [self._slot(value) for value in op.operands]
        targets = [self._slot(value) for value in op.results]
        match meaning:
            case LaneFunction():
                made = lanes.lane_function(op, meaning, sources, targets[0], self.sanitize)
                if isinstance(made, np.ndarray):
                    self.template[targets[0]] = made
                    return None
                return self._once(op, made, sources, targets[0])
            case LanePermutation():
                return lanes.permutation(op, meaning, sources, targets, self.wave_size)
            case Matrix():
                return matrix(op, meaning, sources, targets[0], self.wave_size, self._remember)
            case MemoryAccess():
                return self._access(op, meaning, sources, targets)
            case ScheduleMarker():
                return lanes.marker(sources, targets) if targets else None
            case Control():
                raise InternalError(f"{op.name} is control")

    def _once(self, op: Operation, step: Step, sources: list[int], target: int) -> Step:
        """Return the step, or one that keeps the result while a loop does not change the operands."""
        if not self._changing or not self._changing[-1].isdisjoint(op.operands):
            if self._changing:
                self._changing[-1].update(op.results)
            return step
        return lanes.kept(step, sources, target, self._remember(("kept", op)))

    def _access(self, op: Operation, meaning: MemoryAccess, sources: list[int], targets: list[int]) -> Step | None:
        match meaning.action:
            case "allocate":
                self._allocate(op)
                return None
            case "offset":
                return access.pointer_offset(op, sources, targets[0])
            case "bound":
                return views.bound(op, sources, targets[0])
            case "wait":
                return staging.wait(op)
            case "stage":
                return staging.stage(op, meaning, sources, self._held(op, op.operands[-2]))
            case _:
                if meaning.space == "global":
                    return access.pointer_access(op, meaning, sources, targets)
                if meaning.space == "view":
                    return views.view_access(op, meaning, sources, targets)
                return workgroup_access(op, meaning, sources, targets, self._held(op, op.operands[0]), self._remember)

    def _held(self, op: Operation, buffer: Value) -> Allocation:
        if buffer not in self._allocations:
            raise InternalError(f"{op.name} at {op.location}: its buffer is not directly an allocation")
        return self._allocations[buffer]

    def _allocate(self, op: Operation) -> None:
        (result,) = op.results
        assert isinstance(result.type, BufferType)
        begin = -(-self.workgroup_bytes // ALLOCATION_ALIGNMENT) * ALLOCATION_ALIGNMENT
        number = len(self._allocations)
        self._allocations[result] = Allocation(f"workgroup allocation {number} ({result.type})", result.type, begin)
        self.workgroup_bytes = begin + result.type.bytes

    def _control(self, op: Operation, meaning: Control) -> tuple[Step | None, Stop | None]:
        sources = [self._slot(value) for value in op.operands]
        targets = [self._slot(value) for value in op.results]
        match meaning.kind:
            case "for":
                (region,) = op.regions
                arguments = [self._slot(value) for value in region.arguments]
                self._changing.append(set(region.arguments))
                body = self._region(region)
                self._changing.pop()
                return control.loop(op, sources, targets, arguments, body, self._yields(region))
            case "if":
                bodies = [self._region(region) for region in op.regions]
                yields = [self._yields(region) for region in op.regions]
                return control.branch(op, sources[0], targets, bodies, yields)
            case "barrier":
                return None, control.barrier(op)
            case "any":
                return control.any_lane(sources[0], targets[0]), None
            case "uniform":
                return control.uniform(op, sources[0], targets[0]), None
            case "yield" | "return":
                return None, None

    def _yields(self, region: Region) -> Sequence[int]:
        return [self._slot(value) for value in region.operations[-1].operands]


__all__ = ["Program", "workgroup_bytes"]
