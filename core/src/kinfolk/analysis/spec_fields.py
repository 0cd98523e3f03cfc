"""Fields of specs that change no kernel: each is compiled, gated and tuned for nothing, once per value."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, cast

import attrs

from kinfolk.check.defect import Defect
from kinfolk.errors import KinfolkError
from kinfolk.fields import ExactBool, ExactInt, OneOf, Optional
from kinfolk.ir.text import print_kernel
from kinfolk.ir.value import Kernel
from kinfolk.record import fields_of
from kinfolk.spec import Spec

CHECK: Final = "dead_spec_field"
BASES: Final = 3
"""How many specs of a class are changed in one field, at most: the first, the last and one between."""
NEARBY: Final = 6
"""How many values of a field are tried, at most, for each of them."""
Emit = Callable[[Spec], Kernel]


@attrs.frozen(kw_only=True)
class SpecField:
    """A field of a class of specs: the two specs that it tells apart, None where no two were found.

    `tried` counts pairs of kernels that differ in the field alone; with none the field has one value that can be
    emitted, which says nothing against it.
    """

    owner: type[Spec]
    name: str
    pair: tuple[Spec, Spec] | None
    tried: int

    @property
    def dead(self) -> bool:
        """Whether kernels were compared that differ in the field alone, and all were the same."""
        return self.pair is None and self.tried > 0


def spec_fields(
    specs: Iterable[Spec],
    emit: Emit,
    *,
    legal: Callable[[Spec], bool] = lambda spec: True,
    plan_of: Callable[[Spec], str] = lambda spec: "",
) -> tuple[SpecField, ...]:
    """Return what is known of each field of each class among `specs`, in order.

    `emit` gives a spec's kernel. Pairs are taken from the specs, then made of a few of them with another value that
    the field takes: one that is `legal` if there is one, else one that the emitter takes all the same. `plan_of` is
    what a plan says of a spec, where a field may change that instead.
    """
    texts = _Texts(emit, plan_of)
    found: list[SpecField] = []
    by_class: dict[type[Spec], list[Spec]] = {}
    for spec in specs:
        by_class.setdefault(type(spec), []).append(spec)
    for owner, members in by_class.items():
        found += [_judged(owner, field, members, texts, legal) for field in fields_of(owner)]
    return tuple(found)


def dead_spec_fields(
    specs: Iterable[Spec],
    emit: Emit,
    *,
    legal: Callable[[Spec], bool] = lambda spec: True,
    plan_of: Callable[[Spec], str] = lambda spec: "",
) -> tuple[Defect, ...]:
    """Return a defect for each field that changes neither IR nor plan, and for each identity that has two kernels.

    Arguments are those of `spec_fields`.
    """
    every = tuple(specs)
    texts = _Texts(emit, plan_of)
    twice = [spec for spec in {type(each): each for each in every}.values() if not texts.stable(spec)]
    return (
        *(
            Defect(
                check=CHECK,
                where=f"{each.owner.__name__}.{each.name}",
                problem=f"{each.tried} pairs of specs that differ in it alone have equal kernels and plans",
                remedy="drop the field, or let the kernel depend on it",
            )
            for each in spec_fields(every, emit, legal=legal, plan_of=plan_of)
            if each.dead
        ),
        *(
            Defect(
                check=CHECK,
                where=type(spec).__name__,
                problem="the same identity gives two kernels",
                remedy="build a kernel from its spec and arch alone: what else it depends on belongs into the spec",
                example=str(spec),
            )
            for spec in twice
        ),
    )


class _Texts:
    """What a spec stands for: its kernel's text and what a plan says of it, the symbol left out; each made once."""

    def __init__(self, emit: Emit, plan_of: Callable[[Spec], str]) -> None:
        self._emit, self._plan_of = emit, plan_of
        self._known: dict[str, str | None] = {}

    def of(self, spec: Spec) -> str | None:
        """Return the text; None where the emitter refuses the spec."""
        identity = spec.identity()
        if identity not in self._known:
            self._known[identity] = self._made(spec)
        return self._known[identity]

    def stable(self, spec: Spec) -> bool:
        """Whether a spec read back from its data gives the same again."""
        return self._made(spec) == self._made(type(spec).from_json(spec.to_json()))

    def _made(self, spec: Spec) -> str | None:
        try:
            text = print_kernel(self._emit(spec)) + self._plan_of(spec)
        except (KinfolkError, ValueError, TypeError, ArithmeticError):
            return None
        return text.replace(spec.symbol(), "symbol")


def _judged(
    owner: type[Spec], field: attrs.Attribute[Any], members: list[Spec], texts: _Texts, legal: Callable[[Spec], bool]
) -> SpecField:
    """Return the first pair with different texts: of the members, of legal neighbours, of any neighbours."""
    pairs = itertools.chain(
        _neighbours(members, field.name),
        ((base, other) for base, other in _evolved(members, field) if legal(other)),
    )
    tried = 0
    for pair in pairs:
        differs = _differ(pair, texts)
        if differs:
            return SpecField(owner=owner, name=field.name, pair=pair, tried=tried + 1)
        tried += differs is not None
    if not tried:  # no two are legal: what the emitter takes all the same shows as much
        for pair in _evolved(members, field):
            if _differ(pair, texts):
                return SpecField(owner=owner, name=field.name, pair=pair, tried=1)
    return SpecField(owner=owner, name=field.name, pair=None, tried=tried)


def _differ(pair: tuple[Spec, Spec], texts: _Texts) -> bool | None:
    """Return whether two specs stand for different things; None where one cannot be emitted."""
    other = texts.of(pair[1])  # before the first, which other pairs have too: many an other is refused
    one = texts.of(pair[0]) if other is not None else None
    return None if one is None or other is None else one != other


def _fields(spec: Spec) -> dict[str, Any]:
    return cast("dict[str, Any]", cast("Mapping[str, Any]", spec.data())["fields"])


def _neighbours(members: list[Spec], name: str) -> Iterator[tuple[Spec, Spec]]:
    """Yield pairs of members that differ in one field alone: each with the first that it differs so from."""
    first: dict[str, tuple[Spec, Any]] = {}
    for spec in members:
        fields = _fields(spec)
        value = fields.pop(name, None)
        other = first.setdefault(repr(fields), (spec, value))
        if other[1] != value:
            yield other[0], spec


def _evolved(members: list[Spec], field: attrs.Attribute[Any]) -> Iterator[tuple[Spec, Spec]]:
    """Yield some members with the same but for another value of a field."""
    bases = list({id(each): each for each in (members[0], members[-1], members[len(members) // 2])}.values())
    for base in bases[:BASES]:
        for value in itertools.islice(_values(field.validator, getattr(base, field.name)), NEARBY):
            try:
                yield base, attrs.evolve(base, **{field.name: value})
            except (TypeError, ValueError):  # not with the other fields of this one
                continue


def _values(validator: Any, now: Any) -> Iterator[Any]:
    """Yield other values that a field takes, near ones first."""
    if isinstance(validator, Optional):
        validator = validator.inner
    match validator:
        case ExactBool():
            yield not now
        case OneOf(values):
            yield from (value for value in values if value != now)
        case ExactInt(minimum, maximum, step) if type(now) is int:
            most = 2**31 if maximum is None else maximum
            near = (now + step, now - step, 2 * now, now // 2 // step * step, now + 2 * step, now - 2 * step, minimum)
            yield from (v for v in dict.fromkeys(near) if v != now and minimum <= v <= most and v % step == 0)
        case _:
            return


__all__ = ["SpecField", "dead_spec_fields", "spec_fields"]
