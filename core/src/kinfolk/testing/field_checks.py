"""Fields take exactly what they say: of a request, and of every class of spec."""

from __future__ import annotations

import re
from typing import Any

import attrs

from kinfolk.fields import FieldError, shown
from kinfolk.record import Record, fields_of
from kinfolk.testing.check import Findings, Outcome
from kinfolk.testing.requests import Requests
from kinfolk.testing.subject import Subject
from kinfolk.testing.values import kind_of, out_of_range, takes, takes_none, wrong_types

VALIDATORS = "Give the field a validator of kinfolk.fields (ExactInt, ExactBool, ExactFloat, OneOf, ...)"


def strict_types(subject: Subject) -> Outcome:
    """Offer each field of a request, and of every class of spec, values of other types and out of range."""
    found = Findings("strict_types", "values")
    bases = subject.requests.every_base()
    _keep(subject.requests, found)
    records: dict[type, Record] = {type(each): each for each in reversed((*bases, *subject.specs))}
    for record in records.values():
        for field in fields_of(type(record)):
            _offer(record, field, found)
    return found.outcome()


def _keep(requests: Requests, found: Findings) -> None:
    """Give each field of a request the values that it takes, one at a time: it holds what it was given."""
    for base in requests.every_base()[:1]:
        for name, values in requests.pools.items():
            for value in values:
                try:
                    held = getattr(attrs.evolve(base, **{name: value}), name)
                except (TypeError, ValueError):
                    continue  # not beside the others' values
                found.looked_at()
                if type(held) is not type(value) or held != value:
                    owner = type(base).__name__
                    problem = f"holds {shown(held, 40)} where {shown(value, 40)} was given"
                    remedy = "Refuse what the family cannot take: a caller who is not told computes something else"
                    found.wrong(f"{owner}.{name}", problem, remedy, f"{owner}({name}={shown(value, 40)})", kind="kept")


def _offer(record: Record, field: attrs.Attribute[Any], found: Findings) -> None:
    held = getattr(record, field.name)
    kind = kind_of(field, held)
    wrong = wrong_types(kind, held)
    if not takes_none(field):
        wrong.append(None)
    for value in wrong:
        _expect(record, field, value, TypeError, found)
    for value in out_of_range(field, kind):
        _expect(record, field, value, ValueError, found)


def _expect(record: Record, field: attrs.Attribute[Any], value: Any, error: type[Exception], found: Findings) -> None:
    owner = type(record).__name__
    where, told = f"{owner}.{field.name}", f"{owner}({field.name}={shown(value, 40)})"
    found.looked_at()
    try:
        attrs.evolve(record, **{field.name: value})
    except error as caught:
        _judge_message(record, field, value, caught, found)
    except Exception as caught:  # noqa: BLE001 - whatever a stranger's validator raises instead
        problem = f"raises {type(caught).__name__} for a {_said(value, error)}, {error.__name__} is due"
        found.wrong(where, problem, VALIDATORS, told, kind="class of error")
    else:
        found.wrong(where, f"takes {shown(value, 40)}, a {_said(value, error)}", VALIDATORS, told, kind=error.__name__)


def _said(value: Any, error: type[Exception]) -> str:
    return f"{type(value).__name__}" if error is TypeError else "value out of range"


def _judge_message(record: Record, field: attrs.Attribute[Any], value: Any, caught: Exception, found: Findings) -> None:
    """Hold a refusal to what a caller needs: class, field, value, rule, and a remedy that is taken."""
    owner, text = type(record).__name__, str(caught)
    said = str(caught.args[0]) if caught.args else text  # validators of attrs pass the attribute along
    where, told = f"{owner}.{field.name}", f"{owner}({field.name}={shown(value, 40)})"
    parts = {"class": owner, "field": field.name, "value": shown(value)}
    missing = [name for name, part in parts.items() if part not in text]
    if isinstance(caught, FieldError):
        missing += [name for name in ("rule", "remedy") if not getattr(caught, name)]
        named = re.match(r"Pass (-?[\d.]+(?:e[+-]?\d+)?)(?:\.$|,)", caught.remedy)
        if named and not takes(type(record), field, kind_of(field, value)(named[1])):
            problem = f"its remedy says {caught.remedy!r}, which it does not take either"
            found.wrong(where, problem, "Name a value that the field takes", told, kind="remedy")
    if missing:
        problem = f"refuses without its {' and '.join(missing)}: {said[:200]}"
        found.wrong(where, problem, "Raise FieldTypeError or FieldValueError of kinfolk.fields", told, kind="message")
