"""Divisions in loops that are no shift: what each costs is paid in every round."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import attrs

from kinfolk.analysis.comparisons import constant_of
from kinfolk.check.defect import Defect
from kinfolk.ir.meaning import Control

if TYPE_CHECKING:
    from kinfolk.analysis.subject import Subject
    from kinfolk.ir.value import Kernel, Operation, Region

CHECK: Final = "loop_division"
DIVISIONS: Final = ("core.udiv", "core.urem", "core.sdiv", "core.srem")


@attrs.frozen
class Division:
    """A division or remainder in a loop by `divisor`, None where that is not known before the kernel runs.

    `cold`: in a branch that is rarely taken.
    """

    op: Operation
    divisor: int | None
    cold: bool

    def __str__(self) -> str:
        by = "a value known only when it runs" if self.divisor is None else f"{self.divisor}, which is no power of two"
        place = "a cold branch of a loop" if self.cold else "a loop"
        return f"{self.op.name} by {by} in {place} (at {self.op.location})"


def loop_divisions(kernel: Kernel) -> tuple[Division, ...]:
    """Return the divisions in loops of a kernel by anything but a constant power of two, in order of the text."""
    return tuple(_of(kernel.body, in_loop=False, cold=False))


def divided_in_loops(subject: Subject) -> tuple[Defect, ...]:
    """Return a defect for each division by a runtime value in a loop, outside its cold branches.

    It takes tens of instructions where a multiplication takes one. Those by a constant are a few, and only listed, by
    `loop_divisions`.
    """
    return tuple(
        Defect(
            check=CHECK,
            where=str(each.op.location),
            problem=f"{each.op.name} divides by a value known only when the kernel runs, in every round of a loop",
            remedy="compile the divisor in, divide before the loop, or count up to it from round to round",
        )
        for each in loop_divisions(subject.kernel)
        if each.divisor is None and not each.cold
    )


def _of(region: Region, *, in_loop: bool, cold: bool) -> Iterator[Division]:
    for op in region.operations:
        if in_loop and op.name in DIVISIONS:
            divisor = constant_of(op.operands[1])
            if divisor is None or divisor <= 0 or divisor & (divisor - 1):
                yield Division(op, divisor, cold)
        loop = in_loop or op.definition.meaning == Control("for")
        for inner in op.regions:
            yield from _of(inner, in_loop=loop, cold=cold or bool(op.attributes.get("cold")))
