"""Validators that take exactly what a field says: nothing is clamped, coerced or a subclass of what was meant."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import attrs

from kinfolk.errors import KinfolkError

LAUNCH: Final[Mapping[str, bool]] = {"kinfolk.launch": True}


class FieldError(KinfolkError):
    """A value that a field does not take, in parts, so that it can be printed as a sentence or as a row.

    `owner` is the class, `rule` what the field takes ("a Python int"), `remedy` what a caller can do instead, as every
    language says it. `hint` is a better one for this value, which the message has in place of it.
    """

    reason = "invalid"

    def __init__(self, owner: str, field: str, value: object, rule: str, remedy: str, hint: str = "") -> None:
        self.owner, self.field, self.value, self.rule, self.remedy = owner, field, value, rule, remedy
        self.hint = hint
        super().__init__(f"{self.sentence()}. {hint or remedy}".rstrip())

    def sentence(self) -> str:
        """Return the message but for its remedy: class, field, rule, value."""
        return f"{self.owner}.{self.field} takes {self.rule}, got {shown(self.value)}"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.owner, self.field, self.value, self.rule, self.remedy, self.hint)


class FieldTypeError(FieldError, TypeError):
    """The value's type is not exactly the field's."""

    reason = "type"

    def sentence(self) -> str:
        return f"{super().sentence()} of type {type(self.value).__name__}"


class FieldValueError(FieldError, ValueError):
    """The value has the right type and lies outside the field's range."""

    reason = "range"

    def sentence(self) -> str:
        return f"{self.owner}.{self.field} must be {self.rule}, got {shown(self.value)}"


def shown(value: object, length: int = 120) -> str:
    """Return a value as messages show it: of bounded length, whatever its repr does."""
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - a stranger's __repr__, or an int of more digits than Python prints
        if isinstance(value, int):
            return f"an int of {value.bit_length()} bits"
        return f"a {type(value).__name__} that cannot be printed"
    return text if len(text) <= length else f"{text[:length]}…"


def listing(values: tuple[object, ...]) -> str:
    """Return `16, 32, 48 or 64`."""
    words = [str(value) for value in values]
    return " or ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


