"""A change whose difference dies out: no op that depends on it does anything else, whatever numbers there are.

What an op computes with the change and without is followed as pairs of sets through all that depends on it. A pair of
one number twice is no difference. A view whose bound differs is none either where every access lies inside both, nor
one of another base where it has no elements: then it reads 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from kinfolk.analysis.strided import Strided, added, joined, negated, number, signed, strided, wrapped
from kinfolk.analysis.transfer import MAY_WRAP, exact
from kinfolk.analysis.values import Values, computed
from kinfolk.errors import KinfolkError
from kinfolk.ir.meaning import Control, LaneFunction, MemoryAccess, ScheduleMarker
from kinfolk.ir.ops import CORE_OPS, arithmetic, convert, vector
from kinfolk.ir.types import ScalarType, VectorType, ViewType
from kinfolk.ir.value import Operation, Region, Value
from kinfolk.testing.mutation.exhaustive import constants_of
from kinfolk.testing.mutation.mutant import Mutant
from kinfolk.testing.mutation.rewrite import Place
from kinfolk.testing.mutation.sums import Sum, never_negative, sum_of

MOST_PAIRS: Final = 8
MOST_STEPS: Final = 2000
_EXTREMES: Final = (arithmetic.smin, arithmetic.smax, arithmetic.umin, arithmetic.umax)
_PIECEWISE: Final = (
    *_EXTREMES,
    convert.sext,
    convert.zext,
    vector.constant,
)
"""Of one number that is not constant, each is that number or constant between the places where the order changes."""
_FOLLOWED: Final = (
    *_PIECEWISE,
    arithmetic.add,
    arithmetic.mul,
    arithmetic.icmp,
    arithmetic.sdiv,
    arithmetic.srem,
    arithmetic.udiv,
    arithmetic.urem,
    arithmetic.shl,
    arithmetic.lshr,
    arithmetic.ashr,
    arithmetic.xor,
    CORE_OPS["core.and"],
    CORE_OPS["core.or"],
    convert.trunc,
)
"""Ops whose sets follow from those of their operands alone."""


class Pair(NamedTuple):
    """What a value is without the change and with it; `unless` is a condition under which it is the same, `zero` are
    values that are 0 where it is not.
    """

    before: Strided
    after: Strided
    unless: Value | None = None
    zero: frozenset[Value] = frozenset()


class Differs(Exception):
    """Something may come of the difference."""


def dies_out(mutant: Mutant, values: Values, below: Mapping[Value, Value] | None = None) -> str:
    """Return why nothing comes of a mutant's difference; "" where that is not shown.

    `values` are those of the kernel without the change, `below` says of some that they are less than another one.
    """
    try:
        spread = _Spread(mutant, values, below or {})
        spread.follow()
    except (Differs, KinfolkError, KeyError, ValueError):
        return ""
    return f"no difference in what {len(spread.pairs)} values are used for"


class _Spread:
    def __init__(self, mutant: Mutant, values: Values, below: Mapping[Value, Value]) -> None:
        self._values, self._below, self._first = values, below, mutant.operation
        self._users: dict[Value, list[Operation]] = {}
        self._homes: dict[Operation, Operation | None] = {}
        self._survey(mutant.original.body, None)
        self.pairs: dict[Value, frozenset[Pair]] = {}
        self._open: list[Operation] = []
        self._begin(mutant)

    def _survey(self, region: Region, home: Operation | None) -> None:
        for op in region.operations:
            self._homes[op] = home
            for operand in op.operands:
                self._users.setdefault(operand, []).append(op)
            for inner in op.regions:
                self._survey(inner, op)

    def _begin(self, mutant: Mutant) -> None:
        op = mutant.operation
        sets = self._values.seen.get(op)
        if sets is None:
            raise Differs
        place = Place(op, (), {operand: operand for operand in op.operands})
        results = mutant.change.edit(place)
        if op.regions or not mutant.change.in_code or len(results) != 1 or len(op.results) != 1:
            raise Differs
        (result,) = op.results
        if isinstance(op.definition.meaning, MemoryAccess) and isinstance(result.type, ViewType):
            *others, last = place.operations
            if last.definition is not op.definition or last.operands[0] is not op.operands[0]:
                raise Differs
            after = self._chain(op, sets, others)
            self._differ(result, [Pair(sets[1], after[last.operands[1]])])
        elif _computes(op) and all(_computes(each) for each in place.operations):
            unless = self._where_same(op, results[0])
            if unless is not None:  # it differs where the condition does not hold, and only there
                chosen = sets[1] if results[0] is op.operands[1] else self._third(op, sets, place, results[0])
                self._differ(result, [Pair(sets[2], chosen, unless)])
                return
            for piece in _pieces(op, place.operations, sets):
                before, after = _result(op, piece), self._chain(op, piece, place.operations)[results[0]]
                if not self._same(op, place.operations, results[0], piece):
                    self._differ(result, [Pair(before, after)])
        else:
            raise Differs

    def _chain(self, op: Operation, sets: Sequence[Strided], ops: Sequence[Operation]) -> dict[Value, Strided]:
        known = dict(zip(op.operands, sets, strict=True))
        for each in ops:
            known[each.results[0]] = _result(each, [known[operand] for operand in each.operands])
        return known

    def _third(self, op: Operation, sets: Sequence[Strided], place: Place, selected: Value) -> Strided:
        """Return what a selection that stands in a selection's place gives where its condition does not hold."""
        made = selected.defining_op
        assert made is not None
        return self._chain(op, sets, place.operations)[made.operands[2]]

    def _same(self, op: Operation, ops: Sequence[Operation], result: Value, sets: Sequence[Strided]) -> bool:
        """Whether both compute the same at the ends of a piece, between which neither changes its way."""
        if any(each.definition not in _PIECEWISE for each in (op, *ops)) or len(_varying(sets)) > 1:
            return False
        ends = ([number(each.low) for each in sets], [number(each.high) for each in sets])
        return all(_result(op, end) == self._chain(op, end, ops)[result] for end in ends)

    def _where_same(self, op: Operation, instead: Value) -> Value | None:
        """Return a condition under which a selection is left as it was."""
        if op.definition is not arithmetic.select:
            return None
        condition, kept, _ = op.operands
        made = instead.defining_op
        same = instead is kept or (
            made is not None
            and made.definition is op.definition
            and made.operands[0] is condition
            and made.operands[1] is kept
        )
        return condition if same else None

    def _differ(self, value: Value, pairs: Sequence[Pair]) -> None:
        known = self.pairs.get(value, frozenset())
        found = known | {pair for pair in pairs if pair.before.single is None or pair.before != pair.after}
        if found == known:
            return
        if len(found) > MOST_PAIRS:
            raise Differs
        self.pairs[value] = found
        self._open += self._users.get(value, ())

    def follow(self) -> None:
        """Follow the difference until nothing new depends on it."""
        for _ in range(MOST_STEPS):
            if not self._open:
                return
            self._use(self._open.pop())
        raise Differs

    def _use(self, op: Operation) -> None:
        meaning = op.definition.meaning
        if isinstance(meaning, Control) and meaning.kind == "yield":
            self._handed_on(op)
        elif isinstance(meaning, Control) and meaning.kind == "for":
            if any(operand in self.pairs for operand in op.operands[:3]):
                raise Differs
            self._copied(op.operands[3:], op.regions[0].arguments[1:])
            self._copied(op.operands[3:], op.results)
        elif isinstance(meaning, ScheduleMarker) or (isinstance(meaning, Control) and meaning.kind == "uniform"):
            for operand, result in zip(op.operands, op.results, strict=True):
                self._differ(result, list(self.pairs.get(operand, ())))
        elif isinstance(meaning, MemoryAccess):
            self._accessed(op, meaning)
        elif _computes(op):
            self._computed(op)
        else:
            raise Differs

    def _handed_on(self, op: Operation) -> None:
        home = self._homes[op]
        assert home is not None
        arguments = home.regions[0].arguments[1:] if home.definition.name == "core.for" else ()
        self._copied(op.operands, home.results)
        self._copied(op.operands[: len(arguments)], arguments)

    def _copied(self, values: Sequence[Value], others: Sequence[Value]) -> None:
        """Give what values become in a branch or round of a loop the values' pairs."""
        for value, other in zip(values, others, strict=True):
            for pair in self.pairs.get(value, ()):
                zero = [to for of, to in zip(values, others, strict=True) if self._is_zero(of, pair)]
                self._differ(other, [pair._replace(unless=None, zero=frozenset(zero))])

    def _computed(self, op: Operation) -> None:
        sets = self._values.seen.get(op)
        if sets is None:
            raise Differs
        changed = {operand: place for place, operand in enumerate(op.operands) if operand in self.pairs}
        if op.definition is arithmetic.select and op.operands[0] not in self.pairs:
            for operand in changed:
                self._differ(op.results[0], list(self.pairs[operand]))
            return
        for operand, place in changed.items():
            if len(changed) > 1 or sum(each is operand for each in op.operands) > 1:
                raise Differs
            found = [
                Pair(before, after, pair.unless, pair.zero)
                for pair in self.pairs[operand]
                for before, after in _results(op, sets, place, pair)
            ]
            self._differ(op.results[0], found)

    def _accessed(self, op: Operation, meaning: MemoryAccess) -> None:
        if meaning.action == "offset" and op.operands[0] not in self.pairs:
            whole = self._values[op.results[0]]
            pairs = [pair._replace(before=whole, after=whole) for pair in self.pairs[op.operands[1]]]
            self._differ(op.results[0], pairs)
            return
        if meaning.action == "bound":
            base, count = op.operands
            if op.results[0] not in self._users:
                return
            if base in self.pairs:
                if count in self.pairs or not all(self._is_zero(count, pair) for pair in self.pairs[base]):
                    raise Differs
                return
            self._differ(op.results[0], list(self.pairs[count]))
            return
        view = op.operands[0]
        if isinstance(view.type, ViewType) and [each in self.pairs for each in op.operands] == [
            True,
            *[False] * (len(op.operands) - 1),
        ]:
            self._inside(op, view)
            return
        raise Differs

    def _inside(self, op: Operation, view: Value) -> None:
        """Hold an access against the least bound that its view may have."""
        sets = self._values.seen.get(op)
        if sets is None:
            raise Differs
        offset, count = accessed_elements(op)
        index = sets[1]
        least = min(min(pair.before.low, pair.after.low) for pair in self.pairs[view])
        within = index.high + offset + count <= least or self._within(view, op.operands[1], offset + count)
        if index.low + offset < 0 or not within:
            raise Differs

    def _within(self, view: Value, index: Value, more: int) -> bool:
        """Whether an index and so much more is inside a view by what both are made of, whatever that is."""
        bound, begun = view.defining_op, self._first.results[0]
        pairs = self.pairs.get(begun, ())
        numbers = {each.single for pair in pairs for each in (pair.before, pair.after)}
        if bound is None or isinstance(begun.type, ViewType) or not numbers:
            return False
        end = sum_of(index, {}, self._values.__getitem__) + Sum.of(more)
        return all(
            number is not None
            and never_negative(
                sum_of(bound.operands[1], {begun: number}, self._values.__getitem__) - end,
                self._below,
                self._values.__getitem__,
            )
            for number in numbers
        )

    def _is_zero(self, value: Value, pair: Pair) -> bool:
        """Whether a number is 0 wherever one that a pair is of differs."""
        known = pair.unless is not None or pair.zero
        return bool(known) and _is_integer(value) and self._where_different(value, pair) == number(0)

    def _where_different(self, value: Value, pair: Pair, steps: int = 8) -> Strided:
        """Return what a number may be where one that a pair is of differs."""
        made, known = value.defining_op, self._values[value]
        if value in pair.zero:
            return number(0)
        if made is None or steps == 0 or known.single is not None:
            return known
        if made.definition is arithmetic.select and made.operands[0] is pair.unless:
            return self._where_different(made.operands[2], pair, steps - 1)
        if made.name == "core.uniform":
            return self._where_different(made.operands[0], pair, steps - 1)
        if not _computes(made):
            return known
        return computed(made, [self._where_different(each, pair, steps - 1) for each in made.operands])


