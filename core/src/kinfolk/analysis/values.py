"""Which integers each value of a kernel may be, and which multiples: worked out op by op, without running it.

A kernel is walked in order of its text with a set (`Strided`) per value: bounds and a rest modulo a step, to which a
pointer adds its address. Branches and selections narrow the sets of what they compare. A loop is walked until its
sets no longer grow; what grows by a bounded amount a round is bounded by its rounds.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import gcd
from typing import TYPE_CHECKING, Final

from kinfolk.analysis.conditions import apart, assumed, in_loop
from kinfolk.analysis.growth import grown
from kinfolk.analysis.strided import (
    ANY_ADDRESS,
    FOREVER,
    Strided,
    added,
    all_joined,
    between,
    joined,
    met,
    multiplied,
    number,
    signed,
    strided,
    wrapped,
)
from kinfolk.analysis.transfer import MAY_WRAP, exact
from kinfolk.ir.builder import ALLOCATION_ALIGNMENT
from kinfolk.ir.meaning import Control, LaneFunction, LanePermutation, MemoryAccess, ScheduleMarker
from kinfolk.ir.types import BufferType, PointerType, ScalarType, Type, VectorType, ViewType, element_type
from kinfolk.ir.value import Kernel, Operation, Region, Value

if TYPE_CHECKING:
    from kinfolk.arch import Arch

EXACT_ROUNDS: Final = 8
"""Rounds of a loop that are followed one by one before its sets are widened."""
MOST_ROUNDS: Final = 60
DEEP: Final = 3
"""Steps back that a selected value is worked out again under its condition."""


class Values:
    """The sets of a kernel's values, and of each op's operands where it stands: narrowed by the branches around it.

    `seen` has an op only where it can be reached. `given` are sets of some values, `wave` is which wave of the
    workgroup runs, any where it is None; `only` are the ops that matter, all where it is None.
    """

    def __init__(
        self,
        kernel: Kernel,
        arch: Arch,
        *,
        given: Mapping[Value, Strided] | None = None,
        wave: int | None = None,
        only: frozenset[Operation] | None = None,
    ) -> None:
        self.seen: dict[Operation, tuple[Strided, ...]] = {}
        self._kernel, self._arch, self._wave, self._only = kernel, arch, wave, only
        self._given = given or {}
        self._sets: dict[Value, Strided] = {}
        self._apart: dict[tuple[Value, Value], int] = {}
        self._followed: dict[Region, list[Operation]] = {}
        for parameter, value in zip(kernel.parameters, kernel.body.arguments, strict=True):
            if isinstance(parameter.type, PointerType):
                self._sets[value] = Strided(-FOREVER, FOREVER, parameter.alignment, 0)
            elif parameter.is_integer:
                self._sets[value] = between(*parameter.bounds)
        self._sets.update(self._given)
        self._region(kernel.body)

    def __getitem__(self, value: Value) -> Strided:
        found = self._sets.get(value)
        return any_of(value.type) if found is None else found

    def _operations(self, region: Region) -> list[Operation]:
        """Return the ops of a region that make, or use, what is followed here."""
        if region not in self._followed:
            ops = region.operations if self._only is None else [op for op in region.operations if op in self._only]
            self._followed[region] = [op for op in ops if _concerns(op)]
        return self._followed[region]

    def _region(self, region: Region) -> None:
        for op in self._operations(region):
            self.seen[op] = sets = tuple(self[value] for value in op.operands)
            meaning = op.definition.meaning
            if op.regions:
                if isinstance(meaning, Control) and meaning.kind == "for":
                    self._for(op)
                else:
                    self._if(op)
            else:
                for result in op.results:
                    if is_followed(result.type):
                        given = self._given.get(result)
                        self._sets[result] = self._result(op, result, sets) if given is None else given

    def _result(self, op: Operation, result: Value, sets: Sequence[Strided]) -> Strided:
        match op.definition.meaning:
            case LaneFunction() if op.name == "core.select":
                return self._selected(op)
            case LaneFunction() if not op.operands and op.name != "core.constant":
                return self._place(op, element_type(result.type).bits)
            case LaneFunction():
                found = computed(op, sets)
                return self._difference(op, found) if op.name == "core.sub" and op.attributes["nsw"] else found
            case Control(kind="uniform") | ScheduleMarker() if sets:
                return sets[0]
            case LanePermutation() if sets:
                return all_joined(sets)
            case MemoryAccess(action="offset"):
                step = multiplied(sets[1], number(element_type(result.type).bytes))
                return _address(added(sets[0], step))
            case MemoryAccess(action="bound"):
                return sets[0]
            case MemoryAccess(action="allocate"):
                return Strided(-FOREVER, FOREVER, ALLOCATION_ALIGNMENT, 0)
            case _:
                return any_of(result.type)

    def _difference(self, op: Operation, found: Strided) -> Strided:
        """Return the set of a difference where a branch around it has compared the two numbers."""
        least = self._apart.get((op.operands[0], op.operands[1]))
        return found if least is None else met(found, least, found.high) or found

    def _place(self, op: Operation, bits: int) -> Strided:
        """Return what an op without operands may say: which lane, wave or workgroup it is."""
        assert isinstance(op.definition.meaning, LaneFunction)
        places = _Places(self._kernel, self._arch, self._wave)
        try:
            said = op.definition.meaning.body(places, **op.attributes)
        except (AttributeError, TypeError):  # it computes something from a place
            said = None
        below = op.attributes.get("below")
        found = said if isinstance(said, Strided) else signed(bits)
        return (met(found, 0, below - 1) or found) if isinstance(below, int) and below else found

    def _selected(self, op: Operation) -> Strided:
        condition, *chosen = op.operands
        found = [
            self._under(value, narrowed, DEEP)
            for value, holds in zip(chosen, (True, False), strict=True)
            if (narrowed := assumed(condition, holds, self)) is not None
        ]
        return all_joined(found) if found else joined(self[chosen[0]], self[chosen[1]])

    def _under(self, value: Value, narrowed: Mapping[Value, Strided], depth: int) -> Strided:
        """Return the set of a value where some are narrowed, worked out again some steps back."""
        if value in narrowed:
            return narrowed[value]
        op = value.defining_op
        if not narrowed or depth == 0 or op is None or not op.operands:
            return self[value]
        if not isinstance(op.definition.meaning, LaneFunction) or op.name == "core.select":
            return self[value]
        if not all(is_followed(operand.type) for operand in op.operands):
            return self[value]
        sets = tuple(self._under(operand, narrowed, depth - 1) for operand in op.operands)
        return self[value] if sets == self.seen.get(op) else computed(op, sets)

    @contextmanager
    def _narrowed(self, sets: Mapping[Value, Strided]) -> Generator[None]:
        before = {value: self._sets.get(value) for value in sets}
        self._sets.update(sets)
        try:
            yield
        finally:
            for value, kept in before.items():
                if kept is None:
                    del self._sets[value]
                else:
                    self._sets[value] = kept

    def _if(self, op: Operation) -> None:
        found: list[list[Strided]] = []
        for region, holds in zip(op.regions, (True, False), strict=True):
            narrowed = assumed(op.operands[0], holds, self)
            if narrowed is not None:
                around = self._apart
                self._apart = {**around, **apart(op.operands[0], holds, self)}
                with self._narrowed(narrowed):
                    self._region(region)
                    self._apart = around
                    found.append([self[value] for value in region.operations[-1].operands])
        for index, result in enumerate(op.results):
            if found and is_followed(result.type):
                self._sets[result] = all_joined(sets[index] for sets in found)

    def _for(self, op: Operation) -> None:
        lower, upper, step = self.seen[op][:3]
        (region,) = op.regions
        followed = [i for i, value in enumerate(op.results) if is_followed(value.type)]
        first = [self[value] for value in op.operands[3:]]
        count = max(1, step.low)
        counter = strided(lower.low, upper.high - 1, gcd(lower.step, step.step, step.rest), lower.rest)
        if counter is None:
            self._sets.update((op.results[i], first[i]) for i in followed)
            return
        self._sets[region.arguments[0]] = counter
        rounds = -(-(upper.high - lower.low) // count)
        with self._narrowed(in_loop(op.operands[0], op.operands[1], self)):
            last = _Loop(self, op, followed, first, rounds).settled()
        surely = lower.high < upper.low
        for i in followed:
            self._sets[op.results[i]] = last[i] if surely else joined(first[i], last[i])

    def walk_body(self, loop: Operation, followed: Sequence[int], sets: Sequence[Strided]) -> dict[int, Strided]:
        """Walk a loop's body once for sets of what it carries, and return those of what it hands on."""
        (region,) = loop.regions
        for i in followed:
            self._sets[region.arguments[1 + i]] = sets[i]
        self._region(region)
        following = region.operations[-1].operands
        return {i: self[following[i]] for i in followed}


