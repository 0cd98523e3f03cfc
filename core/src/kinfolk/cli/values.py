"""Requests from the command line: `key=value` words, and the request they make."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, cast

import attrs
import click

from kinfolk.cli.app import unknown
from kinfolk.errors import PluginError
from kinfolk.fields import FieldError
from kinfolk.record import fields_of
from kinfolk.refusal import Refusal, field_refusal

if TYPE_CHECKING:
    from kinfolk.request import Request

Value = bool | int | float | str

_INT: Final = re.compile(r"-?[0-9]+")
_DECIMAL: Final = re.compile(r"-?(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))(?:[eE][+-]?[0-9]+)?")


def parsed_value(text: str) -> Value:
    """Return true/false in any case as a bool, digits as an int, a decimal as a float, anything else as a string."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    if _INT.fullmatch(text):
        return int(text)
    if _DECIMAL.fullmatch(text):
        return float(text)
    return text


def assignments(words: Iterable[str]) -> dict[str, Value]:
    """Return `key=value` words by key; a word of another form or a key given twice is a usage error (exit status 2)."""
    values: dict[str, Value] = {}
    for word in words:
        key, equals, text = word.partition("=")
        if not equals or not key.isidentifier():
            raise click.UsageError(f"{word!r} is no field; fields are given as key=value, such as num_heads=128")
        if key in values:
            raise click.UsageError(f"{key} is given twice: {values[key]!r} and {parsed_value(text)!r}")
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
    defaults = _defaults(request_type, given)
    missing = [
        _missing(request_type, name)
        for name, field in fields.items()
        if field.default is attrs.NOTHING and name not in given and name not in defaults
    ]
    if missing:
        return RequestInput(given=given, defaults=defaults, request=None, refusals=tuple(missing))
    try:
        request = request_type(**given, **defaults)
    except FieldError as error:
        return _refused(given, defaults, field_refusal(error, request_type.family))
    except (TypeError, ValueError) as error:
        return _refused(given, defaults, _disagreement(request_type, error))
    return RequestInput(given=given, defaults=defaults, request=request)


def _wrong_fields(request_type: type[Request], given: Mapping[str, Value]) -> list[Refusal]:
    """Return a refusal for each given value that its field does not take by itself."""
    bare = object.__new__(request_type)
    for name, value in given.items():
        object.__setattr__(bare, name, value)
    found: list[Refusal] = []
    for field in fields_of(request_type):
        if field.name in given and field.validator is not None:
            try:
                cast("Callable[..., None]", field.validator)(bare, field, given[field.name])
            except FieldError as error:
                found.append(field_refusal(error, request_type.family))
            except (TypeError, ValueError) as error:
                found.append(_disagreement(request_type, error, field.name, given[field.name]))
            except AttributeError:
                continue  # it looks at a field that is not given; constructing the request judges it
    return found


def _defaults(request_type: type[Request], given: Mapping[str, Value]) -> dict[str, Any]:
    fill = getattr(request_type, "cli_defaults", None)
    if fill is None:
        return {}
    try:
        filled = dict(fill(dict(given)))
    except Exception as error:
        raise PluginError(f"{request_type.__name__}.cli_defaults raised {type(error).__name__}: {error}") from error
    return {name: value for name, value in filled.items() if name not in given}


def _refused(given: Mapping[str, Value], defaults: Mapping[str, Any], refusal: Refusal) -> RequestInput:
    return RequestInput(given=given, defaults=defaults, request=None, refusals=(refusal,))


def _missing(request_type: type[Request], name: str) -> Refusal:
    return Refusal(
        code=f"request.{name}.missing",
        kind="invalid",
        field=name,
        value=None,
        limit="a value",
        because=f"{request_type.__name__}.{name} has no default",
        remedy=f"Give {name}=VALUE.",
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