def accessed_elements(op: Operation) -> tuple[int, int]:
    """Return how far behind its index an access of a view begins, and how many elements it is of."""
    meaning = op.definition.meaning
    if isinstance(meaning, MemoryAccess) and meaning.action == "stage":  # its offset is one in workgroup memory
        offset, count = 0, op.attributes["count"]
    elif op.name in ("core.view_load", "core.view_store"):
        data = (op.results or op.operands[-1:])[0].type
        offset, count = op.attributes.get("offset", 0), data.count if isinstance(data, VectorType) else 1
    else:
        raise Differs
    if not isinstance(offset, int) or not isinstance(count, int):
        raise Differs
    return offset, count


def _is_integer(value: Value) -> bool:
    return isinstance(value.type, ScalarType) and value.type.kind == "int"


def _computes(op: Operation) -> bool:
    """Whether an op makes an integer out of integers, lane by lane."""
    meaning = op.definition.meaning
    of_integers = all(_is_integer(value) for value in (*op.operands, *op.results))
    lanes = isinstance(meaning, LaneFunction) and (meaning.form == "elementwise" or op.definition is vector.constant)
    return lanes and of_integers and len(op.results) == 1


def _result(op: Operation, sets: Sequence[Strided]) -> Strided:
    """Return the set of an op's result; raise where it breaks its claim not to wrap, or may.

    What operands are made of is left out of it: with the change, they may be made otherwise.
    """
    type_ = op.results[0].type
    assert isinstance(type_, ScalarType)
    if op.definition is arithmetic.sub:
        found = added(sets[0], negated(sets[1]))
    elif op.definition is arithmetic.select:
        return joined(sets[1], sets[2])
    elif op.definition in _FOLLOWED:
        found = exact(op, sets)
    else:
        return signed(type_.bits)
    if op.name not in MAY_WRAP:
        return found
    whole = signed(type_.bits)
    if whole.low <= found.low and found.high <= whole.high:
        return found
    if op.attributes.get("nsw"):
        raise Differs
    return wrapped(found, type_.bits)


