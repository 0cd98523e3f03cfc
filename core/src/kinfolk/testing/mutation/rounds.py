"""A loop whose bound is off, and that goes as many rounds: where its step passes over the bound as it is."""

from __future__ import annotations

from kinfolk.analysis.strided import Strided
from kinfolk.analysis.values import Values
from kinfolk.errors import KinfolkError
from kinfolk.ir.ops import arithmetic
from kinfolk.testing.mutation.mutant import Mutant
from kinfolk.testing.mutation.rewrite import Place


def as_many_rounds(mutant: Mutant, values: Values) -> str:
    """Return why a loop with another upper bound goes as many rounds; "" where that is not shown.

    `values` are those of the kernel without the change.
    """
    op, sets = mutant.operation, values.seen.get(mutant.operation)
    if op.name != "core.for" or sets is None:
        return ""
    place = Place(op, op.regions, {operand: operand for operand in op.operands})
    try:
        mutant.change.edit(place)
    except (KeyError, ValueError, KinfolkError):
        return ""
    *_, again = place.operations
    changed = [number for number, each in enumerate(again.operands) if each is not op.operands[number]]
    moved = again.operands[1].defining_op
    if again.definition is not op.definition or changed != [1] or moved is None:
        return ""
    begin, end, step = (each.single for each in (sets[0], _rest(sets[1], sets[2].single), sets[2]))
    amount = moved.operands[1].defining_op if moved.definition is arithmetic.add else None
    if begin is None or end is None or step is None or amount is None or moved.operands[0] is not op.operands[1]:
        return ""
    bits = amount.attributes.get("bits")
    fewer = (1 << 32) - bits if isinstance(bits, int) and bits >> 31 else 0
    if (end - begin) % step or not 0 < fewer < step or sets[1].low - fewer < -(1 << 31):
        return ""
    return f"as many rounds: the bound is a number of whole steps of {step} from the first index"


def _rest(numbers: Strided, step: int | None) -> Strided:
    """Return what all numbers leave when divided by a step; the numbers where they leave several."""
    if step is None or numbers.step % step:
        return numbers
    return Strided(numbers.rest % step, numbers.rest % step, 0, numbers.rest % step)
