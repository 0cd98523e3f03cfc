"""A change that computes the same sum of products, in another order or in other widths: whatever its operands are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from kinfolk.analysis.strided import Strided, signed
from kinfolk.analysis.transfer import MAY_WRAP, exact
from kinfolk.analysis.values import Values, computed
from kinfolk.errors import KinfolkError
from kinfolk.ir.ops import arithmetic, convert, vector
from kinfolk.ir.types import ScalarType
from kinfolk.ir.value import Operation, Value
from kinfolk.testing.mutation.mutant import Mutant
from kinfolk.testing.mutation.rewrite import Place
from kinfolk.testing.mutation.sums import MOST_TERMS, Sum, sum_of

_SUMS: Mapping[object, Callable[[Sum, Sum], Sum]] = {
    arithmetic.add: lambda one, other: one + other,
    arithmetic.sub: lambda one, other: one - other,
    arithmetic.mul: lambda one, other: one * other,
}
_SAME = (convert.sext, convert.zext, convert.trunc)


def same_sum(mutant: Mutant, values: Values) -> str:
    """Return why a mutant computes the same sum as its kernel; "" where that is not shown.

    `values` are those of the kernel without the change. Every sum and product of either fits its type: none wraps.
    """
    op, sets = mutant.operation, values.seen.get(mutant.operation)
    if sets is None or not op.operands or op.regions:
        return ""
    place = Place(op, (), {operand: operand for operand in op.operands})
    try:
        (result,) = mutant.change.edit(place)
    except (KeyError, ValueError, KinfolkError):  # it takes other values, or several
        return ""
    before = _sum([op], op.results[0], sets, op.operands, values)
    after = _sum(place.operations, result, sets, op.operands, values)
    if before is None or after is None or (before - after).terms or op.results[0].type != result.type:
        return ""
    return "the same sum of products, which fits its type"


def _sum(
    ops: Sequence[Operation], result: Value, sets: Sequence[Strided], operands: Sequence[Value], values: Values
) -> Sum | None:
    """Return what a value is a sum of, which `ops` make of operands; None where it is none, or may wrap."""
    known = dict(zip(operands, sets, strict=True))
    found: dict[Value, Sum] = {}
    for operand, numbers in known.items():
        made = operand.defining_op
        if not isinstance(operand.type, ScalarType) or operand.type.kind != "int":
            return None
        single = numbers.single is not None
        found[operand] = Sum.of(numbers.low) if single or made is None else sum_of(operand, {}, values.__getitem__)
    for op in ops:
        type_ = op.results[0].type if len(op.results) == 1 else None
        if not isinstance(type_, ScalarType) or type_.kind != "int":
            return None
        made_of = [known[operand] for operand in op.operands]
        known[op.results[0]] = numbers = computed(op, made_of)
        fits = _fits(op, made_of, type_)
        if op.definition is vector.constant:
            found[op.results[0]] = Sum.of(numbers.low)
        elif op.definition in _SUMS and fits:
            found[op.results[0]] = _SUMS[op.definition](*(found[operand] for operand in op.operands))
        elif op.definition in _SAME and fits and numbers == made_of[0]:
            found[op.results[0]] = found[op.operands[0]]
        else:
            return None
        if len(found[op.results[0]].terms) > MOST_TERMS:
            return None
    return found[result]


def _fits(op: Operation, sets: Sequence[Strided], type_: ScalarType) -> bool:
    """Whether what an op makes of numbers is one that its type has, so that nothing is cut off."""
    whole, found = signed(type_.bits), exact(op, sets)
    return op.name not in MAY_WRAP or (whole.low <= found.low and found.high <= whole.high)
