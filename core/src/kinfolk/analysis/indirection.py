"""Loaded values that reach an address without a range check on the way.

A value read from memory can be anything. Before it takes part in an address (of a pointer, of a view's base or size, of
an element of workgroup memory) it must be bounded from below and from above: by a minimum and a maximum, by the
remainder or the mask of a number that was not loaded, or by a comparison, where a branch or a selection lets it pass
only on the right side. The index of a view needs no check, the view clamps it. Bounds may be wrong: that they are there
is all that is asked here.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence, Set
from typing import TYPE_CHECKING, Final

import attrs

from kinfolk.analysis.comparisons import BOTH, HIGH, LOW, Fact, Facts, Side, constant_of, everywhere, facts_of
from kinfolk.check.defect import Defect
from kinfolk.ir.meaning import Control, LanePermutation, MemoryAccess, ScheduleMarker
from kinfolk.ir.types import BufferType, PointerType, ScalarType
from kinfolk.ir.value import Kernel, Operation, Region, Value

if TYPE_CHECKING:
    from kinfolk.analysis.subject import Subject

CHECK: Final = "unchecked_indirection"
Chain = tuple[Operation, ...]
"""Ops from a load on, each taking what the one before gives."""
SIDES: Final[tuple[Side, Side]] = (LOW, HIGH)


@attrs.frozen
class Indirection:
    """An address made of a loaded value that lacks a bound: `chain` leads from the load to the op that uses it."""

    chain: Chain
    missing: tuple[Side, ...]
    what: str

    @property
    def op(self) -> Operation:
        """The op that uses the address."""
        return self.chain[-1]

    def __str__(self) -> str:
        bounds = " and ".join({LOW: "a lower", HIGH: "an upper"}[side] for side in self.missing)
        steps = " -> ".join(f"{op.name} at {op.location}" for op in self.chain)
        return f"{self.what} made of a loaded value without {bounds} bound: {steps}"


@attrs.frozen
class State:
    """Per side, the chain by which a value without that bound comes; None where it has one or was never loaded."""

    low: Chain | None = None
    high: Chain | None = None

    def __getitem__(self, side: Side) -> Chain | None:
        return self.low if side == LOW else self.high

    @property
    def bounded(self) -> bool:
        """Whether neither bound is missing."""
        return self.low is None and self.high is None


GOOD: Final = State()
DEEP: Final = 100
"""Steps that are followed back at once."""


def indirections(kernel: Kernel) -> tuple[Indirection, ...]:
    """Return the addresses of a kernel that are made of loaded values without a range check, in order of the text."""
    return _Analysis(kernel).found()


def reached_by(kernel: Kernel, sources: Set[Operation]) -> tuple[Indirection, ...]:
    """Return the addresses, signed comparisons and bounds of loops made of what `sources` give, as if those were loads.

    What comes from memory counts as checked then.
    """
    return _Analysis(kernel, sources).found()


def unchecked_indirections(subject: Subject) -> tuple[Defect, ...]:
    """Return a defect for each address that is made of a loaded value without a range check."""
    return tuple(
        Defect(
            check=CHECK,
            where=str(each.op.location),
            problem=str(each),
            remedy="compare the loaded value with both its bounds, or clamp it, before it takes part in an address",
        )
        for each in indirections(subject.kernel)
    )


def _either(first: Chain | None, second: Chain | None) -> Chain | None:
    return first if first is not None else second


def _joined(states: Sequence[State]) -> State:
    low = high = None
    for state in states:
        low, high = _either(low, state.low), _either(high, state.high)
    return State(low, high)


def _with(op: Operation, state: State) -> State:
    """Return a state one op further on its way."""
    if state.bounded:
        return GOOD
    low = None if state.low is None else (*state.low, op)
    high = low if state.high is state.low else None if state.high is None else (*state.high, op)
    return State(low, high)


class _TooDeep(Exception):  # never leaves the analysis: it begins anew, op after op in order of the text
    """A value is made in more steps than are followed back at once."""


class _Analysis:
    """The states of values, asked for where an address needs them; of all values in order where a way back is long.

    What a loop carries is taken for good until shown otherwise, over and over until nothing changes.
    """

    def __init__(self, kernel: Kernel, sources: Set[Operation] | None = None) -> None:
        self._kernel = kernel
        self._sources = sources
        self._around: dict[Operation, Facts] = {}
        self._loops: dict[Region, Operation] = {}
        self._stored: dict[Value, list[tuple[Operation, Value | None]]] = {}
        self._known: dict[tuple[Value, Facts], State] = {}
        self._assumed: dict[Value, State] = {}
        self._depth = 0
        self._in_order = False
        self._enter(kernel.body, frozenset())

    def _enter(self, region: Region, facts: Facts) -> None:
        """Note what holds at each op, which loop each region is of, and what goes to each workgroup allocation."""
        for op in region.operations:
            self._around[op] = facts
            meaning = op.definition.meaning
            if isinstance(meaning, Control) and meaning.kind == "if":
                for side, inner in zip((True, False), op.regions, strict=True):
                    self._enter(inner, facts | facts_of(op.operands[0], side))
                continue
            if isinstance(meaning, MemoryAccess):
                self._note_store(op, meaning)
            for inner in op.regions:
                self._loops[inner] = op
                self._enter(inner, facts)

    def _note_store(self, op: Operation, meaning: MemoryAccess) -> None:
        if meaning.action == "stage":
            self._stored.setdefault(op.operands[-2], []).append((op, None))
        elif meaning.space == "workgroup" and meaning.action in ("store", "atomic_add"):
            self._stored.setdefault(op.operands[0], []).append((op, op.operands[-1]))

    def found(self) -> tuple[Indirection, ...]:
        """Return what is found once what loops carry, and workgroup memory holds, is settled."""
        try:
            return self._settled()
        except _TooDeep:
            self._in_order = True
            return self._settled()

    def _settled(self) -> tuple[Indirection, ...]:
        while True:
            self._known.clear()
            self._depth = 0
            for op in self._kernel.walk() if self._in_order else ():
                for value in op.results:
                    if _leads_to_an_address(value):
                        self._state(value, self._around[op])
            result = [one for op in self._kernel.walk() for one in self._of(op)]
            again = {value: self._carried(value) for value in list(self._assumed)}
            new = len(self._assumed) > len(again)  # assumed on the way, and not judged yet
            if not new and all(_same(self._assumed[value], state) for value, state in again.items()):
                return tuple(result)
            self._assumed.update(again)

    def _of(self, op: Operation) -> Iterator[Indirection]:
        facts = self._around[op]
        uses = _addresses(op) if self._sources is None else itertools.chain(_addresses(op), _decisions(op))
        for value, what, more in uses:
            state = self._state(value, facts | more)
            missing: tuple[Side, ...] = tuple(side for side in SIDES if state[side] is not None)
            chain = _either(state.low, state.high)
            if chain is not None:
                yield Indirection((*chain, op), missing, what)

    def _state(self, value: Value, facts: Facts) -> State:
        """Return the state of a value where `facts` hold."""
        key = (value, facts)
        if key not in self._known:
            bare = self._known.get((value, frozenset()))
            self._depth += 1
            if self._depth > DEEP and not self._in_order:
                raise _TooDeep
            state = bare if bare is not None and bare.bounded else self._made(value, facts)
            self._depth -= 1
            self._known[key] = State(
                None if self._holds(value, LOW, facts) else state.low,
                None if self._holds(value, HIGH, facts) else state.high,
            )
        return self._known[key]

    def _holds(self, value: Value, side: Side, facts: Facts) -> bool:
        """Whether a fact bounds a value by what is bounded on that side itself."""
        return any(
            fact.value is value and fact.side in (side, BOTH) and self._state(fact.by, frozenset())[side] is None
            for fact in facts
        )

    def _made(self, value: Value, facts: Facts) -> State:
        op = value.defining_op
        if op is None:
            if value.owner is self._kernel.body:
                return GOOD
            return self._assumed.setdefault(value, GOOD)
        if self._sources is not None and op in self._sources:
            return State((op,), (op,))
        meaning = op.definition.meaning
        if isinstance(meaning, MemoryAccess) and meaning.action == "load":
            return self._loaded(op, meaning)
        if isinstance(meaning, Control) and meaning.kind == "for":
            return self._assumed.setdefault(value, GOOD)
        if isinstance(meaning, Control) and meaning.kind == "if":
            return _with(op, self._of_branch(op, value.index, facts))
        if not op.operands or isinstance(value.type, BufferType):
            return GOOD
        return _with(op, self._computed(op, facts))

    def _loaded(self, op: Operation, meaning: MemoryAccess) -> State:
        if meaning.space != "workgroup":
            return self._read(op)
        return _with(op, self._assumed.setdefault(op.operands[0], GOOD))

    def _read(self, op: Operation) -> State:
        """Return the state of what comes from memory."""
        return State((op,), (op,)) if self._sources is None else GOOD

    def _carried(self, value: Value) -> State:
        """Return the state of what a loop carries or counts, or of what is stored to an allocation, as known so far."""
        if isinstance(value.type, BufferType):
            return _joined(
                [
                    self._read(op) if stored is None else _with(op, self._state(stored, self._around[op]))
                    for op, stored in self._stored.get(value, [])
                ]
            )
        loop = value.defining_op
        if loop is None:
            assert isinstance(value.owner, Region)
            loop = self._loops[value.owner]
            if value.index == 0:  # the counter
                lower, upper = (self._state(bound, self._around[loop]) for bound in loop.operands[:2])
                return State(lower.low, upper.high)
            index = value.index - 1
        else:
            index = value.index
        last = loop.regions[0].operations[-1]
        ends = (
            self._state(loop.operands[3 + index], self._around[loop]),
            self._state(last.operands[index], self._around[last]),
        )
        return _joined(ends)

    def _of_branch(self, op: Operation, index: int, facts: Facts) -> State:
        sides = zip((True, False), op.regions, strict=True)
        return _joined(
            [
                self._state(region.operations[-1].operands[index], facts | facts_of(op.operands[0], side))
                for side, region in sides
            ]
        )

    def _computed(self, op: Operation, facts: Facts) -> State:
        """Return the state of what an op computes of its operands."""
        if op.name == "core.select":
            condition, a, b = op.operands
            return _joined(
                [self._state(one, facts | facts_of(condition, side)) for one, side in ((a, True), (b, False))]
            )
        if isinstance(op.definition.meaning, LanePermutation):
            # What is known of a value on this lane is not known of it on another, but for where that one ran too.
            facts = (facts & self._around[op]) | {fact for fact in facts if fact.everywhere}
        states = [self._state(operand, facts) for operand in op.operands]
        if _passes_on(op):
            return _joined(states)
        match op.name:
            case "core.smin":
                return State(_either(states[0].low, states[1].low), _least(states[0].high, states[1].high))
            case "core.smax":
                return State(_least(states[0].low, states[1].low), _either(states[0].high, states[1].high))
            case "core.umin":
                return GOOD if any(state.bounded for state in states) else _joined(states)
            case "core.urem":
                return states[1]
            case "core.and":
                masked = any(
                    state.bounded and not _keeps_sign(of) for state, of in zip(states, op.operands, strict=True)
                )
                return GOOD if masked else _joined(states)
            case "core.sub":
                return State(_either(states[0].low, states[1].high), _either(states[0].high, states[1].low))
            case "core.udiv" | "core.lshr" if _takes_a_few_bits(op):
                return GOOD
            case "core.udiv" | "core.lshr" | "core.zext":  # of an unsigned number: a negative one is a large one
                return State(None, _either(states[0].high, states[0].low))
            case "core.add" | "core.sext" | "core.offset" | "core.bound" | "core.sdiv" | "core.ashr":
                return _joined(states)
            case "core.icmp" | "core.fcmp":
                return GOOD
            case _:
                # Of a product, a shift or bits the sign is not followed: one missing bound leaves both open.
                whole = _joined(states)
                chain = _either(whole.low, whole.high)
                return State(chain, chain)


def _passes_on(op: Operation) -> bool:
    """Whether results are operands as they are, of whatever lane."""
    meaning = op.definition.meaning
    uniform = isinstance(meaning, Control) and meaning.kind == "uniform"
    return uniform or isinstance(meaning, (LanePermutation, ScheduleMarker))


def _leads_to_an_address(value: Value) -> bool:
    return isinstance(value.type, PointerType) or (isinstance(value.type, ScalarType) and value.type.kind == "int")


def _same(a: State, b: State) -> bool:
    return (a.low is None) == (b.low is None) and (a.high is None) == (b.high is None)


def _least(first: Chain | None, second: Chain | None) -> Chain | None:
    """Return what is missing where one of two bounds is enough."""
    return None if first is None or second is None else first


def _keeps_sign(value: Value) -> bool:
    """Whether a mask lets the sign through, as one that only aligns does."""
    mask = constant_of(value)
    return mask is not None and mask < 0


def _takes_a_few_bits(op: Operation) -> bool:
    """Whether a shift or a division leaves at most the upper half of a number's bits, as a mask would."""
    by, half = constant_of(op.operands[1]), op.results[0].scalar.bits // 2
    return by is not None and (by >= half if op.name == "core.lshr" else by >= 1 << half)


