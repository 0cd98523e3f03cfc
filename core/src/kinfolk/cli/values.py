"""Requests from the command line: `key=value` words, and the request they make."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import attrs
import click

from kinfolk.cli.app import unknown
from kinfolk.cli.output import shell_word
from kinfolk.cli.request_fields import KINDS, example_of, filled_in, needed, taken
from kinfolk.errors import KinfolkError
from kinfolk.fields import (
    ExactBool,
    ExactFloat,
    ExactInt,
    FieldError,
    FieldTypeError,
    OneOf,
    Optional,
    meaning_of,
    shown,
)
from kinfolk.plugins.containment import contained
from kinfolk.record import fields_of
from kinfolk.refusal import Refusal, field_refusal

if TYPE_CHECKING:
    from kinfolk.cli.request_fields import Field
    from kinfolk.request import Request

T = TypeVar("T")
Value = bool | int | float | str

_DIGITS: Final = 4000
_INT: Final = re.compile(r"-?[0-9]+")
_DECIMAL: Final = re.compile(r"-?(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))(?:[eE][+-]?[0-9]+)?")


def parsed_value(text: str) -> Value:
    """Return true/false in any case as a bool, digits as an int, a decimal as a float, anything else as a string."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    if _INT.fullmatch(text):
        return _whole(text)
    if _DECIMAL.fullmatch(text):
        return float(text)
    return text


def _whole(text: str) -> int:
    """Return an int of however many digits: Python itself reads some thousands."""
    digits, value = text.removeprefix("-"), 0
    for begin in range(0, len(digits), _DIGITS):
        part = digits[begin : begin + _DIGITS]
        value = value * 10 ** len(part) + int(part)
    return -value if text.startswith("-") else value


def assignments(words: Iterable[str]) -> dict[str, Value]:
    """Return `key=value` words by key; a word of another form or a key given twice is a usage error (exit status 2)."""
    values: dict[str, Value] = {}
    for word in words:
        key, equals, text = word.partition("=")
        if not equals or not key.isidentifier():
            raise click.UsageError(f"{word!r} is no field; fields are given as key=value, such as num_heads=128")
        if key in values:
            raise click.UsageError(f"{key} is given twice: {shown(values[key])} and {shown(parsed_value(text))}")
        values[key] = parsed_value(text)
    return values


@attrs.frozen(kw_only=True)
class RequestInput:
    """What the words came to: the request, or None and why.

    `given` are the fields typed in, `defaults` those filled in.
    """

    given: Mapping[str, Value]
    defaults: Mapping[str, Any]
    request: Request | None
    refusals: tuple[Refusal, ...] = ()

    @property
    def fields(self) -> dict[str, Any]:
        """The fields as far as they are known, given ones first."""
        return {**self.given, **self.defaults}


def request_from(request_type: type[Request], words: Iterable[str]) -> RequestInput:
    """Return the request that `key=value` words make; every field that is wrong or missing is a refusal.

    What is not given is asked of the request class: its classmethod `cli_defaults(given)`, if it has one, returns the
    fields it can fill in from those given. An unknown field is a usage error with the nearest name.
    """
    given = assignments(words)
    fields = {field.name: field for field in fields_of(request_type)}
    for key in given:
        if key not in fields:
            raise click.UsageError(unknown(f"{request_type.family} field", key, list(fields)))
    wrong = _wrong_fields(request_type, given)
    if wrong:
        return RequestInput(given=given, defaults={}, request=None, refusals=tuple(wrong))
    defaults = filled_in(request_type, given)
    missing = [_missing(request_type, field) for field in needed(request_type, given)]
    if missing:
        return RequestInput(given=given, defaults=defaults, request=None, refusals=tuple(missing))
    try:
        made: Callable[[], Request] = functools.partial(request_type, **given, **defaults)
        request = _contained(request_type, request_type.__name__, made)
    except FieldError as error:
        return _refused(given, defaults, _refusal(error, request_type, fields.get(error.field)))
    except (TypeError, ValueError) as error:
        return _refused(given, defaults, _disagreement(request_type, error))
    return RequestInput(given=given, defaults=defaults, request=request)


def _contained(request_type: type[Request], call: str, function: Callable[[], T]) -> T:
    """Call what a request class is made of; TypeError, ValueError and AttributeError are its verdicts."""

    def answered(answer: T) -> T:
        return answer

    passing = (KinfolkError, TypeError, ValueError, AttributeError)
    return contained(f"family {request_type.family}", call, function, take=answered, passing=passing)