class _Loop:
    """The sets of what a loop carries, round after round, until they hold those of every round."""

    def __init__(
        self, values: Values, loop: Operation, followed: Sequence[int], first: Sequence[Strided], rounds: int
    ) -> None:
        self._values, self._loop, self._followed, self._first, self._rounds = values, loop, followed, first, rounds
        self._arguments = loop.regions[0].arguments[1:]
        self._state = list(first)

    def settled(self) -> dict[int, Strided]:
        """Return the sets of what the last round hands on; the values keep those of all rounds."""
        turn = 0
        following = self._walked()
        while turn + 1 < self._rounds and self._raised(following, turn):
            turn += 1
            following = self._walked()
        if turn > EXACT_ROUNDS and turn + 1 < self._rounds:  # widened too far, perhaps: what one round gives is enough
            for _ in range(2):
                self._state = [
                    joined(self._first[i], following[i]) if i in following and not self._limit(i) else state
                    for i, state in enumerate(self._state)
                ]
                following = self._walked()
        return following

    def _walked(self) -> dict[int, Strided]:
        return self._values.walk_body(self._loop, self._followed, self._state)

    def _raised(self, following: Mapping[int, Strided], turn: int) -> bool:
        """Let the state hold what a round hands on; return whether it had to grow."""
        changed = False
        for i, handed in following.items():
            before = self._state[i]
            after = joined(before, handed)
            if after == before:
                continue
            if turn >= MOST_ROUNDS:
                after = any_of(self._arguments[i].type)
            elif turn >= EXACT_ROUNDS:
                after = self._limit(i) or _widened(before, after, any_of(self._arguments[i].type))
                if after == before:
                    continue
            self._state[i] = after
            changed = True
        return changed

    def _limit(self, i: int) -> Strided | None:
        """Return a set of what changes by a bounded amount a round, over all rounds; None of what does not."""
        following = self._loop.regions[0].operations[-1].operands[i]
        change = grown(following, self._arguments[i], self._values)
        if change is None:
            return None
        rounds = self._rounds - 1
        whole = added(self._first[i], Strided(min(0, change.low * rounds), max(0, change.high * rounds), 1, 0))
        step = gcd(self._first[i].step, change.step, change.rest)
        limit = strided(whole.low, whole.high, step, self._first[i].rest)
        within = any_of(self._arguments[i].type)
        return None if limit is None or not (within.low <= limit.low and limit.high <= within.high) else limit


