"""How far values are the same: for the whole workgroup, for each wave, or lane by lane."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import IntEnum

from kinfolk.ir.meaning import Control, LaneFunction, LanePermutation, Matrix, MemoryAccess, ScheduleMarker
from kinfolk.ir.types import PointerType
from kinfolk.ir.value import Kernel, Operation, Region, Value


class Level(IntEnum):
    """Who has the same value: all lanes of the workgroup, all of a wave, or nobody is known to."""

    WORKGROUP = 0
    WAVE = 1
    LANE = 2


class Uniformity:
    """The level of each value, and of the control flow around each op: of the conditions and bounds it runs under."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._levels: dict[Value, Level] = {}
        self._around: dict[Operation, tuple[Operation, ...]] = {}
        self._written = {
            value
            for parameter, value in zip(kernel.parameters, kernel.body.arguments, strict=True)
            if isinstance(parameter.type, PointerType) and parameter.access != "read"
        }

    def __getitem__(self, value: Value) -> Level:
        return self._levels.get(value, Level.WORKGROUP)

    def around(self, op: Operation) -> Iterator[tuple[Operation, Level]]:
        """Yield the branches and loops around an op, innermost first, with the level of what decides them."""
        for control in reversed(self._around.get(op, ())):
            yield control, self._control(control)

    def settle(self) -> None:
        """Find all levels: what a loop carries is taken to be uniform until it is seen not to be."""
        while self._region(self._kernel.body, (), Level.WORKGROUP):
            pass

    def _control(self, op: Operation) -> Level:
        return self._most(op.operands[:3] if is_control(op, "for") else op.operands[:1])

    def _most(self, values: Iterable[Value]) -> Level:
        return max((self[value] for value in values), default=Level.WORKGROUP)

    def _raise(self, value: Value, level: Level) -> bool:
        if level <= self[value]:
            return False
        self._levels[value] = level
        return True

    def _region(self, region: Region, around: tuple[Operation, ...], under: Level) -> bool:
        """Raise the levels of a region's values once; return whether one that was used before has changed."""
        changed = False
        for op in region.operations:
            self._around[op] = around
            if op.regions:
                inner = max(under, self._control(op))
                for each in op.regions:
                    changed |= self._region(each, (*around, op), inner)
                changed |= self._for(op) if is_control(op, "for") else self._if(op)
                continue
            level = self._level(op)
            for result in op.results:
                self._raise(result, level)
        return changed

    def _for(self, loop: Operation) -> bool:
        (region,) = loop.regions
        bounds, last = self._control(loop), region.operations[-1]
        changed = self._raise(region.arguments[0], bounds)
        triples = zip(region.arguments[1:], loop.operands[3:], last.operands, loop.results, strict=True)
        for argument, first, following, result in triples:
            level = self._most((first, following))
            changed |= self._raise(argument, level)
            self._raise(result, max(level, bounds))
        return changed

    def _if(self, branch: Operation) -> bool:
        condition = self[branch.operands[0]]
        for index, result in enumerate(branch.results):
            yielded = [region.operations[-1].operands[index] for region in branch.regions]
            same = yielded[0] is yielded[1]
            self._raise(result, max(self._most(yielded), Level.WORKGROUP if same else condition))
        return False

    def _level(self, op: Operation) -> Level:
        """Return the level of an op's results, from its meaning and what the op claims of itself."""
        meaning, operands = op.definition.meaning, self._most(op.operands)
        match meaning:
            case ScheduleMarker() if op.attributes.get("uniform"):
                return min(operands, Level.WAVE)
            case ScheduleMarker():
                return operands
            case Control(kind="any" | "uniform"):
                return min(operands, Level.WAVE)
            case MemoryAccess(action="load", exchange=None):
                return max(operands, Level.WAVE) if self._may_change(op.operands[0]) else operands
            case MemoryAccess(action="load"):
                return Level.LANE
            case Matrix():
                return Level.LANE
            case LanePermutation():  # whoever has equal values may exchange them
                return Level.WAVE if op.definition.uniform and operands is Level.LANE else operands
            case LaneFunction() if not op.operands:
                return _own_level(op)
            case _:
                return min(operands, Level.WAVE) if op.definition.uniform else operands

    def _may_change(self, address: Value) -> bool:
        """Whether the kernel may write what an address points to, so that waves may read different values there."""
        while (made := address.defining_op) is not None and isinstance(made.definition.meaning, MemoryAccess):
            if made.definition.meaning.action == "allocate":
                return False  # between two barriers nothing read is written: the race sanitizer holds kernels to it
            address = made.operands[0]
        return address in self._written or address.owner is not self._kernel.body


def _own_level(op: Operation) -> Level:
    """Return the level of what an op says without operands: constants and the workgroup's place, waves, lanes."""
    if op.definition.uniform is False:
        return Level.LANE
    if op.name in ("core.constant", "core.block_id"):
        return Level.WORKGROUP
    return Level.WAVE if op.definition.uniform else Level.LANE


def is_control(op: Operation, kind: str) -> bool:
    """Return whether an op is control of a kind: `for`, `if`."""
    meaning = op.definition.meaning
    return isinstance(meaning, Control) and meaning.kind == kind


def uniformity(kernel: Kernel) -> Uniformity:
    """Return how far the values of a kernel are known to be the same on all lanes."""
    found = Uniformity(kernel)
    found.settle()
    return found
