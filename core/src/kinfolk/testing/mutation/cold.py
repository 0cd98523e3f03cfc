"""Branches marked `cold` that only leave work out: each may be taken at any time, so a kernel is right if all are.

A short cut past work hides what is wrong with the work where it is seldom done. One that writes memory is no short cut.
"""

from __future__ import annotations

from kinfolk.ir.types import I1
from kinfolk.ir.value import Kernel, Operation
from kinfolk.testing.mutation.operators.declare import is_short_cut, operand_replaced
from kinfolk.testing.mutation.rewrite import Edit, all_rewritten


def always_taken(kernel: Kernel) -> Kernel | None:
    """Return a kernel whose short cuts are never taken; None where it has none."""
    taken = operand_replaced(0, lambda place, _: place.bits(1, I1))
    edits: dict[Operation, Edit] = {op: taken for op in kernel.walk() if is_short_cut(op)}
    return all_rewritten(kernel, edits) if edits else None
