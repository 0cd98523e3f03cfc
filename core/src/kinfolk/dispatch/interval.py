"""How far launch fields can move before an observed expression changes: interval arithmetic over Expr trees.

An expression's value over a box of field values is bounded by intervals. As long as the bounds meet in the value that
was observed, it holds for every request in the box; where they do not, or some point may overflow, nothing is claimed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import cast

import attrs

from kinfolk.expr import I64_MAX, I64_MIN, Expr, ExprError, Scope, Value
from kinfolk.expr.arithmetic import Arithmetic, Binary, CeilDiv, FloorDiv
from kinfolk.expr.condition import Equality, IsZero, Logic, Not, OneOf, Ordering, Select
from kinfolk.expr.node import Const, Fact, Field

Span = tuple[int, int]
"""The least and the largest value; of a condition, 0 for false and 1 for true."""


class _UndecidedError(Exception):
    """Some point of the box may have no value."""


@attrs.frozen
class Range:
    """The values of one launch field for which a selection holds, ends included."""

    low: int
    high: int

    def __contains__(self, value: int) -> bool:
        return self.low <= value <= self.high


@attrs.frozen
class Observation:
    """An expression that was evaluated on a request, the value it had, and the scope it was evaluated in."""

    expr: Expr
    value: Value
    scope: Scope


class _Bounds:
    """Bounds of expressions over a box, constants of the scope included."""

    def __init__(self, scope: Scope, box: Mapping[str, Range]) -> None:
        self.scope, self.box = scope, box

    def of(self, expr: Expr) -> Span | str:
        match expr:
            case Field(name) if name in self.box:
                return self.box[name].low, self.box[name].high
            case Arithmetic(left, right):
                return self._arithmetic(expr, self.span(left), self.span(right))
            case Binary(left, right):
                return self._comparison(expr, self.of(left), self.of(right))
            case OneOf(term, values):
                return self._one_of(self.of(term), values)
            case Logic(terms):
                return self._logic(expr, [self.span(term) for term in terms])
            case Not(term):
                low, high = self.span(term)
                return 1 - high, 1 - low
            case IsZero(Field(name)) if name in self.box:
                low, high = self.box[name].low, self.box[name].high
                return low == high == 0, low <= 0 <= high
            case Select(condition, then, otherwise):
                return self._select(self.span(condition), then, otherwise)
            case _:
                value = expr.value_in(self.scope)
                return value if isinstance(value, str) else (int(value), int(value))

    def span(self, expr: Expr) -> Span:
        bounds = self.of(expr)
        if isinstance(bounds, str):
            raise _UndecidedError
        return bounds

    def _arithmetic(self, expr: Arithmetic, left: Span, right: Span) -> Span:
        if isinstance(expr, FloorDiv | CeilDiv) and right[0] <= 0 <= right[1]:
            raise _UndecidedError
        # Each operation is monotone in each operand (division: over divisors of one sign), so the corners bound it.
        corners = [type(expr).exact(a, b) for a in left for b in right]
        if min(corners) < I64_MIN or max(corners) > I64_MAX:
            raise _UndecidedError
        return min(corners), max(corners)

    def _comparison(self, expr: Binary, left: Span | str, right: Span | str) -> Span:
        if isinstance(left, str) or isinstance(right, str):
            if not isinstance(expr, Equality) or type(left) is not type(right):
                raise _UndecidedError
            truth = (left == right) is expr.equal
            return truth, truth
        if isinstance(expr, Ordering):
            corners = [type(expr).exact(a, b) for a in left for b in right]
            return min(corners), max(corners)
        apart = left[1] < right[0] or right[1] < left[0]
        same = left == right and left[0] == left[1]
        if not apart and not same:
            return 0, 1
        truth = same is cast("Equality", expr).equal
        return truth, truth

    def _one_of(self, term: Span | str, values: tuple[Value, ...]) -> Span:
        if isinstance(term, str):
            return term in values, term in values
        inside = [value for value in values if not isinstance(value, str) and term[0] <= value <= term[1]]
        every = term[1] - term[0] < len(set(inside))
        return every, bool(inside)

    def _logic(self, expr: Logic, terms: list[Span]) -> Span:
        if expr.decides:
            return max((low for low, _ in terms), default=0), max((high for _, high in terms), default=0)
        return min((low for low, _ in terms), default=1), min((high for _, high in terms), default=1)

    def _select(self, condition: Span, then: Expr, otherwise: Expr) -> Span | str:
        if condition[0] == condition[1]:
            return self.of(then if condition[0] else otherwise)
        first, second = self.span(then), self.span(otherwise)
        return min(first[0], second[0]), max(first[1], second[1])


def bounds_of(expr: Expr, scope: Scope, box: Mapping[str, Range]) -> Span | None:
    """Return the least and the most that an expression may be while fields lie in a box; None where neither is known.

    Fields that are not in the box have their value in `scope`.
    """
    try:
        bounds = _Bounds(scope, box).of(expr)
    except (_UndecidedError, ExprError):
        return None
    return None if isinstance(bounds, str) else bounds


def _decided(observation: Observation, box: Mapping[str, Range]) -> bool:
    """Return whether the expression has the observed value all over the box."""
    try:
        bounds = _Bounds(observation.scope, box).of(observation.expr)
    except (_UndecidedError, ExprError):
        return False
    value = observation.value
    return bounds == (value if isinstance(value, str) else (int(value), int(value)))


def holding(observations: Iterable[Observation], launch: Mapping[str, int]) -> dict[str, Range]:
    """Return, per launch field, a range around its value such that every observation stays as it was all over the box.

    Fields are widened in order of their names, each as far as it goes beside the ranges found before; a field that no
    observed expression reads is unbounded.
    """
    box = {name: Range(value, value) for name, value in launch.items()}
    pending = [observation for observation in _distinct(observations) if reads(observation.expr, launch)]
    for name in sorted(launch):
        concerned = [observation for observation in pending if reads(observation.expr, (name,))]
        for upwards in (True, False):
            box[name] = _widened(concerned, box, name, upwards)
    return box


def _distinct(observations: Iterable[Observation]) -> list[Observation]:
    """Return each expression once per arch and tensors it was evaluated with."""
    by_key = {(seen.expr, id(seen.scope.arch), id(seen.scope.tensors)): seen for seen in observations}
    return list(by_key.values())


def _named(observation: Observation) -> set[int]:
    """Return the numbers that an expression names: its constants, and the facts it reads."""
    found: set[int] = set()
    pending = [observation.expr]
    while pending:
        expr = pending.pop()
        pending += expr.children
        values = expr.values if isinstance(expr, OneOf) else ()
        if isinstance(expr, Const | Fact):
            values = (expr.value_in(observation.scope),)
        found.update(value for value in values if type(value) is int)
    return found


def reads(expr: Expr, names: Collection[str]) -> bool:
    """Return whether an expression reads one of the fields."""
    return any(isinstance(leaf, Field) and leaf.name in names for leaf in expr.leaves())


def _widened(observations: list[Observation], box: Mapping[str, Range], name: str, upwards: bool) -> Range:
    """Return the range of a field moved out at one end as far as all observations stay decided.

    Bounds only get wider as a box grows, so the furthest end is found by bisection. Most often it lies at a number that
    an expression names, so these are tried before all others.
    """
    start = box[name]
    likely = sorted({edge + step for seen in observations for edge in _named(seen) for step in (-1, 0, 1)})

    def moved(end: int) -> Range:
        return Range(start.low, end) if upwards else Range(end, start.high)

    def fits(end: int) -> bool:
        wider = {**box, name: moved(end)}
        return all(_decided(observation, wider) for observation in observations)

    good, bad = (start.high, I64_MAX) if upwards else (start.low, I64_MIN)
    if fits(bad):
        return moved(bad)
    while abs(bad - good) > 1:
        likely = [end for end in likely if min(good, bad) < end < max(good, bad)]
        middle = likely[len(likely) // 2] if likely else (good + bad) // 2
        if fits(middle):
            good = middle
        else:
            bad = middle
    return moved(good)
