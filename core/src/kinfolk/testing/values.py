"""Values of fields, made from what a class and its limits declare: some taken, some at edges, some of a wrong type."""

from __future__ import annotations

import contextlib
import enum
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, cast

import attrs
import numpy as np

from kinfolk.expr import I64_MAX, I64_MIN, Expr, ExprError, Scope
from kinfolk.expr.condition import Eq
from kinfolk.expr.condition import OneOf as OneOfNode
from kinfolk.expr.node import Const, Field
from kinfolk.fields import ExactBool, ExactFloat, ExactInt, ExactStr, OneOf, Optional, TupleOf

if TYPE_CHECKING:
    Attribute = attrs.Attribute[Any]

SMALL: Final = (0, 1, 2, 3, 5, 7, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 100, 128, 129, 200)
"""Small numbers, around those that tiles and waves are made of."""
LARGE: Final = (2**31 - 1, 2**31, 2**32, 2**62, I64_MAX)


class _IntKind(enum.IntEnum):
    """An int that is none: its class is another."""

    ONE = 1


class _StrKind(enum.StrEnum):
    """A str that is none."""

    NAME = "name"


def inner(field: Attribute) -> Any:
    """Return a field's validator, looking through Optional."""
    return field.validator.inner if isinstance(field.validator, Optional) else field.validator


def kind_of(field: Attribute, example: object) -> type:
    """Return the type that a field takes, by its validator, else as an example has it."""
    match inner(field):
        case ExactInt():
            return int
        case ExactBool():
            return bool
        case ExactFloat():
            return float
        case ExactStr():
            return str
        case OneOf(values):
            return type(values[0])
        case TupleOf():
            return tuple
        case _:
            return annotated(field) or cast("Any", type)(example)


def annotated(field: Attribute) -> type | None:
    """Return the plain type that a field's annotation begins with; None for another."""
    plain: dict[str, type] = {kind.__name__: kind for kind in (bool, int, float, str, tuple)}
    word = re.match(r"\w+", getattr(field.type, "__name__", str(field.type)))
    return plain.get(word[0]) if word else None


def takes_none(field: Attribute) -> bool:
    """Return whether None stands for something: by the validator, the default, or the annotation."""
    return isinstance(field.validator, Optional) or field.default is None or "None" in str(field.type)


def takes(owner: type, field: Attribute, value: object) -> bool:
    """Return whether a field's validator takes a value by itself."""
    if field.validator is None:
        return True
    try:
        cast("Any", field.validator)(object.__new__(owner), field, value)
    except (TypeError, ValueError):
        return False
    except AttributeError:
        return True  # it looks at another field; construction judges it
    return True


def wrong_types(kind: type, value: Any) -> list[Any]:
    """Return values that are like `value` and of another type, for a field that takes exactly `kind`."""
    found: dict[type, list[Any]] = {
        int: [True, False, 2.0, "16", np.int64(16), np.int32(1), _IntKind.ONE, [1]],
        bool: [0, 1, np.True_, "true", 1.0],
        float: [1, True, "0.5", np.float64(0.5), np.float32(0.5)],
        str: [1, True, b"name", np.str_("name"), _StrKind.NAME, ["name"]],
        tuple: [[], None, 1, "ab"],
    }
    if kind is int and type(value) is int:
        return [*found[int], float(value), str(value)]
    if kind is float and type(value) is float:
        return [*found[float], np.float64(value)]
    return found.get(kind, [object(), 1, "text"])


