"""An exchange of what a loop carries, on a side of a branch on which all of it is still what it started as."""

from __future__ import annotations

from collections.abc import Iterator

from kinfolk.errors import KinfolkError
from kinfolk.ir.meaning import LaneFunction
from kinfolk.ir.ops import vector
from kinfolk.ir.value import Operation, Region, Value
from kinfolk.testing.mutation.mutant import Mutant
from kinfolk.testing.mutation.rewrite import Place


def still_as_started(mutant: Mutant) -> str:
    """Return why an exchange in the yield of a branch changes nothing; "" where that is not shown.

    The condition follows from what is there before the loop, so a lane takes the same side in every round. What that
    side hands on as it came is then what it started as, and of two that started as the same number either may be
    handed on.
    """
    op = mutant.operation
    around = list(_around(mutant.original.body, op))
    if [each.name for each in around[:2]] != ["core.if", "core.for"]:
        return ""
    branch, loop = around[:2]
    body = loop.regions[0]
    place = Place(op, (), {operand: operand for operand in op.operands})
    try:
        mutant.change.edit(place)
    except (KeyError, ValueError, KinfolkError):
        return ""
    again = [each.definition for each in place.operations] == [op.definition]
    if not again or not _is_invariant(branch.operands[0], _defined(body)):
        return ""
    starts = dict(zip(body.arguments[1:], loop.operands[3:], strict=True))
    kept = {
        argument
        for argument, after in zip(starts, body.operations[-1].operands, strict=True)
        for handed, result in zip(op.operands, branch.results, strict=True)
        if handed is argument and result is after
    }
    changed = [pair for pair in zip(op.operands, place.operations[0].operands, strict=True) if pair[0] is not pair[1]]
    for pair in changed:
        if not kept.issuperset(pair) or not _same_number(*(starts[each] for each in pair)):
            return ""
    return "of the same number, which the loop has carried from its start" if changed else ""


def _around(region: Region, op: Operation) -> Iterator[Operation]:
    """Yield the operations that an operation is inside of, the nearest first."""
    for each in region.operations:
        for inner in each.regions:
            if op in inner.walk():
                yield from _around(inner, op)
                yield each
                return


def _defined(region: Region) -> set[Value]:
    """Return what is defined in a region or in one inside of it."""
    found = set(region.arguments)
    for op in region.walk():
        found.update(op.results, *(inner.arguments for inner in op.regions))
    return found


def _is_invariant(value: Value, inside: set[Value]) -> bool:
    """Whether a lane has one number for a value in all rounds of a loop, which defines the values `inside`."""
    made = value.defining_op
    if value not in inside:
        return True
    if made is None or not isinstance(made.definition.meaning, LaneFunction):
        return False
    return all(_is_invariant(operand, inside) for operand in made.operands)


def _same_number(one: Value, other: Value) -> bool:
    """Whether two values are one, or constants of the same bits."""
    made = [value.defining_op for value in (one, other)]
    constants = [op.attributes for op in made if op is not None and op.definition is vector.constant]
    return one is other or (one.type == other.type and len(constants) == 2 and constants[0] == constants[1])
