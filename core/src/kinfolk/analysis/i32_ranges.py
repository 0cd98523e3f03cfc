"""Sums and products of 32 bits that may not fit: proved from the bounds of parameters, or told with those that break.

What claims not to wrap (`nsw`) must fit wherever it stands, and so must what an op claims of its operands: the bytes
of a view, the place in it, the count of a loop. What wraps by declaration must not reach an address, a signed
comparison or the bound of a loop without a range check behind it. Sums of 64 bits are not judged: what they address is
no larger than memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import attrs

from kinfolk.analysis.breaking import smallest_breaking
from kinfolk.analysis.indirection import reached_by
from kinfolk.analysis.strided import Strided, added, multiplied, number, signed
from kinfolk.analysis.transfer import MAY_WRAP, exact
from kinfolk.analysis.wording import worded
from kinfolk.check.defect import Defect
from kinfolk.ir.meaning import Control, MemoryAccess
from kinfolk.ir.types import ScalarType, VectorType, ViewType, element_type

if TYPE_CHECKING:
    from kinfolk.analysis.subject import Subject
    from kinfolk.analysis.values import Values
    from kinfolk.ir.value import Kernel, Operation

CHECK: Final = "i32_range"
MOST: Final = 2**31 - 1
MOST_SEARCHES: Final = 8
"""For so many lines of a kernel the smallest bounds that break are searched: a few tens of milliseconds each."""


@attrs.frozen
class _Claim:
    """A number of an op, in words, the set it lies in, and the bounds that it must keep."""

    words: str
    numbers: Strided
    low: int
    high: int

    @property
    def kept(self) -> bool:
        return self.low <= self.numbers.low and self.numbers.high <= self.high

    def excess(self) -> str:
        """Return how far it may go: past the end that is further off."""
        over, under = self.numbers.high - self.high, self.low - self.numbers.low
        if over >= under:
            return f"{self.words} exceeds {_bound(self.high)}"
        return f"{self.words} falls below {_bound(self.low)}"


def _bound(value: int) -> str:
    return {MOST: "2^31-1", -MOST - 1: "-2^31"}.get(value, f"{value:,}")


def i32_ranges(subject: Subject) -> tuple[Defect, ...]:
    """Return a defect for each op whose numbers are not proved to fit 32 bits, with the smallest bounds that break."""
    kernel = subject.kernel

    def judge(values: Values) -> Mapping[Operation, tuple[_Claim, str]]:
        broken = {op: claim for op in values.seen if (claim := _claim(op, values, kernel)) and not claim.kept}
        wraps = {op for op in broken if op.name in MAY_WRAP and not op.attributes.get("nsw")}
        ways: dict[Operation, str] = {}
        for each in reached_by(kernel, wraps) if wraps else ():
            ways.setdefault(each.chain[0], f", and wraps on its way to {each.what} at {each.op.location}")
        return {op: (claim, ways.get(op, "")) for op, claim in broken.items() if op not in wraps or op in ways}

    broken = subject.unproved(judge)
    lines = {str(op.location): op for op in reversed(broken)}  # the first op of each line
    told = [op for op in broken if lines[str(op.location)] is op]
    return tuple(_defect(subject, op, *broken[op], search=place < MOST_SEARCHES) for place, op in enumerate(told))


def _defect(subject: Subject, op: Operation, claim: _Claim, more: str, *, search: bool) -> Defect:
    at: dict[str, int] = {}
    if search:
        at, values = smallest_breaking(subject, op, lambda values: _broken(op, values, subject.kernel))
        claim = (_claim(op, values, subject.kernel) if op in values.seen else None) or claim
    numbers = [f"{name} = {value:,}" for name, value in at.items()]
    where = f" at {numbers[0]}" if numbers else f": it may be {claim.numbers}"
    others = f" with {' and '.join(numbers[1:])}" if numbers[1:] else ""
    return Defect(
        check=CHECK,
        where=str(op.location),
        problem=f"{claim.excess()}{where}{others}{more}",
        remedy="declare closer bounds of the parameters in it, check the loaded values in it, or compute in i64",
    )


def _broken(op: Operation, values: Values, kernel: Kernel) -> bool:
    if op not in values.seen:
        return False
    claim = _claim(op, values, kernel)
    return claim is not None and not claim.kept


def _claim(op: Operation, values: Values, kernel: Kernel) -> _Claim | None:
    """Return the number of an op that must fit, None where it has none."""
    sets, meaning = values.seen[op], op.definition.meaning
    if op.name in MAY_WRAP:
        return _sum(op, sets, kernel)
    match meaning:
        case Control(kind="for"):
            lower, upper, step = sets[:3]
            words = "the index of the loop, a step past its last,"
            if lower.low >= upper.high:
                return None
            return _Claim(words, added(upper, added(step, number(-1))), -MOST - 1, MOST)
        case MemoryAccess(action="bound"):
            size = element_type(op.operands[0].type).bytes
            words = f"the size of a view, {worded(op.operands[1], kernel)} elements of {size} bytes,"
            return _Claim(words, multiplied(sets[1], number(size)), 0, MOST)
        case MemoryAccess(space="view") if isinstance(op.operands[0].type, ViewType):
            size, extra = element_type(op.operands[0].type).bytes, op.attributes.get("offset", 0)
            assert isinstance(extra, int)
            place = sets[1] if meaning.action == "stage" else added(sets[1], number(extra))
            words = f"the place in a view, {worded(op.operands[1], kernel)} times {size} bytes,"
            return _Claim(words, multiplied(place, number(size)), -MOST - 1, MOST)
        case _:
            return None


def _sum(op: Operation, sets: tuple[Strided, ...], kernel: Kernel) -> _Claim | None:
    type_ = op.results[0].type
    if not isinstance(type_, (ScalarType, VectorType)) or not 1 < element_type(type_).bits <= 32:
        return None
    whole = signed(element_type(type_).bits)
    words = worded(op.results[0], kernel)
    if op.name == "core.trunc":
        words = f"{words}, cut to {type_},"
    return _Claim(words, exact(op, sets), whole.low, whole.high)
