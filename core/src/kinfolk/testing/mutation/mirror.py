"""A branch that other threads take, which do the same: each has all that is stored of the one whose part it takes.

Threads are paired: lanes of one wave, or the same lanes of two waves. What a thread has of a value gets a number, and
so does what its partner has. Two numbers are one if both are computed alike from the same: a sum of what a lane and its
partner have, for one, or what waves hand each other through workgroup memory. A kernel is taken to be without races,
and a zero of either sign for one number where a maximum or minimum chooses among them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import attrs
import numpy as np
import numpy.typing as npt

from kinfolk.analysis.uniformity import Level, Uniformity, uniformity
from kinfolk.errors import KinfolkError
from kinfolk.ir.meaning import Control, LaneFunction, LanePermutation, MemoryAccess, ScheduleMarker
from kinfolk.ir.numpy_lanes import NumpyLane
from kinfolk.ir.ops import CORE_OPS, convert, memory, vector
from kinfolk.ir.types import I1, DataType, PointerType, ScalarType, Type, component_count, element_type
from kinfolk.ir.value import Kernel, Operation, Region, Value
from kinfolk.testing.mutation.handed import stored_before
from kinfolk.testing.mutation.mutant import Mutant
from kinfolk.testing.mutation.rewrite import Place
from kinfolk.testing.mutation.threads import Threads, Workgroup

Sides = tuple[tuple[int, ...], tuple[int, ...]]
"""By component, the numbers of what a thread has of a value, and of what its partner has."""
_COMMUTING: Final = frozenset(
    CORE_OPS[f"core.{name}"]
    for name in ("add", "mul", "and", "or", "xor", "smin", "smax", "umin", "umax", "fadd", "fmul", "fmin", "fmax")
)


def same_in_mirror(mutant: Mutant) -> str:
    """Return how far apart the threads are that do the same in each other's place; "" where that is not shown."""
    op, kernel = mutant.operation, mutant.original
    branches = [op] if op.name == "core.if" else _decided_by(op, kernel)
    if not branches or any(each.results or len(each.regions[1].operations) != 1 for each in branches):
        return ""
    condition = _condition(mutant)
    if condition is None:
        return ""
    workgroup = Workgroup(kernel)
    before, after = (workgroup.known(each) for each in (branches[0].operands[0], condition))
    if before is None or after is None:
        return ""
    for partner, about in workgroup.pairings():
        if np.array_equal(after.data, before.data[partner]):
            mirror = _Mirror(kernel, workgroup, partner)
            if all(map(mirror.holds, branches)):
                return f"{about} does the same in each other's place"
    return ""


def _decided_by(op: Operation, kernel: Kernel) -> list[Operation]:
    """Return the branches of which an op is the condition; none where anything else is made of it."""
    if op.regions or len(op.results) != 1 or op.results[0].type != I1:
        return []
    users = [each for each in kernel.walk() if any(operand is op.results[0] for operand in each.operands)]
    return users if all(each.name == "core.if" for each in users) else []


def _condition(mutant: Mutant) -> Value | None:
    """Return what the changed branch, or the changed condition, asks; None where more is changed of a branch."""
    op = mutant.operation
    place = Place(op, op.regions, {operand: operand for operand in op.operands})
    try:
        results = mutant.change.edit(place)
    except (KeyError, ValueError, KinfolkError):
        return None
    if op.name != "core.if":
        return results[0]
    again = place.operations[-1]
    same = again.definition is op.definition and again.attributes == op.attributes and again.regions == op.regions
    return again.operands[0] if same else None


@attrs.frozen(eq=False)
class _Named:
    """A component of which nothing can be made."""

    number: int