@attrs.frozen
class ExactInt:
    """Take only a Python `int`: a bool is a slipped flag; a numpy integer wraps around and prints `np.int64(64)`.

    No field holds more than signed 64 bits, which expressions compute in.
    """

    minimum: int = 1
    maximum: int | None = None
    step: int = 1

    def __call__(self, instance: object, field: attrs.Attribute[Any], value: object) -> None:
        owner = type(instance).__name__
        if type(value) is not int:
            plain = _plain_int(value)
            remedy = "Pass a Python int." if plain is None else f"Pass {self._nearest(plain)}, a Python int."
            raise FieldTypeError(owner, field.name, value, "a Python int", remedy)
        if not -(2**63) <= value < 2**63:
            rule = f"{self.rule}, and within signed 64 bits"
            raise FieldValueError(owner, field.name, value, rule, f"Pass {self._nearest(value)}.")
        above = self.maximum is not None and value > self.maximum
        if value < self.minimum or above or value % self.step:
            raise FieldValueError(owner, field.name, value, self.rule, f"Pass {self._nearest(value)}.")

    @property
    def rule(self) -> str:
        """The values taken, in words."""
        if self.maximum is None:
            bounds = f"at least {self.minimum}"
        else:
            bounds = f"from {self.minimum} to {self.maximum}"
        return bounds if self.step == 1 else f"a multiple of {self.step}, {bounds}"

    def _nearest(self, value: int) -> int:
        """Return a value near `value` that the field takes: a hint, never a coercion."""
        first = -(-self.minimum // self.step) * self.step
        rounded = max(first, -(-value // self.step) * self.step)
        maximum = 2**63 - 1 if self.maximum is None else self.maximum
        return min(rounded, maximum // self.step * self.step)


def _plain_int(value: object) -> int | None:
    """Return the int of 64 bits that `value` stands for, where it does."""
    if isinstance(value, bool | str):
        return None
    try:
        plain = int(value)  # type: ignore[call-overload]  # whatever has __int__
        same = bool(plain == value)
    except Exception:  # noqa: BLE001 - a stranger's __int__ or __eq__
        return None
    return plain if same and -(2**63) <= plain < 2**63 else None


@attrs.frozen
class ExactBool:
    """Take only `True` and `False`: 1, "true" and numpy.bool are slips."""

    def __call__(self, instance: object, field: attrs.Attribute[Any], value: object) -> None:
        if type(value) is not bool:
            raise FieldTypeError(type(instance).__name__, field.name, value, "a Python bool", "Pass True or False.")


@attrs.frozen
class ExactStr:
    """Take only a `str`, and not an empty one."""

    def __call__(self, instance: object, field: attrs.Attribute[Any], value: object) -> None:
        owner = type(instance).__name__
        if type(value) is not str:
            raise FieldTypeError(owner, field.name, value, "a Python str", "Pass a str.")
        if not value:
            raise FieldValueError(owner, field.name, value, "a str of at least one character", "Pass a name.")


@attrs.frozen
class ExactFloat:
    """Take only a finite Python `float` within bounds; each bound belongs to the range unless it is exclusive."""

    minimum: float = -math.inf
    maximum: float = math.inf
    exclusive_minimum: bool = False
    exclusive_maximum: bool = False

    def __call__(self, instance: object, field: attrs.Attribute[Any], value: object) -> None:
        owner = type(instance).__name__
        if type(value) is not float:
            remedy = f"Pass a float that is {self.rule}."
            if type(value) is int and abs(value) < 2**53 and self._holds(float(value)):
                remedy = f"Pass {float(value)!r}."
            raise FieldTypeError(owner, field.name, value, "a Python float", remedy)
        if not self._holds(value):
            raise FieldValueError(owner, field.name, value, self.rule, f"Pass a float that is {self.rule}.")

    def _holds(self, value: float) -> bool:
        low = value > self.minimum if self.exclusive_minimum else value >= self.minimum
        high = value < self.maximum if self.exclusive_maximum else value <= self.maximum
        return math.isfinite(value) and low and high

    @property
    def rule(self) -> str:
        """The values taken, in words."""
        parts = ["finite"]
        if self.minimum != -math.inf:
            parts.append(f"{'more than' if self.exclusive_minimum else 'at least'} {self.minimum}")
        if self.maximum != math.inf:
            parts.append(f"{'less than' if self.exclusive_maximum else 'at most'} {self.maximum}")
        return " and ".join(parts)


def _as_values(values: Any) -> tuple[Any, ...]:
    return tuple(values)


@attrs.frozen
class OneOf:
    """Take only one of the named values, of exactly its type.

    `instead` has a remedy for words that people use and that name none of them, or several; their case is no matter.
    """

    values: tuple[int | bool | str, ...] = attrs.field(converter=_as_values)
    instead: Mapping[str, str] = attrs.field(factory=dict[str, str], kw_only=True, hash=False)

    def __attrs_post_init__(self) -> None:
        kinds: set[type] = {type(value) for value in self.values}
        if len(kinds) != 1 or not kinds <= {int, bool, str}:
            raise TypeError(f"OneOf takes values of one type, int, bool or str, got {self.values!r}")

    def __call__(self, instance: object, field: attrs.Attribute[Any], value: object) -> None:
        owner = type(instance).__name__
        kind = type(self.values[0])
        remedy = f"Pass {listing(self.values)}."
        if type(value) is not kind:
            raise FieldTypeError(owner, field.name, value, f"a Python {kind.__name__}", remedy, self._hint(value))
        if value not in self.values:
            raise FieldValueError(owner, field.name, value, listing(self.values), remedy, self._hint(value))

    def _hint(self, value: object) -> str:
        """Return what stands there for the word, or the nearest value, or nothing; a dtype has a word too."""
        import re
        from difflib import get_close_matches

        word = value.lower() if isinstance(value, str) else "".join(re.findall(r"\w+", shown(value))[-1:]).lower()
        known = {str(each).lower(): each for each in self.values}
        near = get_close_matches(word, list(known), n=1)
        return self.instead.get(word, f"Pass {known[near[0]]!r}." if near else "")


@attrs.frozen
class Optional:
    """Take `None`, or what `inner` takes: a pin that may be absent."""

    inner: Any

    def __call__(self, instance: object, field: attrs.Attribute[Any], value: object) -> None:
        if value is not None:
            self.inner(instance, field, value)


@attrs.frozen
class TupleOf:
    """Take a `tuple`, each of its members what `inner` takes."""

    inner: Any

    def __call__(self, instance: object, field: attrs.Attribute[Any], value: object) -> None:
        if type(value) is not tuple:
            raise FieldTypeError(type(instance).__name__, field.name, value, "a tuple", "Pass a tuple.")
        for member in value:  # type: ignore[reportUnknownVariableType]  # any tuple may arrive here
            self.inner(instance, field, member)


@attrs.frozen
class Exactly:
    """Take an instance of exactly one of `classes`: a part of a spec that is an attrs class of its own."""

    classes: tuple[type, ...] = attrs.field(converter=_as_values)

    def __call__(self, instance: object, field: attrs.Attribute[Any], value: object) -> None:
        if type(value) not in self.classes:
            rule = listing(tuple(kind.__name__ for kind in self.classes))
            raise FieldTypeError(type(instance).__name__, field.name, value, rule, f"Pass an instance of {rule}.")


def part_classes(validator: object) -> tuple[type, ...]:
    """Return the classes that a validator lets in as parts, looking through `Optional` and `TupleOf`."""
    while isinstance(validator, Optional | TupleOf):
        validator = validator.inner
    return validator.classes if isinstance(validator, Exactly) else ()


def means(text: str) -> dict[str, str]:
    """Return the metadata that says what a field is, for `attrs.field(metadata=...)`; lists and messages print it."""
    return {"kinfolk.means": text}


def meaning_of(field: attrs.Attribute[Any]) -> str:
    """Return what `means` said of a field, else nothing."""
    return str(field.metadata.get("kinfolk.means", ""))


def launch_field(
    *, validator: Any, default: Any = attrs.NOTHING, metadata: Mapping[str, Any] = MappingProxyType({})
) -> Any:
    """Declare a field that is a launch value: it is no part of the selection key, plans hold over intervals."""
    return attrs.field(validator=validator, default=default, metadata={**LAUNCH, **metadata})


def is_launch(field: attrs.Attribute[Any]) -> bool:
    """Return whether the field was declared with `launch_field`."""
    return bool(field.metadata.get("kinfolk.launch", False))
