"""What a condition says of the numbers it compares, where it is true and where it is not."""

from __future__ import annotations

from typing import Final, Literal

import attrs

from kinfolk.ir.value import Operation, Value

Side = Literal["low", "high", "both"]
LOW: Final[Side] = "low"
HIGH: Final[Side] = "high"
BOTH: Final[Side] = "both"


@attrs.frozen(eq=False)
class Fact:
    """`value` is bounded on a side by `by`: on both where an unsigned number is below it, or equal to it.

    `everywhere`: on all active lanes at once, so that it is known of what comes from another lane too.
    """

    value: Value
    side: Side
    by: Value
    everywhere: bool = False

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Fact) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[int, Side, int, bool]:
        return id(self.value), self.side, id(self.by), self.everywhere


Facts = frozenset[Fact]
_OTHER: Final[dict[Side, Side]] = {LOW: HIGH, HIGH: LOW, BOTH: BOTH}
NEGATED: Final = {
    "eq": "ne", "ne": "eq", "slt": "sge", "sge": "slt", "sle": "sgt", "sgt": "sle",
    "ult": "uge", "uge": "ult", "ule": "ugt", "ugt": "ule",
}  # fmt: skip


def facts_of(condition: Value, holds: bool) -> Facts:
    """Return what bounds are known where a condition (i1) holds, or where it does not."""
    made = condition.defining_op
    if made is None:
        return frozenset()
    match made.name:
        case "core.icmp":
            predicate = made.attributes["predicate"]
            assert isinstance(predicate, str)
            return _compared(predicate if holds else NEGATED[predicate], made)
        case "core.and" if holds:
            return facts_of(made.operands[0], True) | facts_of(made.operands[1], True)
        case "core.or" if not holds:
            return facts_of(made.operands[0], False) | facts_of(made.operands[1], False)
        case "core.xor":
            for one, other in (made.operands, made.operands[::-1]):
                if _is_true(other):
                    return facts_of(one, not holds)
            return frozenset()
        case "core.any_lane" if not holds:
            return everywhere(facts_of(made.operands[0], False))
        case _:
            return frozenset()


def everywhere(facts: Facts) -> Facts:
    """Return facts of which is known that they hold on all active lanes or on none."""
    return frozenset(attrs.evolve(fact, everywhere=True) for fact in facts)


def _compared(predicate: str, op: Operation) -> Facts:
    a, b = op.operands
    facts: list[Fact] = []
    match predicate:
        case "slt" | "sle":
            facts = [Fact(a, HIGH, b), Fact(b, LOW, a)]
        case "sgt" | "sge":
            facts = [Fact(a, LOW, b), Fact(b, HIGH, a)]
        case "ult" | "ule":
            facts = [Fact(a, BOTH, b)]
        case "ugt" | "uge":
            facts = [Fact(b, BOTH, a)]
        case "eq":
            facts = [Fact(a, BOTH, b), Fact(b, BOTH, a)]
        case _:
            pass
    return frozenset(fact for one in facts for fact in _through(one))


def _through(fact: Fact) -> list[Fact]:
    """Return a fact, and what it says of the values its own is made of.

    A claim of uniformity changes nothing; a constant added to it, or subtracted, moves the bound; subtracted from a
    constant, a value has its bounds exchanged. Where that may wrap, only both bounds at once say something.
    """
    facts = [fact]
    value, side = fact.value, fact.side
    while (before := _before(value, side)) is not None:
        value, side = before
        facts.append(Fact(value, side, fact.by))
    return facts


def _before(value: Value, side: Side) -> tuple[Value, Side] | None:
    """Return the value that another is a copy of but for a constant, and on which side it is bounded with it."""
    made = value.defining_op
    if made is None:
        return None
    if made.name in ("core.uniform", "core.opaque"):
        return made.operands[0], side
    if made.name not in ("core.add", "core.sub") or not (made.attributes["nsw"] or side == BOTH):
        return None
    a, b = made.operands
    if constant_of(b) is not None:
        return a, side
    if constant_of(a) is not None:
        return b, side if made.name == "core.add" else _OTHER[side]
    return None


def _is_true(value: Value) -> bool:
    return constant_of(value) == -1


def constant_of(value: Value) -> int | None:
    """Return the number that an integer, or every component of a vector of integers, is; read as signed."""
    made = value.defining_op
    while made is not None and made.name == "core.splat":
        made = made.operands[0].defining_op
    if made is None or made.name != "core.constant":
        return None
    bits, type_ = made.attributes["bits"], made.results[0].scalar
    assert isinstance(bits, int)
    if type_.kind != "int":
        return None
    return bits - (1 << type_.bits) if bits >> (type_.bits - 1) else bits
