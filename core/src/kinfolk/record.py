"""Records: frozen attrs classes that validate themselves again wherever a value of theirs crosses a boundary."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any, NoReturn, Self, cast

import attrs

from kinfolk.errors import InternalError
from kinfolk.fields import part_classes

Fields = tuple["attrs.Attribute[Any]", ...]


def fields_of(kind: type) -> Fields:
    """Return the attrs fields of a class."""
    return cast("Fields", attrs.fields(cast("Any", kind)))


def class_name(kind: type) -> str:
    """Return module and qualified name, as identities spell a class."""
    return f"{kind.__module__}.{kind.__qualname__}"


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    data = dict(pairs)
    if len(data) != len(pairs):
        raise ValueError(f"a key appears twice among {[key for key, _ in pairs]}")
    return data


def encode(value: object) -> Any:
    """Return a field's value as JSON data that keeps types: floats as hex, tuples as lists, records by class."""
    kind = type(value)
    if value is None or kind in (int, bool, str):
        return value
    if kind is float:
        return {"float": cast("float", value).hex()}
    if kind is tuple:
        return [encode(member) for member in cast("tuple[object, ...]", value)]
    if isinstance(value, Record):
        return value.data()
    raise TypeError(f"a record holds int, bool, str, float, None, tuples and records, got {value!r} of {kind.__name__}")


def decode(data: object, field: attrs.Attribute[Any]) -> object:
    """Return the value that `encode` was given; parts are found among the classes the field's validator takes."""
    if isinstance(data, list):
        return tuple(decode(member, field) for member in cast("list[object]", data))
    if isinstance(data, float):
        raise ValueError(f"field {field.name}: a float is written as {{'float': hex}}, got {data!r}")
    if not isinstance(data, dict):
        return data
    entries = cast("dict[str, Any]", data)
    if entries.keys() == {"float"}:
        return float.fromhex(entries["float"])
    for part in part_classes(field.validator):
        if issubclass(part, Record) and entries.get("class") == class_name(part):
            return part.from_data(entries)
    raise ValueError(f"field {field.name} takes no part {entries.get('class')!r}")


def _rebuild(kind: type[Record], values: Mapping[str, object]) -> Record:
    """Construct from a pickle or a copy: through the validators."""
    return kind(**values).revalidate()


@attrs.frozen(kw_only=True)
class Record:
    """A frozen attrs class whose every field has a validator. Subclass with `@attrs.frozen(kw_only=True)`.

    `attrs.evolve`, pickle, copy and JSON construct anew, so validators and `check` run; `revalidate` runs them on a
    value that was in other hands, even where attrs' validators are switched off.
    """

    @classmethod
    def __attrs_init_subclass__(cls) -> None:
        inspected = attrs.inspect(cls)
        if not inspected.is_frozen:
            raise TypeError(f"{class_name(cls)} must be attrs.frozen")
        for field in fields_of(cls):
            if field.validator is None:
                raise TypeError(f"{cls.__name__}.{field.name} has no validator; every field of a record has one")
            if not field.init or getattr(field, "converter", None) is not None or not field.eq:
                raise TypeError(f"{cls.__name__}.{field.name}: a record's fields are passed, compared, never converted")
        # attrs gives slotted classes a __setstate__ that would fill in fields without validating them.
        cls.__setstate__ = _refuse_state  # type: ignore[attr-defined]

    def __attrs_post_init__(self) -> None:
        if attrs.validators.get_disabled():
            self.revalidate()
        else:
            self.check()

    def check(self) -> None:
        """Raise TypeError or ValueError where fields do not fit each other; overridden by subclasses."""

    def _values(self) -> dict[str, Any]:
        if "__attrs_attrs__" not in self.__class__.__dict__:
            raise InternalError(f"{class_name(self.__class__)} lacks its attrs.frozen decorator")
        return {field.name: getattr(self, field.name) for field in fields_of(self.__class__)}

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return _rebuild, (self.__class__, self._values())

    def revalidate(self) -> Self:
        """Run every validator and `check` again, parts included; return self or raise what construction raises."""
        values = self._values()
        for field in fields_of(self.__class__):
            value = values[field.name]
            cast("Callable[..., None]", field.validator)(self, field, value)
            for part in cast("tuple[object, ...]", value if isinstance(value, tuple) else (value,)):
                if isinstance(part, Record):
                    part.revalidate()
        self.check()
        return self

    def data(self) -> dict[str, Any]:
        """Return class and fields, sorted by name, as JSON data."""
        values = self._values()
        return {"class": class_name(self.__class__), "fields": {name: encode(values[name]) for name in sorted(values)}}

    def to_json(self) -> str:
        """Return canonical JSON: equal records give equal text, different records different text."""
        return json.dumps(self.data(), separators=(",", ":"), ensure_ascii=True, allow_nan=False)

    def content_digest(self) -> str:
        """Return 16 hex digits of sha256 over the canonical JSON."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()[:16]

    @classmethod
    def from_data(cls, data: object) -> Self:
        """Return the record that `data` gave, validated; the class must be this one."""
        entries = cast("dict[str, Any]", data)
        whole = isinstance(data, dict) and entries.keys() == {"class", "fields"}
        if not whole or not isinstance(entries["fields"], dict):
            raise ValueError(f"a {cls.__name__} is written as class and fields, got {data!r}")
        if entries["class"] != class_name(cls):
            raise ValueError(f"expected a {class_name(cls)}, got a {entries['class']}")
        fields = {field.name: field for field in fields_of(cls)}
        found = cast("dict[str, object]", entries["fields"])
        if found.keys() != fields.keys():
            missing, unknown = sorted(fields.keys() - found.keys()), sorted(found.keys() - fields.keys())
            raise ValueError(f"fields of {cls.__name__} differ: missing {missing}, unknown {unknown}")
        values = {name: decode(found[name], fields[name]) for name in found}
        return cls(**values).revalidate()

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return the record that `to_json` gave, validated; raise ValueError or TypeError on anything else."""
        try:
            return cls.from_data(json.loads(text, object_pairs_hook=_no_duplicates))
        except RecursionError:
            raise ValueError(f"no {cls.__name__} is nested so deep") from None


def _refuse_state(self: object, state: object) -> NoReturn:
    raise TypeError(f"{self.__class__.__name__} is rebuilt through its constructor, never from a state")
