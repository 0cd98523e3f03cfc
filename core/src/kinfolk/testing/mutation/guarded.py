"""A change of a number that is the same wherever branches let something be done with it.

All that depends on the number is inside of the same sides of branches. Each way in which their conditions come out so
is looked at alone: what is known of values then is worked out again from the kernel's beginning, and from it the
number before and after the change.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import product, takewhile
from typing import TYPE_CHECKING, Final

from kinfolk.analysis.conditions import assumed
from kinfolk.analysis.strided import Strided, joined, met, number
from kinfolk.analysis.values import Values, computed
from kinfolk.errors import KinfolkError
from kinfolk.ir.meaning import MemoryAccess
from kinfolk.ir.ops import arithmetic
from kinfolk.ir.types import ViewType
from kinfolk.ir.value import Operation, Region, Value
from kinfolk.testing.mutation.exhaustive import is_of_integers
from kinfolk.testing.mutation.mutant import Mutant
from kinfolk.testing.mutation.operators.declare import is_integer
from kinfolk.testing.mutation.rewrite import Place

if TYPE_CHECKING:
    from kinfolk.arch import Arch

MOST_WAYS: Final = 16
"""Ways in which conditions come out, and numbers of a parameter for each of which all that follows is worked out."""
MOST_CHOICES: Final = 4
Condition = tuple[Value, bool]
"""A condition (i1), and whether it holds."""
Path = tuple[tuple[Operation, int], ...]
"""The operations that one is inside of, the outermost first, each with the number of its region."""
Known = Mapping[Value, Strided]


def same_where_used(mutant: Mutant, arch: Arch, below: Mapping[Value, Value]) -> str:
    """Return in how many cases all that uses a changed number runs, in each of which it is the same; "" where that is
    not shown.

    `below` says of places in the grid that they are less than a parameter.
    """
    op = mutant.operation
    if not is_of_integers(op):
        return ""
    place = Place(op, (), {operand: operand for operand in op.operands})
    try:
        (result,) = mutant.change.edit(place)
    except (KeyError, ValueError, KinfolkError):
        return ""
    if any(not is_of_integers(each) or each.attributes.get("nsw") for each in place.operations):
        return ""
    guarded = _Guarded(mutant, arch, below, place.operations, result)
    count = guarded.cases()
    return f"the same number in all {count} cases in which something is done with it" if count else ""


class _Guarded:
    """What is made of a changed number before anything is done with it, and the branches in which that is done.

    `made` are ops that make an integer of it and claim nothing, `places` those that make an address or a view of it.
    """

    def __init__(
        self, mutant: Mutant, arch: Arch, below: Mapping[Value, Value], instead: Sequence[Operation], result: Value
    ) -> None:
        self._kernel, self._arch, self._below = mutant.original, arch, below
        self._op, self._instead, self._result = mutant.operation, instead, result
        self._paths: dict[Operation, Path] = {}
        self._users: dict[Value, list[Operation]] = {}
        self._survey(self._kernel.body, ())
        self._made: list[Operation] = []
        self._places: list[Operation] = []
        self._guards = self._found_guards(self._followed())
        chosen = [each.operands[0] for each in (self._op, *instead, *self._made) if each.name == "core.select"]
        self._choices = [value for value in dict.fromkeys(chosen) if value.defining_op not in instead]
        self._only = self._needed([value for value, _ in self._guards])
        used = {operand for each in self._only for operand in each.operands}
        self._parameters = [each for each in self._kernel.body.arguments if each in used and is_integer(each.type)]

    def _survey(self, region: Region, path: Path) -> None:
        for op in region.operations:
            self._paths[op] = path
            for operand in op.operands:
                self._users.setdefault(operand, []).append(op)
            for side, inner in enumerate(op.regions):
                self._survey(inner, (*path, (op, side)))

    def _followed(self) -> list[Operation]:
        """Find what is made of the number beside it; return what uses that, or the number itself."""
        ends: list[Operation] = []
        home = self._paths[self._op]
        open_ = [*self._op.results]
        while open_:
            for user in self._users.get(open_.pop(), ()):
                meaning = user.definition.meaning
                if self._paths[user] != home:
                    known = ends
                elif is_of_integers(user) and not user.attributes.get("nsw"):
                    known = self._made
                elif isinstance(meaning, MemoryAccess) and meaning.action in ("offset", "bound"):
                    known = self._places
                else:
                    known = ends
                if user not in known:
                    known.append(user)
                    open_ += user.results if known is not ends else ()
        return ends

    def _found_guards(self, ends: Sequence[Operation]) -> list[Condition]:
        """Return the conditions of the branches inside of which all of `ends` are; none where the number is computed in
        a loop, whose rounds are not told from each other.
        """
        home = self._paths[self._op]
        if any(op.name != "core.if" for op, _ in home):
            return []
        around = zip(*(self._paths[end][len(home) :] for end in ends), strict=False)
        shared = takewhile(lambda each: each[0][0].name == "core.if" and len(set(each)) == 1, around)
        return [(op.operands[0], side == 0) for (op, side), *_ in shared]

    def _needed(self, conditions: Sequence[Value]) -> frozenset[Operation]:
        """Return what makes conditions and all that is made of the number, with the operations around."""
        found: set[Operation] = set()
        open_ = [self._op, *self._made, *self._places, *(value.defining_op for value in conditions)]
        while open_:
            op = open_.pop()
            if op is None or op in found:
                continue
            around = [each for each, _ in self._paths[op]]
            found.update((op, *around))
            operands = (*op.operands, *(each.operands[0] for each in around))
            open_ += [value.defining_op for value in operands]
        return frozenset(found)

    def cases(self) -> int:
        """Return in how many cases what uses the number runs, if it is the same in all of them; else 0."""
        ways = [sum(way, ()) for way in product(*(_ways(*guard) for guard in self._guards))]
        if not self._guards or len(ways) > MOST_WAYS or len(self._choices) > MOST_CHOICES:
            return 0
        if not self._views_hold(self._again({})):
            return 0
        choices = [
            tuple(zip(self._choices, holds, strict=True)) for holds in product((True, False), repeat=len(self._choices))
        ]
        count = 0
        for guards in ways:
            for known in self._numbers(self._where(guards, {})):
                for choice in choices:
                    found = self._where(choice, known)
                    if found is not None:
                        count += 1
                        if not self._is_same(self._again(found)):
                            return 0
        return count

    def _views_hold(self, values: Values) -> bool:
        """Whether views that are made outside of the branches are no larger than without the change, and of words."""
        for op in self._places:
            (result,) = op.results
            if isinstance(result.type, ViewType) and self._depends(op.operands[1]):
                _, size = self._found(op.operands[1], values, changed=True)
                if result.type.element.bytes % 4 or size.low < 0 or size.high > values[op.operands[1]].high:
                    return False
        return True

    def _depends(self, value: Value) -> bool:
        return value.defining_op is self._op or value.defining_op in self._made

    def _again(self, known: Known) -> Values:
        return Values(self._kernel, self._arch, given=known, only=self._only)

    def _where(self, conditions: Sequence[Condition], known: Known) -> Known | None:
        """Return what more is known where conditions come out so; None where they cannot."""
        for condition, holds in conditions:
            found = assumed(condition, holds, self._again(known))
            if found is None:
                return None
            known = {**known, **found}
        return known

    def _numbers(self, known: Known | None) -> Iterator[Known]:
        """Yield what is known with places in the grid as they are then, for each number of parameters that have few."""
        if known is None:
            return
        values = self._again(known)
        for place, size in self._below.items():
            less = met(values[place], 0, values[size].high - 1)
            if less is None:
                return
            known = {**known, place: less}
        sets = {value: values[value] for value in self._parameters}
        few = {value: _members(each) for value, each in sets.items() if each.high - each.low < MOST_WAYS}
        if math.prod(map(len, few.values())) > MOST_WAYS:
            few = {}
        for numbers in product(*few.values()):
            yield {**known, **{value: number(each) for value, each in zip(few, numbers, strict=True)}}

    def _is_same(self, values: Values) -> bool:
        """Whether what is used of the number, and what places are made of, is the same."""
        used = [value for op in (self._op, *self._made) for value in op.results if self._is_used(value)]
        for value in used:
            before, size = self._found(value, values, changed=False)
            after, changed = self._found(value, values, changed=True)
            alike = before is after and not self._depends(before)
            if not alike and (size.single is None or size.single != changed.single):
                return False
        return True

    def _is_used(self, value: Value) -> bool:
        return any(user not in self._made for user in self._users.get(value, ()))

    def _found(self, value: Value, values: Values, *, changed: bool) -> tuple[Value, Strided]:
        """Return what a value is, seen through selections whose conditions are known, and which numbers it may be."""
        made = value.defining_op
        if changed and made is self._op:
            return self._found(self._result, values, changed=True)
        if made is None or made not in (self._op, *self._made, *self._instead):
            return value, values[value]
        found = [self._found(each, values, changed=changed) for each in made.operands]
        sets = [each for _, each in found]
        if made.definition is arithmetic.select:
            holds = sets[0].single
            return (value, joined(*sets[1:])) if holds is None else found[1 if holds else 2]
        return value, computed(made, sets) if changed else values[value]


def _ways(condition: Value, holds: bool) -> list[tuple[Condition, ...]]:
    """Return the ways in which a condition comes out so, by those that it is made of."""
    made = condition.defining_op
    if made is None or made.name not in ("core.and", "core.or"):
        return [((condition, holds),)]
    one, other = (_ways(each, holds) for each in made.operands)
    if (made.name == "core.and") is holds:
        return [(*a, *b) for a, b in product(one, other)]
    return [*one, *other]


def _members(numbers: Strided) -> range:
    return range(numbers.low, numbers.high + 1, numbers.step or 1)
