"""The operators of mutation: what a kernel is changed by, over the op table and for no family in particular."""

from __future__ import annotations

from typing import Final

from kinfolk.testing.mutation.operators import arithmetic, control, lanes, memory
from kinfolk.testing.mutation.operators.declare import Change, Operator, Surroundings

OPERATORS: Final[tuple[Operator, ...]] = (
    *control.OPERATORS,
    *memory.OPERATORS,
    *lanes.OPERATORS,
    *arithmetic.OPERATORS,
)

__all__ = ["OPERATORS", "Change", "Operator", "Surroundings"]
