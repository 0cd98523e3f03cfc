"""A comparison that is wrong at equality alone, where what it selects is then the same number on both sides."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kinfolk.analysis.strided import Strided
from kinfolk.analysis.values import Values
from kinfolk.ir.meaning import ScheduleMarker
from kinfolk.ir.ops import CORE_OPS, arithmetic
from kinfolk.ir.value import Operation, Region, Value
from kinfolk.testing.mutation.mutant import Mutant
from kinfolk.testing.mutation.rewrite import Place
from kinfolk.testing.mutation.sums import Sum, sum_of

_AT_EQUALITY: Final = ({"slt", "sle"}, {"sgt", "sge"}, {"ult", "ule"}, {"ugt", "uge"})
_PASSED_ON: Final = (CORE_OPS["core.and"], CORE_OPS["core.or"], arithmetic.xor, CORE_OPS["core.uniform"])


def same_at_equality(mutant: Mutant, values: Values) -> str:
    """Return why nothing comes of a comparison that is wrong at equality; "" where that is not shown.

    `values` are those of the kernel without the change.
    """
    op = mutant.operation
    if op.definition is not arithmetic.icmp:
        return ""
    one, other = op.operands
    place = Place(op, (), {operand: operand for operand in op.operands})
    mutant.change.edit(place)
    last = place.operations[-1]
    predicates = {op.attributes["predicate"], last.attributes.get("predicate")}
    again = len(place.operations) == 1 and last.operands[0] is one and last.operands[1] is other
    if not again or predicates not in _AT_EQUALITY:
        return ""
    equal = _Equal(one, other, values.__getitem__)
    selections = _selections(mutant.original.body, op)
    if not selections or not all(equal.same(*each.operands[1:]) for each in selections):
        return ""
    return f"where both are equal, so is what {len(selections)} selections have on both sides"


def _selections(region: Region, comparison: Operation) -> list[Operation]:
    """Return the selections that a comparison decides; none where it decides something else, too, or is data."""
    decided = {comparison.results[0]}
    found: list[Operation] = []
    for op in region.walk():
        if not any(operand in decided for operand in op.operands):
            continue
        if op.definition in _PASSED_ON or isinstance(op.definition.meaning, ScheduleMarker):
            decided.update(op.results)
        elif op.definition is arithmetic.select and not any(operand in decided for operand in op.operands[1:]):
            found.append(op)
        else:
            return []
    return found


class _Equal:
    """Numbers where `one` and `other` are equal."""

    def __init__(self, one: Value, other: Value, sets: Callable[[Value], Strided]) -> None:
        self._one, self._other, self._sets = one, other, sets

    def same(self, a: Value, b: Value) -> bool:
        """Whether two numbers are the same there."""
        return not (self._sum(a) - self._sum(b)).terms

    def _sum(self, value: Value) -> Sum:
        made = value.defining_op
        if made is not None and made.definition is arithmetic.sub and self.same(*made.operands):
            return Sum.of(0)
        return sum_of(value, {}, self._sets).instead(self._other, sum_of(self._one, {}, self._sets))
