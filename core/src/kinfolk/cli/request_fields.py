"""The fields of a request, read from its class: what each takes in words, what it means, who fills it in."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, cast

import attrs

from kinfolk.cli.output import shell_word
from kinfolk.fields import (
    ExactBool,
    ExactFloat,
    ExactInt,
    ExactStr,
    OneOf,
    Optional,
    is_launch,
    listing,
    meaning_of,
    shown,
)
from kinfolk.plugins.containment import WrongAnswerError, contained
from kinfolk.record import fields_of

if TYPE_CHECKING:
    from kinfolk.request import Request

    Field = attrs.Attribute[Any]

_LONG: Final = r"[0-9]\.[0-9]{4,}(e[-+][0-9]+)?"
FOLLOWS: Final = "from the others"
KINDS: Final[Mapping[type, str]] = {
    bool: "true or false",
    int: "a whole number",
    float: "a decimal number",
    str: "a word",
}
"""What `key=value` reads a text as."""


def taken(validator: object) -> str:
    """Return the values that a validator takes, in the words of whoever types them."""
    match validator:
        case Optional(inner):
            return taken(inner)
        case ExactInt():
            return f"{KINDS[int]}, {validator.rule}"
        case ExactFloat():
            return f"{KINDS[float]}, {re.sub(_LONG, lambda digits: f'{float(digits[0]):.3g}', validator.rule)}"
        case ExactBool():
            return KINDS[bool]
        case OneOf(values):
            return listing(tuple(map(shell_word, values)))
        case ExactStr():
            return KINDS[str]
        case _:
            return "a value"


def filled_in(request_type: type[Request], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that a request class fills in from those given. HookFault where it does so wrongly."""
    fields = {field.name: field for field in fields_of(request_type)}
    bare = object.__new__(request_type)

    def taken_by_fields(answer: Any) -> dict[str, Any]:
        for name, value in answer.items():
            if name not in fields:
                raise WrongAnswerError(f"fills in {name}, {request_type.__name__} has no such field")
            if name not in given:
                try:
                    cast("Callable[..., None]", fields[name].validator)(bare, fields[name], value)
                except (TypeError, ValueError) as error:
                    raise WrongAnswerError(
                        f"fills in {name} = {shown(value)}, which its field refuses: {error}"
                    ) from None
                except AttributeError:
                    continue  # it looks at another field; constructing the request judges it
        return answer

    call, package = f"{request_type.__name__}.cli_defaults", request_type.__module__.partition(".")[0]
    filled = contained(package, call, request_type.cli_defaults, dict(given), take=taken_by_fields, package=package)
    return {name: value for name, value in filled.items() if name not in given}


def needed(request_type: type[Request], given: Mapping[str, Any]) -> tuple[Field, ...]:
    """Return the fields that are neither given nor filled in, nor would be once the others are given."""
    known = {**filled_in(request_type, given), **given}
    missing = [field for field in fields_of(request_type) if field.default is attrs.NOTHING and field.name not in known]
    examples = {field.name: example_of(field) for field in missing}
    found: list[Field] = []
    for field in missing:
        others = {name: value for name, value in examples.items() if name != field.name and value is not None}
        if field.name not in filled_in(request_type, {**given, **others}):
            found.append(field)
    return tuple(found)


def example_of(field: Field) -> Any:
    """Return a value that a field takes by itself, None where none is found."""
    validator = field.validator.inner if isinstance(field.validator, Optional) else field.validator
    if isinstance(validator, ExactInt):
        return -(-max(1, validator.minimum) // validator.step) * validator.step
    if isinstance(validator, ExactFloat):
        return next((value for value in (1.0, validator.minimum, validator.maximum) if _takes(validator, value)), None)
    if isinstance(validator, OneOf):
        return validator.values[0]
    return True if isinstance(validator, ExactBool) else "word" if isinstance(validator, ExactStr) else None


def _takes(validator: ExactFloat, value: float) -> bool:
    low = value > validator.minimum if validator.exclusive_minimum else value >= validator.minimum
    high = value < validator.maximum if validator.exclusive_maximum else value <= validator.maximum
    return low and high


@attrs.frozen(kw_only=True)
class FieldRow:
    """One field for who asks: what it takes, what stands in where it is not given, and what it means.

    `role` is `launch` for a value that is passed to the kernel, `compiled` for one that selects the kernel.
    """

    name: str
    takes: str
    filled_in: str
    role: str
    means: str


def field_rows(request_type: type[Request]) -> list[FieldRow]:
    """Return a row for each field, in order of declaration."""
    filled = filled_in(request_type, {})
    required = {field.name for field in needed(request_type, {})}

    def stands_in(field: Field) -> str:
        if field.name in required:
            return ""
        if field.name in filled:
            return shell_word(filled[field.name])
        if field.default is attrs.NOTHING:
            return FOLLOWS
        return "none" if field.default is None else shell_word(field.default)

    return [
        FieldRow(
            name=field.name,
            takes=taken(field.validator),
            filled_in=stands_in(field),
            role="launch" if is_launch(field) else "compiled",
            means=meaning_of(field),
        )
        for field in fields_of(request_type)
    ]
