"""Barriers that waves come to at different ops, by place: every wave must come to each place equally often."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from kinfolk.analysis.uniformity import Level
from kinfolk.check.defect import Defect
from kinfolk.ir.meaning import Control

if TYPE_CHECKING:
    from kinfolk.analysis.subject import Subject
    from kinfolk.analysis.values import Values
    from kinfolk.ir.value import Operation, Region

Nest = tuple[object, ...]
"""The loops and branches around a barrier that all waves of the workgroup run alike: their bounds, or condition and
side."""


class _Undecided(Exception):  # never leaves the analysis: it is told as a defect
    """Whether a wave comes to a barrier, or how often, is not known of each wave by itself."""

    def __init__(self, op: Operation) -> None:
        super().__init__()
        self.op = op


def uneven_meetings(subject: Subject, check: str) -> tuple[Defect, ...]:
    """Return a defect, of a check, where not all waves are known to come to as many barriers of each place.

    Looked at are kernels in which `core.meet` stands where some waves come alone. In what order they come to several
    places is not.
    """
    apart = [op for op in subject.kernel.walk() if "place" in op.attributes and _alone(subject, op)]
    if not apart:
        return ()
    where, needed = str(apart[0].location), "let each wave meet as often as the others, wherever that is"
    try:
        counts = [_Counting(subject, values).region(subject.kernel.body, ()) for values in subject.values_by_wave]
    except _Undecided as undecided:
        what = "loop" if undecided.op.definition.meaning == Control("for") else "branch"
        problem = (
            f"some waves come to core.meet here, and others are not known to meet them: the {what} at "
            f"{undecided.op.location} is decided by a value that is not known for each wave"
        )
        return (Defect(check=check, where=where, problem=problem, remedy=needed),)
    for wave, count in enumerate(counts):
        if count != counts[0]:
            place = next(place for _, place in (count - counts[0]) + (counts[0] - count))
            often = [sum(times for (_, at), times in each.items() if at == place) for each in (counts[0], count)]
            problem = f"wave 0 meets at {place!r} {often[0]} times and wave {wave} {often[1]} times, loops counted once"
            return (Defect(check=check, where=where, problem=problem, remedy=needed),)
    return ()


def _alone(subject: Subject, op: Operation) -> bool:
    return any(level is Level.WAVE for _, level in subject.uniformity.around(op))


class _Counting:
    """How often one wave comes to the barriers of each place, by the loops and branches that all waves run alike."""

    def __init__(self, subject: Subject, values: Values) -> None:
        self._uniformity, self._values = subject.uniformity, values

    def region(self, region: Region, nest: Nest) -> Counter[tuple[Nest, object]]:
        """Return the counts of a region that is run once."""
        found: Counter[tuple[Nest, object]] = Counter()
        for op in region.operations:
            match op.definition.meaning:
                case Control("barrier"):
                    found[nest, op.attributes.get("place", op.name)] += 1
                case Control("if"):
                    found += self._branch(op, nest)
                case Control("for"):
                    found += self._loop(op, nest)
                case _:
                    pass
        return found

    def _branch(self, op: Operation, nest: Nest) -> Counter[tuple[Nest, object]]:
        condition = op.operands[0]
        if self._uniformity[condition] is Level.WORKGROUP:
            sides = [self.region(each, (*nest, condition, side)) for side, each in enumerate(op.regions)]
            return sides[0] + sides[1]
        known = self._values[condition].single
        if known is not None:
            return self.region(op.regions[0 if known else 1], nest)
        then, other = (self.region(each, nest) for each in op.regions)
        if then != other:
            raise _Undecided(op)
        return then

    def _loop(self, op: Operation, nest: Nest) -> Counter[tuple[Nest, object]]:
        bounds = op.operands[:3]
        lower, upper, step = (self._values[bound].single for bound in bounds)
        if lower is not None and upper is not None and step:
            rounds = len(range(lower, upper, step))
            once = self.region(op.regions[0], nest) if rounds else Counter[tuple[Nest, object]]()
            return Counter({at: rounds * times for at, times in once.items()})
        if all(self._uniformity[bound] is Level.WORKGROUP for bound in bounds):
            return self.region(op.regions[0], (*nest, bounds))
        once = self.region(op.regions[0], nest)
        if once:
            raise _Undecided(op)
        return once
