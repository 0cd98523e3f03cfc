"""By how much what a loop carries changes from one round to the next."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kinfolk.analysis.strided import Strided, added, all_joined, joined, multiplied, negated, number, strided
from kinfolk.ir.meaning import Control, ScheduleMarker
from kinfolk.ir.value import Operation, Value

if TYPE_CHECKING:
    from kinfolk.analysis.conditions import Sets

DEEPEST: Final = 200
"""Steps that are followed back, at most."""


def grown(value: Value, argument: Value, sets: Sets) -> Strided | None:
    """Return a set that holds `value - argument`, for a value made of the argument by sums; None for any other."""
    return _Growth(argument, sets).of(value, 0)


class _Growth:
    def __init__(self, argument: Value, sets: Sets) -> None:
        self._argument, self._sets = argument, sets
        self._known: dict[Value, Strided | None] = {}

    def of(self, value: Value, depth: int) -> Strided | None:
        if value is self._argument:
            return number(0)
        if value not in self._known:
            op = value.defining_op
            self._known[value] = None if op is None or depth > DEEPEST else self._made(op, value, depth + 1)
        return self._known[value]

    def _made(self, op: Operation, value: Value, depth: int) -> Strided | None:
        match op.name:
            case "core.add" if op.attributes["nsw"]:
                for one, other in (op.operands, op.operands[::-1]):
                    if (change := self.of(one, depth)) is not None:
                        return added(change, self._sets[other])
                return None
            case "core.sub" if op.attributes["nsw"]:
                change = self.of(op.operands[0], depth)
                return None if change is None else added(change, negated(self._sets[op.operands[1]]))
            case "core.select":
                return self._all(op.operands[1:], depth)
            case _:
                pass
        match op.definition.meaning:
            case Control(kind="uniform") | ScheduleMarker() if op.operands:
                return self.of(op.operands[0], depth)
            case Control(kind="if"):
                return self._all(tuple(each.operations[-1].operands[value.index] for each in op.regions), depth)
            case Control(kind="for"):
                return self._looped(op, value.index, depth)
            case _:
                return None

    def _all(self, values: tuple[Value, ...], depth: int) -> Strided | None:
        changes = [change for value in values if (change := self.of(value, depth)) is not None]
        return all_joined(changes) if len(changes) == len(values) else None

    def _looped(self, loop: Operation, index: int, depth: int) -> Strided | None:
        """Return the change over all rounds of a loop inside."""
        (region,) = loop.regions
        before = self.of(loop.operands[3 + index], depth)
        inside = grown(region.operations[-1].operands[index], region.arguments[1 + index], self._sets)
        if before is None or inside is None:
            return None
        lower, upper, step = (self._sets[bound] for bound in loop.operands[:3])
        rounds = strided(0, max(0, -(-(upper.high - lower.low) // max(1, step.low))))
        return before if rounds is None else joined(before, added(before, multiplied(inside, rounds)))
