"""Conditions: comparisons, membership, and how they combine; `select` turns one back into a value."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, ClassVar, cast

import attrs

from kinfolk.expr.arithmetic import Binary, expect_kind
from kinfolk.expr.node import Expr, Field, height_field, tall, typed
from kinfolk.expr.scope import ExprError, Scope, Value, checked
from kinfolk.fields import shown


@attrs.frozen
class Comparison(Binary):
    """A condition on two values; its operands bind tighter, so comparisons never chain."""

    precedence: ClassVar[int] = 4

    @property
    def kind(self) -> str:
        return "bool"

    def __str__(self) -> str:
        return f"{self.left._within(5)} {self.sign} {self.right._within(5)}"


@attrs.frozen
class Ordering(Comparison):
    """A condition on two integers."""

    exact: ClassVar[Callable[[int, int], bool]]

    def __attrs_post_init__(self) -> None:
        tall(self)
        expect_kind(self, self.children, "int")

    def value_in(self, scope: Scope) -> Value:
        return type(self).exact(*self._integers(scope))


@attrs.frozen
class Lt(Ordering):
    """Less than."""

    tag, sign = "lt", "<"
    exact = staticmethod(operator.lt)


@attrs.frozen
class Le(Ordering):
    """At most."""

    tag, sign = "le", "<="
    exact = staticmethod(operator.le)


@attrs.frozen
class Gt(Ordering):
    """More than."""

    tag, sign = "gt", ">"
    exact = staticmethod(operator.gt)


@attrs.frozen
class Ge(Ordering):
    """At least."""

    tag, sign = "ge", ">="
    exact = staticmethod(operator.ge)


@attrs.frozen
class Equality(Comparison):
    """A condition on two values of one type."""

    equal: ClassVar[bool]

    def __attrs_post_init__(self) -> None:
        tall(self)
        if "any" not in (self.left.kind, self.right.kind):
            expect_kind(self, (self.right,), self.left.kind)

    def value_in(self, scope: Scope) -> Value:
        left, right = self.left.value_in(scope), self.right.value_in(scope)
        if type(left) is not type(right):
            raise ExprError(f"{self}: {left!r} and {right!r} are of different types")
        return (left == right) is self.equal


@attrs.frozen
class Eq(Equality):
    """Equal."""

    tag, sign, equal = "eq", "==", True


@attrs.frozen
class Ne(Equality):
    """Not equal."""

    tag, sign, equal = "ne", "!=", False


@attrs.frozen
class OneOf(Expr):
    """The term is one of some constants of its type."""

    tag: ClassVar[str] = "one_of"
    precedence: ClassVar[int] = 4
    term: Expr
    values: tuple[Value, ...] = attrs.field(eq=typed)
    height: int = height_field()

    def __attrs_post_init__(self) -> None:
        tall(self)
        kinds = {type(checked(value, "a value of one_of")).__name__ for value in self.values}
        if len(kinds) != 1 or self.term.kind not in {*kinds, "any"}:
            raise TypeError(f"one_of takes values of its term's type, got {self.values!r} for {self.term}")

    @property
    def kind(self) -> str:
        return "bool"

    @property
    def children(self) -> tuple[Expr, ...]:
        return (self.term,)

    def value_in(self, scope: Scope) -> Value:
        value = self.term.value_in(scope)
        if type(value) is not type(self.values[0]):
            raise ExprError(f"{self}: {value!r} is of another type than the values")
        return value in self.values

    def data(self) -> list[Any]:
        return [self.tag, self.term.data(), list(self.values)]

    def __str__(self) -> str:
        return f"{self.term._within(5)} in {self.values!r}"


@attrs.frozen
class Logic(Expr):
    """Conditions in order; evaluation stops at the first that decides."""

    word: ClassVar[str]
    decides: ClassVar[bool]
    terms: tuple[Expr, ...]
    height: int = height_field()

    def __attrs_post_init__(self) -> None:
        tall(self)
        expect_kind(self, self.terms, "bool")

    @property
    def kind(self) -> str:
        return "bool"

    @property
    def children(self) -> tuple[Expr, ...]:
        return self.terms

    def value_in(self, scope: Scope) -> Value:
        for term in self.terms:
            if truth(term, scope) is self.decides:
                return self.decides
        return not self.decides

    def __str__(self) -> str:
        if len(self.terms) < 2:
            return f"{self.tag}({', '.join(map(str, self.terms))})"
        return f" {self.word} ".join(term._within(self.precedence + 1) for term in self.terms)


@attrs.frozen
class AllOf(Logic):
    """All terms hold; true of no terms."""

    tag, word, decides, precedence = "all_of", "and", False, 2


@attrs.frozen
class AnyOf(Logic):
    """Some term holds; false of no terms."""

    tag, word, decides, precedence = "any_of", "or", True, 1


@attrs.frozen
class Not(Expr):
    """The condition does not hold."""

    tag: ClassVar[str] = "not"
    precedence: ClassVar[int] = 3
    term: Expr
    height: int = height_field()

    def __attrs_post_init__(self) -> None:
        tall(self)
        expect_kind(self, self.children, "bool")

    @property
    def kind(self) -> str:
        return "bool"

    @property
    def children(self) -> tuple[Expr, ...]:
        return (self.term,)

    def value_in(self, scope: Scope) -> Value:
        return not truth(self.term, scope)

    def __str__(self) -> str:
        return f"not {self.term._within(self.precedence)}"


@attrs.frozen
class IsZero(Expr):
    """A number that a field holds is 0: all that is asked of one that may be a float."""

    tag: ClassVar[str] = "is_zero"
    term: Field
    height: int = height_field()

    def __attrs_post_init__(self) -> None:
        tall(self)
        if type(cast("object", self.term)) is not Field:
            raise ExprError(f"is_zero is asked of a field, not of {self.term}")

    @property
    def kind(self) -> str:
        return "bool"

    @property
    def children(self) -> tuple[Expr, ...]:
        return (self.term,)

    def value_in(self, scope: Scope) -> Value:
        value = self.term.held_in(scope)
        if type(value) not in (int, float):
            raise ExprError(f"field {self.term.name} is {shown(value)} of type {type(value).__name__}, not a number")
        return value == 0

    def __str__(self) -> str:
        return f"is_zero({self.term})"


@attrs.frozen
class Select(Expr):
    """One of two values; only the branch that the condition takes is evaluated."""

    tag: ClassVar[str] = "select"
    condition: Expr
    then: Expr
    otherwise: Expr
    height: int = height_field()

    def __attrs_post_init__(self) -> None:
        tall(self)
        expect_kind(self, (self.condition,), "bool")
        if "any" not in (self.then.kind, self.otherwise.kind):
            expect_kind(self, (self.otherwise,), self.then.kind)

    @property
    def kind(self) -> str:
        return self.then.kind if self.then.kind != "any" else self.otherwise.kind

    @property
    def children(self) -> tuple[Expr, ...]:
        return (self.condition, self.then, self.otherwise)

    def value_in(self, scope: Scope) -> Value:
        return (self.then if truth(self.condition, scope) else self.otherwise).value_in(scope)

    def __str__(self) -> str:
        return f"select({self.condition}, {self.then}, {self.otherwise})"


def truth(condition: Expr, scope: Scope) -> bool:
    """Return a term's value as a truth; raise ExprError where it is no bool."""
    value = cast("object", condition.value_in(scope))
    if type(value) is not bool:
        raise ExprError(f"{condition} is {value!r}, not a bool, and so no condition")
    return value