def _wrong_fields(request_type: type[Request], given: Mapping[str, Value]) -> list[Refusal]:
    """Return a refusal for each given value that its field does not take by itself."""
    bare = object.__new__(request_type)
    for name, value in given.items():
        object.__setattr__(bare, name, value)
    found: list[Refusal] = []
    for field in fields_of(request_type):
        if field.name in given and field.validator is not None:
            try:
                judge = functools.partial(cast("Callable[..., None]", field.validator), bare, field, given[field.name])
                _contained(request_type, f"{request_type.__name__}.{field.name}", judge)
            except FieldError as error:
                found.append(_refusal(error, request_type, field))
            except (TypeError, ValueError) as error:
                found.append(_disagreement(request_type, error, field.name, given[field.name]))
            except AttributeError:
                continue  # it looks at a field that is not given; constructing the request judges it
    return found


def _refusal(error: FieldError, request_type: type[Request], field: Field | None) -> Refusal:
    """Return the row for a wrong value in the words of a shell, with a remedy that can be typed."""
    refusal = field_refusal(error, request_type.family)
    if field is None:
        return refusal
    name, value, takes = error.field, error.value, taken(field.validator)
    if isinstance(field.validator, OneOf):
        known = {str(each).lower(): each for each in field.validator.values}
        near = get_close_matches(shell_word(value).lower(), list(known), n=1)
        remedy = (
            f"Did you mean {name}={known[near[0]]}?"
            if near
            else f"Pass {name}={shell_word(field.validator.values[0])}."
        )
        remedy = field.validator.instead.get(shell_word(value).lower(), remedy)
        return attrs.evolve(refusal, limit=takes, because="these are the values there are", remedy=remedy)
    if isinstance(error, FieldTypeError):
        takes = takes.partition(",")[0]
        found = KINDS.get(type(value), type(value).__name__)
        because = f"{shell_word(value)} is read as {found}, and nothing is converted"
        near = _converted(field, value)
        remedy = f"Pass {name}={near}." if near else f"Pass {takes}, as in {name}={shell_word(example_of(field))}."
        return attrs.evolve(refusal, limit=takes, because=because, remedy=remedy)
    match = re.fullmatch(r"Pass (-?[0-9][0-9.e+-]*)\.", error.remedy)
    remedy = f"Pass {name}={match[1]}." if match else error.remedy
    return attrs.evolve(refusal, because=f"{request_type.__name__}.{name} must be {error.rule}", remedy=remedy)


def _converted(field: Field, value: object) -> str | None:
    """Return how to type a number that is meant as a float, or one meant as an int, where the field takes it."""
    validator = field.validator
    inner = validator.inner if isinstance(validator, Optional) else validator
    meant: object = None
    if isinstance(inner, ExactFloat) and type(value) is int and abs(value) < 2**53:
        meant = float(value)
    elif isinstance(inner, ExactInt) and type(value) is float and value.is_integer() and abs(value) < 2**53:
        meant = int(value)
    elif isinstance(inner, ExactBool) and value in (0, 1):
        meant = bool(value)
    if meant is None:
        return None
    try:
        cast("Callable[..., None]", inner)(None, field, meant)
    except FieldError:
        return None
    return shell_word(meant)


def _refused(given: Mapping[str, Value], defaults: Mapping[str, Any], refusal: Refusal) -> RequestInput:
    return RequestInput(given=given, defaults=defaults, request=None, refusals=(refusal,))


def _missing(request_type: type[Request], field: Field) -> Refusal:
    return Refusal(
        code=f"request.{field.name}.missing",
        kind="invalid",
        field=field.name,
        value=None,
        limit=meaning_of(field) or taken(field.validator),
        because=f"{request_type.__name__}.{field.name} has no default",
        remedy=f"kinfolk list {request_type.family} says what each field takes.",
        plugin=request_type.family,
    )


def _disagreement(request_type: type[Request], error: Exception, name: str = "", value: object = None) -> Refusal:
    """Return the refusal for a request whose class raised a plain TypeError or ValueError.

    Its sentence is the limit.
    """
    match = re.match(rf"{request_type.__name__}\.(\w+)", str(error))
    field = name or (match.group(1) if match else "request")
    reason = "type" if isinstance(error, TypeError) else "range"
    return Refusal(
        code=f"request.{field}.{reason}",
        kind="invalid",
        field=field,
        value=value,
        limit=str(error),
        because="the request's class does not take it",
        remedy="Give values that fit the limit.",
        plugin=request_type.family,
    )
