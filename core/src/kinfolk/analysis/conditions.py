"""What is known of values where a condition holds, or where it does not: their sets, narrowed."""

from __future__ import annotations

from typing import Final, Protocol

from kinfolk.analysis.comparisons import NEGATED, constant_of
from kinfolk.analysis.strided import FOREVER, Strided, added, common, met, negated, number, without
from kinfolk.ir.value import Operation, Value

_SWAPPED: Final = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le", "eq": "eq", "ne": "ne"}
_APART: Final = {"lt": 1, "gt": 1, "le": 0, "ge": 0}


class Sets(Protocol):
    """Which numbers a value may be."""

    def __getitem__(self, value: Value) -> Strided: ...


def assumed(condition: Value, holds: bool, sets: Sets) -> dict[Value, Strided] | None:
    """Return narrower sets of some values where a condition (i1) holds, or where it does not; None where it cannot."""
    narrowing = _Narrowing(sets)
    return narrowing.found if narrowing.condition(condition, holds) else None


def apart(condition: Value, holds: bool, sets: Sets) -> dict[tuple[Value, Value], int]:
    """Return by how much at least one value exceeds another where a condition holds, or where it does not: 0 or 1."""
    narrowing = _Narrowing(sets)
    narrowing.condition(condition, holds)
    return narrowing.apart


def in_loop(lower: Value, upper: Value, sets: Sets) -> dict[Value, Strided]:
    """Return narrower sets of some values in a loop from `lower` to below `upper`, which goes round at least once."""
    narrowing = _Narrowing(sets)
    narrowing.less(lower, upper)
    return narrowing.found


class _Narrowing:
    """Sets that get narrower with each condition; a method returns False where nothing is left."""

    def __init__(self, sets: Sets) -> None:
        self._sets = sets
        self.found: dict[Value, Strided] = {}
        self.apart: dict[tuple[Value, Value], int] = {}

    def condition(self, condition: Value, holds: bool) -> bool:
        known = self._sets[condition].single
        if known is not None and bool(known) != holds:
            return False
        self.found[condition] = number(int(holds))
        made = condition.defining_op
        if made is None:
            return True
        match made.name:
            case "core.icmp":
                predicate = str(made.attributes["predicate"])
                return self._compared(predicate if holds else NEGATED[predicate], made)
            case "core.and" if holds:
                return self.condition(made.operands[0], True) and self.condition(made.operands[1], True)
            case "core.or" if not holds:
                return self.condition(made.operands[0], False) and self.condition(made.operands[1], False)
            case "core.xor":
                for one, other in (made.operands, made.operands[::-1]):
                    if constant_of(other) == -1:
                        return self.condition(one, not holds)
                return True
            case "core.any_lane" if not holds:
                return self.condition(made.operands[0], False)
            case "core.uniform":
                return self.condition(made.operands[0], holds)
            case _:
                return True

    def less(self, a: Value, b: Value) -> bool:
        return self._ordered("lt", a, b) and self._ordered("gt", b, a)

    def _set(self, value: Value) -> Strided:
        return self.found.get(value) or self._sets[value]

    def _compared(self, predicate: str, op: Operation) -> bool:
        a, b = op.operands
        unsigned = predicate[0] == "u"
        order = predicate[1:] if len(predicate) == 3 else predicate
        if unsigned and min(self._set(a).low, self._set(b).low) < 0:
            if order in ("lt", "le") and self._set(b).low >= 0:
                return self._narrow(a, met(self._set(a), 0, self._set(b).high - (order == "lt")))
            if order in ("gt", "ge") and self._set(a).low >= 0:
                return self._narrow(b, met(self._set(b), 0, self._set(a).high - (order == "gt")))
            return True
        if order in _APART:
            self.apart[(b, a) if order in ("lt", "le") else (a, b)] = _APART[order]
        return self._ordered(order, a, b) and self._ordered(_SWAPPED[order], b, a)

    def _ordered(self, order: str, a: Value, b: Value) -> bool:
        """Narrow `a` by `a order b`."""
        this, other = self._set(a), self._set(b)
        match order:
            case "lt":
                return self._narrow(a, met(this, -FOREVER, other.high - 1))
            case "le":
                return self._narrow(a, met(this, -FOREVER, other.high))
            case "gt":
                return self._narrow(a, met(this, other.low + 1, FOREVER))
            case "ge":
                return self._narrow(a, met(this, other.low, FOREVER))
            case "eq":
                return self._narrow(a, common(this, other))
            case _:
                return other.single is None or self._narrow(a, without(this, other.single))

    def _narrow(self, value: Value, to: Strided | None) -> bool:
        """Let a value, and what it is made of but for a constant, have a narrower set."""
        while to is not None:
            if to != self._sets[value]:
                self.found[value] = to
            before = _before(value, to)
            if before is None:
                return True
            value, to = before
            this = self._set(value)
            to = common(this, to)
        return False


def _before(value: Value, to: Strided) -> tuple[Value, Strided] | None:
    """Return the value that another is made of by adding a constant or by widening, with what it then may be."""
    made = value.defining_op
    if made is None:
        return None
    if made.name in ("core.uniform", "core.opaque", "core.sext"):
        return made.operands[0], to
    if made.name not in ("core.add", "core.sub") or not made.attributes["nsw"]:
        return None
    a, b = made.operands
    if (constant := constant_of(b)) is not None:
        return a, added(to, number(-constant if made.name == "core.add" else constant))
    if (constant := constant_of(a)) is not None:
        return b, added(to, number(-constant)) if made.name == "core.add" else added(number(constant), negated(to))
    return None