def _results(op: Operation, sets: Sequence[Strided], place: int, pair: Pair) -> Iterator[tuple[Strided, Strided]]:
    """Yield what an op gives before and after, whose operand at `place` differs.

    A minimum or maximum with what was one number and is another is looked at on each side of these: on some it is the
    same.
    """
    both, numbers = (pair.before, pair.after), {pair.before.single, pair.after.single}
    if op.definition not in _EXTREMES or None in numbers:
        before, after = (_result(op, _with(sets, place, each)) for each in both)
        yield before, after
        return
    other = 1 - place
    for piece in _cut(sets[other], {0, *(each for each in numbers if each is not None)}):
        ends = [_with(sets, other, number(end)) for end in (piece.low, piece.high)]
        if any(len({_result(op, _with(end, place, each)) for each in both}) > 1 for end in ends):
            before, after = (_result(op, _with(_with(sets, other, piece), place, each)) for each in both)
            yield before, after


def _with(sets: Sequence[Strided], place: int, instead: Strided) -> list[Strided]:
    return [instead if index == place else each for index, each in enumerate(sets)]


def _cut(whole: Strided, marks: Iterable[int]) -> Iterator[Strided]:
    """Yield the parts of a set at, before, between and behind some numbers."""
    ends = sorted({whole.low, *(mark + step for mark in marks for step in (0, 1)), whole.high + 1})
    for low, high in pairwise(ends):
        if whole.low <= low and high - 1 <= whole.high:
            piece = strided(low, high - 1, whole.step, whole.rest)
            if piece is not None:
                yield piece


def _varying(sets: Sequence[Strided]) -> list[int]:
    return [index for index, each in enumerate(sets) if each.single is None]


def _pieces(op: Operation, instead: Sequence[Operation], sets: Sequence[Strided]) -> Iterator[list[Strided]]:
    """Yield the operands' sets, cut where an order between one of them and constants changes."""
    varying = _varying(sets)
    if len(varying) != 1 or any(each.definition not in _PIECEWISE for each in (op, *instead)):
        yield list(sets)
        return
    (index,) = varying
    whole = sets[index]
    marks = {each.single for each in sets if each.single is not None} | set(constants_of(instead)) | {0}
    for piece in _cut(whole, marks):
        yield _with(sets, index, piece)