def out_of_range(field: Attribute, kind: type) -> list[Any]:
    """Return values of the right type that a field does not take, by its validator; of any int, what leaves 64 bits."""
    match inner(field):
        case ExactInt(minimum, maximum, step):
            found = [minimum - 1, I64_MIN - 1, I64_MAX + 1, 10**5000]
            found += [maximum + 1] if maximum is not None else []
            return found + ([minimum + step // 2] if step > 1 else [])
        case ExactFloat(minimum, maximum, low, high):
            found = [math.nan, math.inf, -math.inf]
            if minimum != -math.inf:
                found.append(minimum if low else math.nextafter(minimum, -math.inf))
            if maximum != math.inf:
                found.append(maximum if high else math.nextafter(maximum, math.inf))
            return found
        case OneOf(values) if type(values[0]) is str:
            return ["no such", "", *(f"{value} " for value in values[:1])]
        case OneOf(values) if type(values[0]) is int:
            return [max(cast("tuple[int, ...]", values)) + 1, I64_MAX + 1]
        case ExactStr():
            return [""]
        case _:
            return [I64_MIN - 1, I64_MAX + 1] if kind is int else []


def numbers_in(conditions: Iterable[Expr], name: str, arch: object) -> Iterator[Any]:
    """Yield the constants, and the values of facts, in the conditions that read a field."""
    for condition in conditions:
        if not any(isinstance(leaf, Field) and leaf.name == name for leaf in condition.leaves()):
            continue
        for part in walked(condition):
            if isinstance(part, OneOfNode):
                yield from part.values
            elif not any(isinstance(leaf, Field) for leaf in part.leaves()):
                try:
                    yield part.value_in(Scope(arch=arch)) if not isinstance(part, Const) else part.value
                except ExprError:
                    continue


def equalled(conditions: Iterable[Expr], name: str, fields: Mapping[str, Any], arch: object) -> Iterator[Any]:
    """Yield what a field would have to be for each equality with an expression over other fields."""
    scope = Scope(request=SimpleNamespace(**fields), arch=arch)
    for part in (part for condition in conditions for part in walked(condition) if isinstance(part, Eq)):
        for own, other in ((part.left, part.right), (part.right, part.left)):
            read = [leaf.name for leaf in other.leaves() if isinstance(leaf, Field)]
            if own == Field(name) and read and name not in read:
                with contextlib.suppress(ExprError):
                    yield other.value_in(scope)


def walked(expr: Expr) -> Iterator[Expr]:
    """Yield an expression and all that it is made of."""
    yield expr
    for child in expr.children:
        yield from walked(child)


def pool(owner: type, field: Attribute, numbers: Iterable[Any]) -> list[Any]:
    """Return values that a field takes: small ones, ends of its range, and those around `numbers`; each once."""
    found: list[Any] = []
    match inner(field):
        case ExactInt(minimum, maximum, step):
            first = -(-minimum // step) * step
            found += [first, first + step, *SMALL, *(number * step for number in SMALL), *LARGE]
            found += [maximum // step * step] if maximum is not None else []
            found += [n + way for n in numbers if type(n) is int for way in (-step, -1, 0, 1, step)]
        case ExactFloat(minimum, maximum):
            found += [1.0, 0.125, 0.0, -1.0, 0.1, *(end for end in (minimum, maximum) if math.isfinite(end))]
        case OneOf(values):
            found += [*numbers, *values]
        case ExactBool():
            found += [True, False]
        case TupleOf():
            found += [(), *((value,) for value in (*numbers, 1, "name", True)), (1, 2)]
        case _:
            every = [*numbers, *SMALL, True, False, "name", 1.0, ()]
            found += [value for value in every if annotated(field) in (None, type(value))]
    found += [field.default] if field.default is not attrs.NOTHING else []
    if isinstance(field.validator, Optional):
        found.append(None)
    distinct: dict[tuple[type, str], Any] = {
        (cast("type", type(value)), repr(value)): value for value in found if type(value) is not int or _fits(value)
    }
    return [value for value in distinct.values() if takes(owner, field, value)]


def _fits(value: int) -> bool:
    return I64_MIN <= value <= I64_MAX


def held(condition: Expr, fields: Mapping[str, Any], arch: object) -> bool:
    """Return whether a condition holds for fields; one that leaves 64 bits does not."""
    return not unheld((condition,), fields, arch)


def unheld(conditions: Iterable[Expr], fields: Mapping[str, Any], arch: object) -> list[Expr]:
    """Return those of conditions that do not hold for fields."""
    scope = Scope(request=SimpleNamespace(**fields), arch=arch)
    return [condition for condition in conditions if not _holds(condition, scope)]


def unheld_with(
    conditions: Sequence[Expr], fields: Mapping[str, Any], name: str, values: Iterable[Any], arch: object
) -> list[int]:
    """Return how many of conditions do not hold for fields with each of these values of one of them."""
    request = SimpleNamespace(**fields)
    scope = Scope(request=request, arch=arch)
    counts: list[int] = []
    for value in values:
        setattr(request, name, value)
        counts.append(sum(not _holds(condition, scope) for condition in conditions))
    return counts


def _holds(condition: Expr, scope: Scope) -> bool:
    try:
        return condition.value_in(scope) is True
    except ExprError:
        return False
