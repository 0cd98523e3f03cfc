"""An exchange of what a side of a branch hands on, on which all of it is still what it started as.

It may have come through other branches, by their same sides as their condition is the same, or be what a loop carries.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kinfolk.errors import KinfolkError
from kinfolk.ir.meaning import LaneFunction
from kinfolk.ir.ops import vector
from kinfolk.ir.value import Operation, Region, Value
from kinfolk.testing.mutation.mutant import Mutant
from kinfolk.testing.mutation.rewrite import Place


def still_as_started(mutant: Mutant) -> str:
    """Return why an exchange in the yield of a branch changes nothing; "" where that is not shown.

    Where one branch follows another on the same condition, a lane takes the same side of both. In a loop, where the
    condition follows from what is there before the loop, it does so in every round. What that side hands on as it came
    is then what it started as, and of two that started as the same number either may be handed on.
    """
    op = mutant.operation
    outer = list(around(mutant.original.body, op))
    if not outer or outer[0].name != "core.if":
        return ""
    place = Place(op, (), {operand: operand for operand in op.operands})
    try:
        mutant.change.edit(place)
    except (KeyError, ValueError, KinfolkError):
        return ""
    if [each.definition for each in place.operations] != [op.definition]:
        return ""
    branch = outer[0]
    sides = [number for number, region in enumerate(branch.regions) if region.operations[-1] is op]
    changed = [pair for pair in zip(op.operands, place.operations[0].operands, strict=True) if pair[0] is not pair[1]]
    if not changed or not sides:
        return ""
    if all(_same_number(*(_on_side(value, branch.operands[0], *sides) for value in pair)) for pair in changed):
        return "of the same number, which this side has handed on from its start"
    if outer[1:] and outer[1].name == "core.for" and _carried_unchanged(op, branch, outer[1], changed):
        return "of the same number, which the loop has carried from its start"
    return ""


def _on_side(value: Value, condition: Value, side: int) -> Value:
    """Return what a value is where a lane takes this side of branches on a condition: it took it of those before."""
    made = value.defining_op
    if made is None or made.name != "core.if" or not _same_condition(made.operands[0], condition):
        return value
    handed = made.regions[side].operations[-1].operands
    given = next(operand for operand, result in zip(handed, made.results, strict=True) if result is value)
    return _on_side(given, condition, side)


def _same_condition(one: Value, other: Value, steps: int = 8) -> bool:
    """Whether two values are one, or computed alike from the same values."""
    if one is other:
        return True
    made = [value.defining_op for value in (one, other)]
    if steps == 0 or made[0] is None or made[1] is None or not isinstance(made[0].definition.meaning, LaneFunction):
        return False
    alike = made[0].definition is made[1].definition and made[0].attributes == made[1].attributes
    operands = zip(made[0].operands, made[1].operands, strict=False)
    return alike and all(_same_condition(*pair, steps - 1) for pair in operands)


def _carried_unchanged(
    op: Operation, branch: Operation, loop: Operation, changed: Sequence[tuple[Value, Value]]
) -> bool:
    """Whether each pair is of values that a loop has carried unchanged on this side, and that started alike."""
    body = loop.regions[0]
    if not _is_invariant(branch.operands[0], _defined(body)):
        return False
    starts = dict(zip(body.arguments[1:], loop.operands[3:], strict=True))
    kept = {
        argument
        for argument, after in zip(starts, body.operations[-1].operands, strict=True)
        for handed, result in zip(op.operands, branch.results, strict=True)
        if handed is argument and result is after
    }
    return all(kept.issuperset(pair) and _same_number(*(starts[each] for each in pair)) for pair in changed)


def around(region: Region, op: Operation) -> Iterator[Operation]:
    """Yield the operations that an operation is inside of, the nearest first."""
    for each in region.operations:
        for inner in each.regions:
            if op in inner.walk():
                yield from around(inner, op)
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