def _widened(before: Strided, after: Strided, whole: Strided) -> Strided:
    """Return the set moved out to 0 or to the end of its type where it grew."""
    low, high = after.low, after.high
    if low < before.low:
        low = 0 if low >= 0 else whole.low
    if high > before.high:
        high = 0 if high <= 0 else whole.high
    found = strided(low, high, after.step, after.rest)
    assert found is not None
    return joined(found, after)


class _Places:
    """What the lane functions of ops without operands ask for, as sets."""

    def __init__(self, kernel: Kernel, arch: Arch, wave: int | None) -> None:
        self._kernel, self._arch, self._wave = kernel, arch, wave

    def require(self, condition: object, why: str) -> None:
        """What is claimed is taken to hold."""

    def unsigned_less(self, a: Strided, b: int) -> None:
        """What claims are made of is not followed."""

    def lane_id(self) -> Strided:
        return between(0, self._kernel.wave_size - 1)

    def wave_id(self) -> Strided:
        last = self._kernel.block // self._kernel.wave_size - 1
        return between(0, last) if self._wave is None else number(self._wave)

    def thread_id(self) -> Strided:
        if self._wave is None:
            return between(0, self._kernel.block - 1)
        first = self._wave * self._kernel.wave_size
        return between(first, first + self._kernel.wave_size - 1)

    def block_id(self, axis: int) -> Strided:
        most = self._arch.facts.get(f"max_grid_{'xyz'[axis]}")
        return between(0, (most if type(most) is int else 2**31 - 1) - 1)


def computed(op: Operation, sets: Sequence[Strided]) -> Strided:
    """Return the set of a lane function's result as its register holds it; a claim of no wrap is taken to hold."""
    type_ = op.results[0].type
    found = exact(op, sets)
    if op.name not in MAY_WRAP:
        return found
    bits = element_type(type_).bits
    whole = signed(bits)
    if op.attributes.get("nsw"):
        return met(found, whole.low, whole.high) or whole
    return wrapped(found, bits)


def is_followed(type_: Type) -> bool:
    """Whether values of a type have sets: integers, vectors of them, and what addresses are made of."""
    if isinstance(type_, (PointerType, ViewType, BufferType)):
        return True
    return element_type(type_).kind == "int"


def any_of(type_: Type) -> Strided:
    """Return all numbers that a value of a type may be."""
    if isinstance(type_, (ScalarType, VectorType)):
        return signed(element_type(type_).bits)
    return ANY_ADDRESS


def _address(a: Strided) -> Strided:
    """Return an address, of which only the multiple counts."""
    return Strided(-FOREVER, FOREVER, a.step or 1 << 64, a.rest)


def _concerns(op: Operation) -> bool:
    followed: Iterator[Value] = (value for value in (*op.results, *op.operands))
    return bool(op.regions) or any(is_followed(value.type) for value in followed)
