"""A view whose bound is a few elements off, where every access lies on one side of the elements in between.

Rows lie one after the other, and the view has so many of them: the place of a row times its width, and something less
than that, is where an access begins. A row is inside the view or not, whatever the place, and of the elements at the
edge between rows nobody reads any.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from kinfolk.analysis.strided import Strided
from kinfolk.analysis.values import Values
from kinfolk.errors import KinfolkError
from kinfolk.ir.meaning import MemoryAccess
from kinfolk.ir.ops import arithmetic
from kinfolk.ir.value import Operation, Value
from kinfolk.testing.mutation.exhaustive import constants_of
from kinfolk.testing.mutation.mutant import Mutant
from kinfolk.testing.mutation.rewrite import Place
from kinfolk.testing.mutation.spread import Differs, accessed_elements
from kinfolk.testing.mutation.sums import Sum, never_negative, sum_of

Sets = Callable[[Value], Strided]


def none_between(mutant: Mutant, values: Values, below: Mapping[Value, Value]) -> str:
    """Return why no access is of the elements by which a view's bound is off; "" where that is not shown.

    `values` and `below` are as for `dies_out`.
    """
    op, meaning = mutant.operation, mutant.operation.definition.meaning
    if not isinstance(meaning, MemoryAccess) or meaning.action != "bound" or op not in values.seen:
        return ""
    place = Place(op, (), {operand: operand for operand in op.operands})
    try:
        mutant.change.edit(place)
        *moved, last = place.operations
        amount = _amount(op, moved, last)
        users = [each for each in mutant.original.walk() if _places(each, op.results[0])]
        if not amount or not all(_beside(each, op, amount, values, below) for each in users):
            return ""
    except (Differs, KinfolkError, KeyError, ValueError):
        return ""
    return f"no access is of the elements by which the bound is off, of {len(users)}"


def _amount(op: Operation, moved: list[Operation], last: Operation) -> int:
    """Return by how much the bound is off; 0 where it is another one altogether."""
    again = last.definition is op.definition and last.operands[0] is op.operands[0]
    ends = [each for each in moved if each.results[0] is last.operands[1]]
    if not again or len(moved) != 2 or [each.definition for each in ends] != [arithmetic.add]:
        return 0
    (amount,) = constants_of(moved)
    return amount if ends[0].operands[0] is op.operands[1] else 0


def _beside(access: Operation, bound: Operation, amount: int, values: Values, below: Mapping[Value, Value]) -> bool:
    """Whether an access of a view that has so many rows is never of the elements around its bound."""
    sets: Sets = values.__getitem__
    if _places(access, bound.results[0]) != [0]:
        return False
    offset, count = accessed_elements(access)
    seen = values.seen.get(access)
    made = bound.operands[1].defining_op
    if seen is None or seen[1].low + offset < 0 or made is None or made.definition is not arithmetic.mul:
        return False
    for row in made.operands if made.attributes["nsw"] is True else ():
        for rest in _without_rows(access.operands[1], row, sets):
            begin, width = rest + Sum.of(offset), sum_of(row, {}, sets)
            if never_negative(begin - Sum.of(max(amount, 0)), below, sets) and never_negative(
                width - begin - Sum.of(count - min(amount, 0)), below, sets
            ):
                return True
    return False


def _without_rows(index: Value, row: Value, sets: Sets) -> Iterator[Sum]:
    """Yield what an index is less one of its terms that is a place times the width of a row."""
    whole = sum_of(index, {}, sets)
    for term in _terms(index):
        made = term.defining_op
        product = made is not None and made.definition is arithmetic.mul and made.attributes["nsw"] is True
        if made is not None and product and _places(made, row):
            yield whole - sum_of(term, {}, sets)


def _places(op: Operation, value: Value) -> list[int]:
    return [place for place, operand in enumerate(op.operands) if operand is value]


def _terms(value: Value) -> Iterator[Value]:
    """Yield what a value is the sum of."""
    made = value.defining_op
    if made is not None and made.definition is arithmetic.add and made.attributes["nsw"] is True:
        for operand in made.operands:
            yield from _terms(operand)
    else:
        yield value