def _addresses(op: Operation) -> Iterator[tuple[Value, str, Facts]]:
    """Yield the values of an op that lead to memory, what they are, and what holds wherever they do."""
    meaning = op.definition.meaning
    if not isinstance(meaning, MemoryAccess):
        return
    match meaning.action:
        case "bound":
            base, size = op.operands
            yield base, "the base of a view", _of_a_view_that_is_not_empty(size)
            yield size, "the size of a view", frozenset()
        case "load" | "store" | "atomic_add" if meaning.space == "global":
            yield op.operands[0], "an address", frozenset()
        case "load" | "store" | "atomic_add" if meaning.space == "workgroup":
            yield op.operands[1], "an index into workgroup memory", frozenset()
        case "stage":
            if meaning.space == "global":
                yield op.operands[0], "an address", frozenset()
            yield op.operands[-1], "an index into workgroup memory", frozenset()
        case _:
            return


def _decisions(op: Operation) -> Iterator[tuple[Value, str, Facts]]:
    """Yield the values of an op that decide where a kernel goes: those of signed comparisons, and bounds of loops."""
    meaning = op.definition.meaning
    if op.name == "core.icmp" and str(op.attributes["predicate"]).startswith("s"):
        yield from ((value, "a signed comparison", frozenset[Fact]()) for value in op.operands)
    elif isinstance(meaning, Control) and meaning.kind == "for":
        yield from ((value, "the bound of a loop", frozenset[Fact]()) for value in op.operands[:2])


def _of_a_view_that_is_not_empty(size: Value) -> Facts:
    """Return what holds where a size that is selected against 0 is not 0: of an empty view the base reaches nothing."""
    made = size.defining_op
    while made is not None and (made.name in ("core.uniform", "core.opaque") or _scales(made)):
        made = made.operands[0].defining_op
    if made is None or made.name != "core.select":
        return frozenset()
    condition, a, b = made.operands
    if _is_zero(b):
        return everywhere(facts_of(condition, True))  # a view is one on all lanes
    return everywhere(facts_of(condition, False)) if _is_zero(a) else frozenset()


def _scales(op: Operation) -> bool:
    return op.name in ("core.mul", "core.shl")


def _is_zero(value: Value) -> bool:
    return constant_of(value) == 0


__all__ = ["Indirection", "indirections"]
