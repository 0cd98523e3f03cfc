"""A request's class as data, and a class from that data: the same fields, rules, messages and relations."""

from __future__ import annotations

from typing import Any, cast

import attrs

from kinfolk.expr import from_data
from kinfolk.fields import (
    ExactBool,
    ExactFloat,
    ExactInt,
    ExactStr,
    OneOf,
    Optional,
    is_launch,
    launch_field,
    meaning_of,
    means,
)
from kinfolk.record import class_name, encode, fields_of
from kinfolk.request import Relation, Request
from kinfolk_runtime.bundles.document import BundleError
from kinfolk_runtime.bundles.texts import has_numbers, pieces, template


def request_data(kind: type[Request]) -> dict[str, Any]:
    """Return a request class as JSON data.

    Raises BundleError, naming the field, for rules that only Python knows.
    """
    if kind.check is not Request.check:
        raise BundleError(
            f"{kind.__name__}.check is Python, which no host without it can ask. Declare `relations` instead."
        )
    return {
        "name": kind.__name__,
        "class": class_name(kind),
        "fields": [_field_data(kind, each) for each in fields_of(kind)],
        "relations": [_relation_data(each) for each in kind.relations],
    }


def _field_data(kind: type[Request], field: attrs.Attribute[Any]) -> dict[str, Any]:
    validator: Any = field.validator
    optional = isinstance(validator, Optional)
    rule = _rule_data(validator.inner if isinstance(validator, Optional) else validator)
    if rule is None:
        raise BundleError(
            f"{kind.__name__}.{field.name} is checked by {type(validator).__name__}, which no bundle carries. "
            f"Use a validator of kinfolk.fields for one int, bool, str or float."
        )
    data = {"name": field.name, "launch": is_launch(field), "optional": optional, "means": meaning_of(field), **rule}
    if field.default is not attrs.NOTHING:
        data["default"] = encode(field.default)
    return data


def _rule_data(validator: object) -> dict[str, Any] | None:
    match validator:
        case ExactInt(minimum, maximum, step):
            return {"kind": "int", "minimum": minimum, "maximum": maximum, "step": step, "rule": validator.rule}
        case ExactBool():
            return {"kind": "bool"}
        case ExactStr():
            return {"kind": "str"}
        case ExactFloat(minimum, maximum, low, high):
            return {
                "kind": "float",
                "minimum": minimum.hex(),
                "maximum": maximum.hex(),
                "exclusive_minimum": low,
                "exclusive_maximum": high,
                "rule": validator.rule,
            }
        case OneOf(values):
            return {"kind": type(values[0]).__name__, "values": list(values)}
        case _:
            return None


def _relation_data(relation: Relation) -> dict[str, Any]:
    return {
        "field": relation.field,
        "condition": relation.condition.data(),
        "rule": pieces(relation.rule, relation.numbers),
        "remedy": pieces(relation.remedy, relation.numbers),
    }


def request_class(family: str, data: dict[str, Any]) -> type[Request]:
    """Return a class that takes what the one that `data` was made of takes, and refuses the rest in the same words."""
    fields = {each["name"]: _field(each) for each in data["fields"]}
    body = {
        "__doc__": f"A request of {family}, as a bundle has it.",
        "family": family,
        "relations": tuple(_relation(each) for each in data["relations"]),
    }
    made = attrs.make_class(data["name"], fields, bases=(Request,), class_body=body, frozen=True, kw_only=True)
    return cast("type[Request]", made)


def _field(data: dict[str, Any]) -> Any:
    validator: Any = _validator(data)
    default: Any = attrs.NOTHING
    if "default" in data:
        default = data["default"]
        if isinstance(default, dict):
            default = float.fromhex(cast("dict[str, str]", default)["float"])
    declare: Any = launch_field if data["launch"] else attrs.field
    validator = Optional(validator) if data["optional"] else validator
    return declare(validator=validator, default=default, metadata=means(data["means"]))


def _validator(data: dict[str, Any]) -> object:
    if "values" in data:
        return OneOf(data["values"])
    match data["kind"]:
        case "int":
            return ExactInt(data["minimum"], data["maximum"], data["step"])
        case "bool":
            return ExactBool()
        case "str":
            return ExactStr()
        case _:
            low, high = float.fromhex(data["minimum"]), float.fromhex(data["maximum"])
            return ExactFloat(low, high, data["exclusive_minimum"], data["exclusive_maximum"])


def _relation(data: dict[str, Any]) -> Relation:
    formatted = has_numbers(data["rule"]) or has_numbers(data["remedy"])
    rule, numbers = template(data["rule"], "rule", formatted=formatted)
    remedy, more = template(data["remedy"], "remedy", formatted=formatted)
    return Relation(
        field=data["field"], condition=from_data(data["condition"]), rule=rule, remedy=remedy, numbers=numbers | more
    )
