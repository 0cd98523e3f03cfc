"""A condition as a Python function, for conditions that are asked at every construction of a request."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from kinfolk.expr.arithmetic import Add, Arithmetic, CeilDiv, FloorDiv, Max, Min, Mul, Sub
from kinfolk.expr.condition import Comparison, IsZero, Logic, Not, OneOf, Select
from kinfolk.expr.node import Const, Expr, Field
from kinfolk.expr.scope import I64_MAX, I64_MIN

_SIGNS: Final[dict[type[Expr], str]] = {Add: "+", Sub: "-", Mul: "*", FloorDiv: "//"}


def surely_holds(condition: Expr) -> Callable[[object], bool]:
    """Return a function of an object's fields that is true only where the condition holds, twenty times as fast.

    Where it is not true the tree has to be asked: the condition fails, or leaves 64 bits. Takes constants and fields.
    Raises TypeError for a tree that reads anything else.
    """
    names: dict[str, Any] = {"__builtins__": {"min": min, "max": max}, "_within": _within}
    compute: Callable[[object], bool] = eval(f"lambda scope: {_source(condition)}", names)

    def holds(fields: object) -> bool:
        try:
            return compute(fields) is True
        except ArithmeticError:
            return False

    return holds


def _within(value: int) -> int:
    if not I64_MIN <= value <= I64_MAX:
        raise OverflowError
    return value


def _source(expr: Expr) -> str:
    parts = [_source(child) for child in expr.children]
    match expr:
        case Const(value):
            return repr(value)
        case Field(name) if name.isidentifier():
            return f"scope.{name}"
        case CeilDiv():
            return f"_within(-(-{parts[0]} // {parts[1]}))"
        case Min() | Max():
            return f"{expr.tag}({', '.join(parts)})"
        case Arithmetic():
            return f"_within({parts[0]} {_SIGNS[type(expr)]} {parts[1]})"
        case Comparison():
            return f"({parts[0]} {expr.sign} {parts[1]})"
        case OneOf(_, values):
            return f"({parts[0]} in {values!r})"
        case Logic():
            return f"({f' {expr.word} '.join([*parts, repr(not expr.decides)])})"
        case Not():
            return f"(not {parts[0]})"
        case IsZero():
            return f"({parts[0]} == 0)"
        case Select():
            return f"({parts[1]} if {parts[0]} else {parts[2]})"
        case _:
            raise TypeError(f"a condition on a request reads its fields and constants, {expr} is neither")
