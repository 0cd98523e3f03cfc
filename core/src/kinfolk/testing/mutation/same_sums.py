"""A change that computes the same sum of products, in another order, in other widths or without a bound that is none.

Whatever the operands are, of which it is known how branches around have compared numbers, and places in the grid.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import attrs

from kinfolk.analysis.conditions import apart
from kinfolk.analysis.strided import Strided, signed
from kinfolk.analysis.transfer import MAY_WRAP, exact
from kinfolk.analysis.values import Values, computed
from kinfolk.errors import KinfolkError
from kinfolk.ir.ops import arithmetic, convert, vector
from kinfolk.ir.types import ScalarType
from kinfolk.ir.value import Operation, Value
from kinfolk.testing.mutation.carried import around
from kinfolk.testing.mutation.mutant import Mutant
from kinfolk.testing.mutation.rewrite import Place
from kinfolk.testing.mutation.sums import MOST_TERMS, Sum, never_negative, sum_of

_SUMS: Mapping[object, Callable[[Sum, Sum], Sum]] = {
    arithmetic.add: lambda one, other: one + other,
    arithmetic.sub: lambda one, other: one - other,
    arithmetic.mul: lambda one, other: one * other,
}
_SAME = (convert.sext, convert.zext, convert.trunc)


def same_sum(mutant: Mutant, values: Values, below: Mapping[Value, Value] | None = None) -> str:
    """Return why a mutant computes the same sum as its kernel; "" where that is not shown.

    `values` are those of the kernel without the change, `below` says of some that they are less than another one.
    Every sum and product of either fits its type: none wraps.
    """
    op, sets = mutant.operation, values.seen.get(mutant.operation)
    if sets is None or not op.operands or op.regions:
        return ""
    place = Place(op, (), {operand: operand for operand in op.operands})
    try:
        (result,) = mutant.change.edit(place)
    except (KeyError, ValueError, KinfolkError):  # it takes other values, or several
        return ""
    sums = _Sums(values, below or {}, tuple(_known_around(mutant, values)))
    before = sums.made([op], op.results[0], sets, op.operands)
    after = sums.made(place.operations, result, sets, op.operands)
    if before is None or after is None or (before - after).terms or op.results[0].type != result.type:
        return ""
    return "the same sum of products, which fits its type"


def _known_around(mutant: Mutant, values: Values) -> Iterator[Sum]:
    """Yield sums that are at least 0 where an operation stands, as branches around it have compared numbers."""
    inside = mutant.operation
    for branch in around(mutant.original.body, mutant.operation):
        if branch.name == "core.if":
            first = any(each is inside for each in branch.regions[0].operations)
            for (larger, smaller), least in apart(branch.operands[0], first, values).items():
                one, other = (sum_of(each, {}, values.__getitem__) for each in (larger, smaller))
                yield one - other - Sum.of(least)
        inside = branch


@attrs.frozen(eq=False)
class _Sums:
    """What ops make of operands, as sums; `known` are some that are at least 0."""

    values: Values
    below: Mapping[Value, Value]
    known: Sequence[Sum]

    def made(
        self, ops: Sequence[Operation], result: Value, sets: Sequence[Strided], operands: Sequence[Value]
    ) -> Sum | None:
        """Return what a value is a sum of, which `ops` make of operands; None where it is none, or may wrap."""
        numbers = dict(zip(operands, sets, strict=True))
        found: dict[Value, Sum] = {}
        for operand, known in numbers.items():
            if not isinstance(operand.type, ScalarType) or operand.type.kind != "int":
                return None
            found[operand] = Sum.of(known.low) if known.single is not None else self._of(operand)
        for op in ops:
            type_ = op.results[0].type if len(op.results) == 1 else None
            if not isinstance(type_, ScalarType) or type_.kind != "int":
                return None
            made_of = [numbers[operand] for operand in op.operands]
            numbers[op.results[0]] = computed(op, made_of)
            sum_ = self._made_by(op, [found[operand] for operand in op.operands], made_of, numbers[op.results[0]])
            if sum_ is None or len(sum_.terms) > MOST_TERMS:
                return None
            found[op.results[0]] = sum_
        return found[result]

    def _of(self, value: Value) -> Sum:
        return sum_of(value, {}, self.values.__getitem__)

    def _made_by(self, op: Operation, sums: Sequence[Sum], made_of: Sequence[Strided], numbers: Strided) -> Sum | None:
        fits = _fits(op, made_of)
        if op.definition is vector.constant:
            return Sum.of(numbers.low)
        if op.definition in _SUMS and fits:
            return _SUMS[op.definition](*sums)
        if op.definition in _SAME and fits and numbers == made_of[0]:
            return sums[0]
        if op.definition in (arithmetic.smin, arithmetic.smax):
            one, other = sums if op.definition is arithmetic.smin else sums[::-1]
            if self._never_negative(other - one):
                return sums[0]
            return sums[1] if self._never_negative(one - other) else None
        return None

    def _never_negative(self, whole: Sum) -> bool:
        wholes = (whole, *(whole - known for known in self.known))
        return any(never_negative(each, self.below, self.values.__getitem__) for each in wholes)


def _fits(op: Operation, sets: Sequence[Strided]) -> bool:
    """Whether what an op makes of numbers is one that its type has, so that nothing is cut off."""
    if op.name not in MAY_WRAP:
        return True
    type_ = op.results[0].type
    assert isinstance(type_, ScalarType)
    whole, found = signed(type_.bits), exact(op, sets)
    return whole.low <= found.low and found.high <= whole.high
