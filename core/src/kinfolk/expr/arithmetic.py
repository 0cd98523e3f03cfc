"""Checked arithmetic on signed 64-bit integers."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from typing import ClassVar

import attrs

from kinfolk.expr.node import Expr, height_field, tall
from kinfolk.expr.scope import I64_MAX, I64_MIN, ExprError, ExprOverflow, Scope, Value


def expect_kind(node: Expr, operands: Iterable[Expr], kind: str) -> None:
    """Refuse at construction what evaluation could only refuse."""
    for operand in operands:
        if operand.kind not in (kind, "any"):
            raise TypeError(f"{type(node).__name__} takes {kind} operands, {operand} is {operand.kind}")


def quotient_down(left: int, right: int) -> int:
    """Return the quotient rounded towards minus infinity."""
    return left // right


def quotient_up(left: int, right: int) -> int:
    """Return the quotient rounded towards plus infinity."""
    return -(-left // right)


def lower(left: int, right: int) -> int:
    """Return the smaller one."""
    return min(left, right)


def upper(left: int, right: int) -> int:
    """Return the larger one."""
    return max(left, right)


@attrs.frozen
class Binary(Expr):
    """Two operands."""

    sign: ClassVar[str] = ""
    left: Expr
    right: Expr
    height: int = height_field()

    @property
    def children(self) -> tuple[Expr, ...]:
        return (self.left, self.right)

    def _integers(self, scope: Scope) -> tuple[int, int]:
        left, right = self.left.value_in(scope), self.right.value_in(scope)
        if type(left) is not int or type(right) is not int:
            raise ExprError(f"{self}: takes integers, got {left!r} and {right!r}")
        return left, right


@attrs.frozen
class Arithmetic(Binary):
    """A checked 64-bit operation on two integers."""

    exact: ClassVar[Callable[[int, int], int]]

    @property
    def kind(self) -> str:
        return "int"

    def __attrs_post_init__(self) -> None:
        tall(self)
        expect_kind(self, self.children, "int")

    def value_in(self, scope: Scope) -> Value:
        left, right = self._integers(scope)
        try:
            value = type(self).exact(left, right)
        except ZeroDivisionError:
            raise ExprError(f"{self}: {left} divided by zero") from None
        if not I64_MIN <= value <= I64_MAX:
            raise ExprOverflow(f"{self}: {left} and {right} give {value}, outside signed 64 bits")
        return value

    def __str__(self) -> str:
        if not self.sign:
            return f"{self.tag}({self.left}, {self.right})"
        return f"{self.left._within(self.precedence)} {self.sign} {self.right._within(self.precedence + 1)}"


@attrs.frozen
class Add(Arithmetic):
    """Sum."""

    tag, sign, precedence = "add", "+", 5
    exact = staticmethod(operator.add)


@attrs.frozen
class Sub(Arithmetic):
    """Difference."""

    tag, sign, precedence = "sub", "-", 5
    exact = staticmethod(operator.sub)


@attrs.frozen
class Mul(Arithmetic):
    """Product."""

    tag, sign, precedence = "mul", "*", 6
    exact = staticmethod(operator.mul)


@attrs.frozen
class FloorDiv(Arithmetic):
    """Quotient rounded towards minus infinity."""

    tag, sign, precedence = "floor_div", "//", 6
    exact = staticmethod(quotient_down)


@attrs.frozen
class CeilDiv(Arithmetic):
    """Quotient rounded towards plus infinity."""

    tag = "ceil_div"
    exact = staticmethod(quotient_up)


@attrs.frozen
class Min(Arithmetic):
    """The smaller one."""

    tag = "min"
    exact = staticmethod(lower)


@attrs.frozen
class Max(Arithmetic):
    """The larger one."""

    tag = "max"
    exact = staticmethod(upper)
