"""Expressions as data: conditions, grids, sizes and argument values that Python and C++ evaluate and docs print.

Arithmetic is on signed 64-bit integers, and leaving them is an error. `all_of` and `any_of` stop at the first term that
decides, `select` evaluates only the branch it takes. Strings can only be compared for equality. Of a
field that holds a float only whether it is 0 can be asked (`is_zero`): there is no other float.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any, cast

from kinfolk.expr.arithmetic import CeilDiv, FloorDiv, Max, Min
from kinfolk.expr.condition import AllOf, AnyOf, Eq, IsZero, Ne, Not, OneOf, Select
from kinfolk.expr.node import MAX_HEIGHT, NODES, Const, Expr, Extent, Fact, Field, Stride, lift
from kinfolk.expr.scope import (
    I64_MAX,
    I64_MIN,
    ExprError,
    ExprOverflow,
    Observer,
    Scope,
    TensorGeometry,
    TensorView,
    Value,
)
from kinfolk.fields import shown

__all__ = [
    "I64_MAX",
    "I64_MIN",
    "Expr",
    "ExprError",
    "ExprOverflow",
    "Observer",
    "Scope",
    "TensorGeometry",
    "TensorView",
    "Value",
    "all_of",
    "any_of",
    "ceil_div",
    "const",
    "eq",
    "extent",
    "fact",
    "field",
    "floor_div",
    "from_data",
    "from_json",
    "is_zero",
    "lift",
    "maximum",
    "minimum",
    "multiple_of",
    "ne",
    "not_",
    "one_of",
    "select",
    "stride",
]


def const(value: Value) -> Expr:
    """Return a constant."""
    return Const(value)


def field(name: str) -> Expr:
    """Return a field of the request; of the spec, where a spec is judged."""
    return Field(name)


def fact(name: str) -> Expr:
    """Return a fact of the arch."""
    return Fact(name)


def stride(tensor: str, axis: int) -> Expr:
    """Return a stride of a bound tensor, in elements."""
    return Stride(tensor, axis)


def extent(tensor: str, axis: int) -> Expr:
    """Return an extent of a bound tensor, in elements."""
    return Extent(tensor, axis)


def floor_div(left: Expr | int, right: Expr | int) -> Expr:
    """Return the quotient rounded towards minus infinity."""
    return FloorDiv(lift(left), lift(right))


def ceil_div(left: Expr | int, right: Expr | int) -> Expr:
    """Return the quotient rounded towards plus infinity."""
    return CeilDiv(lift(left), lift(right))


def minimum(first: Expr | int, *others: Expr | int) -> Expr:
    """Return the smallest of the operands."""
    result = lift(first)
    for other in others:
        result = Min(result, lift(other))
    return result


def maximum(first: Expr | int, *others: Expr | int) -> Expr:
    """Return the largest of the operands."""
    result = lift(first)
    for other in others:
        result = Max(result, lift(other))
    return result


def eq(left: Expr | Value, right: Expr | Value) -> Expr:
    """Return the condition that both are equal; they must be of one type."""
    return Eq(lift(left), lift(right))


def ne(left: Expr | Value, right: Expr | Value) -> Expr:
    """Return the condition that both differ; they must be of one type."""
    return Ne(lift(left), lift(right))


def is_zero(field: str) -> Expr:
    """Return the condition that a field, an int or a float, is 0; the one that there is on floats."""
    return IsZero(Field(field))


def one_of(term: Expr | Value, values: Iterable[Value]) -> Expr:
    """Return the condition that the term is one of the values."""
    return OneOf(lift(term), tuple(values))


def multiple_of(term: Expr, step: int) -> Expr:
    """Return the condition that the term is a multiple of `step`."""
    return Eq(FloorDiv(term, lift(step)) * step, term)


def all_of(*terms: Expr | bool) -> Expr:
    """Return the condition that all terms hold; evaluation stops at the first that does not."""
    return AllOf(tuple(lift(term) for term in terms))


def any_of(*terms: Expr | bool) -> Expr:
    """Return the condition that some term holds; evaluation stops at the first that does."""
    return AnyOf(tuple(lift(term) for term in terms))


def not_(term: Expr | bool) -> Expr:
    """Return the condition that the term does not hold."""
    return Not(lift(term))


def select(condition: Expr | bool, then: Expr | Value, otherwise: Expr | Value) -> Expr:
    """Return `then` where the condition holds, else `otherwise`; the other branch is not evaluated."""
    return Select(lift(condition), lift(then), lift(otherwise))


def from_data(data: object) -> Expr:
    """Return the tree that `Expr.data` gave; raise ValueError on anything else, as on what nests too deep."""
    return _read(data, MAX_HEIGHT)


def _read(data: object, left: int) -> Expr:
    if left < 0:
        raise ValueError(f"an expression nests at most {MAX_HEIGHT} operations deep, this one goes on")
    items = cast("list[Any]", data)
    if not isinstance(data, list) or not items or not isinstance(items[0], str) or items[0] not in NODES:
        raise ValueError(
            f"an expression is [tag, operand, ...] with a tag of {', '.join(sorted(NODES))}, got {shown(items)}"
        )
    tag, operands = items[0], items[1:]
    build = cast("Callable[..., Expr]", NODES[tag])
    try:
        if tag in ("const", "field", "fact", "stride", "extent"):
            return build(*operands)
        if tag == "one_of":
            term, values = operands
            return build(_read(term, left - 1), tuple(values))
        terms = tuple(_read(operand, left - 1) for operand in operands)
        return build(terms) if tag in ("all_of", "any_of") else build(*terms)
    except (TypeError, ExprError) as error:
        raise ValueError(f"{shown(items)} is no expression: {error}") from error


def from_json(text: str) -> Expr:
    """Return the tree that `Expr.to_json` gave; raise ValueError on anything else."""
    try:
        data = json.loads(text)
    except RecursionError:
        raise ValueError(f"an expression nests at most {MAX_HEIGHT} operations deep, this text goes on") from None
    return from_data(data)