class _Mirror:
    """The numbers of all values of a kernel, in one pairing of its threads."""

    def __init__(self, kernel: Kernel, workgroup: Workgroup, partner: Threads) -> None:
        self._kernel, self._workgroup, self._partner = kernel, workgroup, partner
        self._levels: Uniformity = uniformity(kernel)
        size = workgroup.wave_size
        self._in_waves = bool(np.all(partner // size == workgroup.threads // size))
        self._keys: list[tuple[Any, ...]] = []
        self._numbers: dict[tuple[Any, ...], int] = {}
        self._integers: dict[int, NumpyLane] = {}
        self._sides: dict[Value, Sides] = {}
        for value in kernel.body.arguments:
            self._sides[value] = _both(self._number("given", value))
        self._region(kernel.body)

    def holds(self, op: Operation) -> bool:
        """Whether a branch that threads take in each other's place comes to the same."""
        around = [each for each, _ in self._levels.around(op)]
        return all(map(self._is_met_by_both, around)) and self._stores_the_same(op.regions[0])

    def _is_met_by_both(self, control: Operation) -> bool:
        return all(self._is_same(value) for value in control.operands[: 3 if control.name == "core.for" else 1])

    def _is_same(self, value: Value) -> bool:
        one, other = self._sides[value]
        return one == other

    def _stores_the_same(self, region: Region) -> bool:
        for op in region.operations:
            meaning = op.definition.meaning
            if isinstance(meaning, LaneFunction | ScheduleMarker) or op.definition in (memory.offset, memory.bound):
                continue
            if isinstance(meaning, LanePermutation):
                if any(level > Level.WAVE for _, level in self._levels.around(op)):
                    return False
            elif isinstance(meaning, MemoryAccess) and meaning.action == "store" and meaning.space != "workgroup":
                if not self._is_only_written(op.operands[0]) or not all(map(self._is_same, op.operands)):
                    return False
            elif op.name == "core.if":
                if not self._is_same(op.operands[0]) or not all(map(self._stores_the_same, op.regions)):
                    return False
            elif op.name != "core.yield":
                return False
        return True

    def _is_only_written(self, place: Value) -> bool:
        while place.defining_op is not None and place.defining_op.definition in (memory.offset, memory.bound):
            place = place.defining_op.operands[0]
        pairs = zip(self._kernel.parameters, self._kernel.body.arguments, strict=True)
        return any(value is place and each.access == "write" for each, value in pairs if _is_pointer(each.type))

    def _number(self, *key: Any) -> int:
        if key not in self._numbers:
            self._numbers[key] = len(self._keys)
            self._keys.append(key)
        return self._numbers[key]

    def _region(self, region: Region) -> None:
        for position, op in enumerate(region.operations):
            meaning = op.definition.meaning
            found: Sequence[Sides] | None = None
            if isinstance(meaning, LaneFunction):
                found = self._computed(op, meaning)
            elif isinstance(meaning, LanePermutation):
                found = self._moved(op, meaning)
            elif isinstance(meaning, Control) and op.regions:
                found = self._looped(op) if meaning.kind == "for" else self._branched(op)
            elif isinstance(meaning, ScheduleMarker) or (isinstance(meaning, Control) and meaning.kind == "uniform"):
                found = [self._sides[value] for value in op.operands]
            elif op.definition in (memory.offset, memory.bound):
                numbers = [[self._sides[value][side][0] for value in op.operands] for side in (0, 1)]
                found = [_pair(*((self._number(op.name, *each),) for each in numbers))]
            elif op.name == "core.workgroup_load":
                found = self._handed(op, region, position)
            for number, result in enumerate(op.results):
                self._sides[result] = self._anything(result) if found is None else found[number]

    def _anything(self, value: Value) -> Sides:
        """Return numbers of what is known of no other: the same where lanes have the same for other reasons."""
        level = self._levels[value]
        same = level is Level.WORKGROUP or (level is Level.WAVE and self._in_waves)
        one, other = (
            tuple(self._number("value", value, part, side) for part in range(_parts(value.type))) for side in (0, 1)
        )
        return (one, one) if same else (one, other)

    def _integer(self, lanes: NumpyLane) -> int:
        number = self._number("integers", lanes.type.name, lanes.data.tobytes())
        self._integers[number] = lanes
        return number

    def _computed(self, op: Operation, meaning: LaneFunction) -> Sequence[Sides] | None:
        sides = [self._sides[value] for value in op.operands]
        firsts = [one[0] for one, _ in sides]
        if all(each in self._integers for each in firsts):
            found = self._workgroup.computed(op, [self._integers[each] for each in firsts])
            if found is not None:
                other = NumpyLane(found.type, np.ascontiguousarray(found.data[self._partner]))
                return [_pair((self._integer(found),), (self._integer(other),))]
        if op.definition is vector.constant:
            return [_both(self._number(op.name, *op.attributes.items()))]
        if not op.operands or len(op.results) != 1:
            return None
        if op.definition is convert.bitcast:
            return [_pair(*(self._cast(op, each) for each in zip(*sides, strict=True)))]
        parts = _parts(op.results[0].type)
        one, other = (self._parts_of(op, meaning, each, parts) for each in zip(*sides, strict=True))
        return [(one, other)]

    def _parts_of(
        self, op: Operation, meaning: LaneFunction, operands: Sequence[tuple[int, ...]], parts: int
    ) -> tuple[int, ...]:
        """Return the numbers of an op's components: of what it moves, those that it is given."""
        key = (op.definition, *op.attributes.items())
        if meaning.form == "elementwise":
            given = [[each[part % len(each)] for each in operands] for part in range(parts)]
            ordered = [sorted(each) if op.definition in _COMMUTING else each for each in given]
            return tuple(self._number(key, *each) for each in ordered)
        named = [[_Named(each) for each in numbers] for numbers in operands]
        try:
            moved = meaning.body(None, *named, result=(op.results[0].type,), **op.attributes)
        except (AttributeError, TypeError):  # it computes
            moved = ()
        if len(moved) == parts and all(isinstance(each, _Named) for each in moved):
            return tuple(each.number for each in moved)
        return tuple(self._number(key, *operands, part) for part in range(parts))

    def _cast(self, op: Operation, numbers: tuple[tuple[int, ...], ...]) -> tuple[int, ...]:
        """Return the numbers of components with the same bits; cast there and back they are what they were."""
        (given,) = numbers
        source, target = _element(op.operands[0].type), _element(op.results[0].type)
        if source.bits == target.bits:
            return tuple(self._as(each, source.name, target.name) for each in given)
        if source.bits > target.bits:
            share = source.bits // target.bits
            return tuple(
                self._number("part", each, source.name, part, share) for each in given for part in range(share)
            )
        share = target.bits // source.bits
        return tuple(self._joined(given[begin : begin + share], target.name) for begin in range(0, len(given), share))

    def _as(self, number: int, source: str, target: str) -> int:
        match self._keys[number]:
            case ("as", int(before), str(first), _):
                return self._as(before, first, target)
            case _:
                return number if source == target else self._number("as", number, source, target)

    def _joined(self, parts: tuple[int, ...], target: str) -> int:
        match self._keys[parts[0]]:
            case ("part", int(whole), str(source), 0, int(share)):
                if parts == tuple(self._number("part", whole, source, part, share) for part in range(len(parts))):
                    return self._as(whole, source, target)
            case _:
                pass
        return self._number("joined", parts, target)

    def _moved(self, op: Operation, meaning: LanePermutation) -> Sequence[Sides] | None:
        size, found = self._workgroup.wave_size, list[Sides]()
        sources = [meaning.sources(size, active, **op.attributes) for active in (np.arange(size) >= 0, _odd(size))]
        for (operand, lanes), (_, with_fewer) in zip(*sources, strict=True):
            given = np.broadcast_to(lanes, size)
            if not isinstance(operand, int) or not np.array_equal(given, np.broadcast_to(with_fewer, size)):
                return None
            threads = self._workgroup.threads
            sides = self._of_threads(
                threads - threads % size + given[threads % size], self._sides[op.operands[operand]]
            )
            if sides is None:
                return None
            found.append(sides)
        return found

    def _of_threads(self, threads: Threads, sides: Sides) -> Sides | None:
        """Return the numbers of what each thread has that gets it from another."""
        if np.array_equal(threads, self._workgroup.threads):
            return sides
        if np.array_equal(threads, self._partner):
            return sides[1], sides[0]
        if not np.array_equal(threads[self._partner], self._partner[threads]):
            return None
        one, other = (tuple(self._number("of", threads.tobytes(), each) for each in side) for side in sides)
        return one, other

    def _branched(self, op: Operation) -> Sequence[Sides]:
        for region in op.regions:
            self._region(region)
        handed = [[self._sides[value] for value in region.operations[-1].operands] for region in op.regions]
        found: list[Sides] = []
        for then, otherwise in zip(*handed, strict=True):
            one, other = (
                tuple(
                    a if a == b else self._number("either", self._sides[op.operands[0]][side], a, b)
                    for a, b in zip(then[side], otherwise[side], strict=True)
                )
                for side in (0, 1)
            )
            found.append((one, other))
        return found

    def _looped(self, op: Operation) -> Sequence[Sides] | None:
        """Follow a loop: what it carries is taken to be the same on both sides until a round makes it differ."""
        (region,) = op.regions
        index, *carried = region.arguments
        together = self._is_met_by_both(op)
        self._sides[index] = _both(self._number("round", op)) if together else self._anything(index)
        same = {
            value for value, start in zip(carried, op.operands[3:], strict=True) if together and self._is_same(start)
        }
        while True:
            for value in carried:
                one, other = self._anything(value)
                self._sides[value] = (one, one) if value in same else (one, other)
            self._region(region)
            pairs = zip(carried, region.operations[-1].operands, strict=True)
            left = {value for value, after in pairs if value in same and self._is_same(after)}
            if left == same:
                break
            same = left
        ends: list[Sides] = []
        for value, result in zip(carried, op.results, strict=True):
            one, other = self._anything(result)
            ends.append((one, one) if value in same else (one, other))
        return ends

    def _handed(self, load: Operation, region: Region, position: int) -> Sequence[Sides] | None:
        found = stored_before(load, region.operations[:position], self._known)
        if found is None:
            return None
        store, threads = found
        sides = self._of_threads(threads, self._sides[store.operands[2]])
        return None if sides is None else [sides]

    def _known(self, value: Value) -> NumpyLane | None:
        return self._integers.get(self._sides[value][0][0])


def _odd(size: int) -> npt.NDArray[np.bool_]:
    return np.arange(size) % 2 == 1


def _both(number: int) -> Sides:
    return (number,), (number,)


def _pair(one: tuple[int, ...], other: tuple[int, ...]) -> Sides:
    return one, other


def _parts(type_: Type) -> int:
    return component_count(type_) if isinstance(type_, DataType) else 1


def _data(type_: Type) -> DataType:
    assert isinstance(type_, DataType)
    return type_


def _element(type_: Type) -> ScalarType:
    return element_type(_data(type_))


def _is_pointer(type_: Type) -> bool:
    return isinstance(type_, PointerType)
