"""A change that makes no difference for any number of a parameter that has few: each is looked at alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from kinfolk.analysis.values import Values
from kinfolk.ir.value import Kernel, Value
from kinfolk.testing.mutation.mutant import Mutant

MOST_NUMBERS: Final = 8
_MOST_STEPS: Final = 12


def in_each_case(mutant: Mutant, values_of: Callable[[Value, int], Values], shown: Callable[[Values], str]) -> str:
    """Return what is `shown` of a mutant for each number of a parameter that its operation is made of; "" where it is
    not for all of them, or no such parameter has few numbers.

    `values_of` are those of the kernel without the change where a parameter is a number.
    """
    for parameter, numbers in _few(mutant.original, list(mutant.operation.operands)):
        if all(shown(values_of(parameter, each)) for each in numbers):
            return f"no difference for any of the {len(numbers)} numbers that a parameter may be"
    return ""


def _few(kernel: Kernel, made_of: list[Value]) -> Iterator[tuple[Value, range]]:
    """Yield the parameters that values are made of and that have few numbers, with these."""
    ranges = {
        value: range(parameter.bounds[0], parameter.bounds[1] + 1)
        for parameter, value in zip(kernel.parameters, kernel.body.arguments, strict=True)
        if parameter.is_integer and parameter.bounds[1] - parameter.bounds[0] < MOST_NUMBERS
    }
    found: set[Value] = set()
    for _ in range(_MOST_STEPS):
        yield from (
            (value, ranges[value]) for value in dict.fromkeys(made_of) if value in ranges and value not in found
        )
        found.update(made_of)
        makers = [value.defining_op for value in made_of]
        made_of = [operand for op in makers if op is not None for operand in op.operands if operand not in found]
