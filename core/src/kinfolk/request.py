"""What every request is: the problem as the caller has it, with nothing about how it is solved."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, cast

import attrs

from kinfolk.expr import Expr, ExprOverflow, Scope, ceil_div, eq, field
from kinfolk.expr.predicate import surely_holds
from kinfolk.fields import FieldValueError, is_launch, shown
from kinfolk.gradient import Gradient, check_gradient
from kinfolk.operand import Operand, check_operands
from kinfolk.plugins.containment import WrongAnswerError, guard
from kinfolk.record import Record, class_name, fields_of


@functools.cache
def launch_names(kind: type[Request]) -> tuple[str, ...]:
    """Return the launch fields of a request class, in order of declaration."""
    return tuple(field.name for field in fields_of(kind) if is_launch(field))


@functools.cache
def _key_reader(kind: type[Request]) -> Callable[[Request], Any]:
    names = [field.name for field in fields_of(kind) if not is_launch(field)]
    if not names:
        return lambda _: ()
    return operator.attrgetter(*names)


def _named(texts: Mapping[str, Expr] | tuple[tuple[str, Expr], ...]) -> tuple[tuple[str, Expr], ...]:
    return tuple(dict(texts).items())


@attrs.frozen(kw_only=True)
class Relation:
    """A condition over several fields of a request, as data: what Python checks, a bundle carries to other hosts.

    `field` is the one to blame, `rule` says what it must be and `remedy` what to do; both may name `{numbers}`, which
    are expressions over the fields. A condition that leaves 64 bits does not hold.
    """

    field: str
    condition: Expr
    rule: str
    remedy: str
    numbers: tuple[tuple[str, Expr], ...] = attrs.field(default=(), converter=_named)
    _surely_holds: Callable[[object], bool] = attrs.field(init=False, eq=False, repr=False)

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "_surely_holds", surely_holds(self.condition))

    def expect(self, request: Request) -> None:
        """Raise FieldValueError, in the words of `rule`, where the condition does not hold."""
        if self._surely_holds(request):
            return
        scope = Scope(request=request)
        try:
            if self.condition.holds(scope):
                return
        except ExprOverflow:
            pass
        told = {name: _number(expr, scope) for name, expr in self.numbers}
        value = getattr(request, self.field)
        owner = request.__class__.__name__
        raise FieldValueError(owner, self.field, value, _told(self.rule, told), _told(self.remedy, told))


def heads_divide(heads: str, shared: str, what: str) -> Relation:
    """Return that a number of heads, field `heads`, is a multiple of how many heads `what` they read have, `shared`."""
    number, divisor = field(heads), field(shared)
    return Relation(
        field=heads,
        condition=eq(number // divisor * divisor, number),
        rule=f"a multiple of {shared} = {{heads}}",
        remedy=f"Repeat the {what} of heads, or pass {{nearest}}.",
        numbers={"heads": divisor, "nearest": ceil_div(number, divisor) * divisor},
    )


def _told(text: str, numbers: Mapping[str, str]) -> str:
    return text.format_map(numbers) if numbers else text


def _number(expr: Expr, scope: Scope) -> str:
    try:
        return str(expr.evaluate(scope))
    except ExprOverflow:
        return str(expr)


def _listed(value: object) -> object:
    return list(cast("tuple[object, ...]", value)) if isinstance(value, tuple) else value


def _mapping(answer: Any) -> dict[str, Any]:
    if not isinstance(answer, Mapping) or not all(isinstance(name, str) for name in cast("Mapping[Any, Any]", answer)):
        raise WrongAnswerError(f"returned {shown(cast('object', answer))}, it returns values by the names of fields")
    return dict(cast("Mapping[str, Any]", answer))


@attrs.frozen(kw_only=True)
class Request(Record):
    """A family's problem: shapes, dtypes, layouts, features, optional pins. Subclass with `attrs.frozen(kw_only=True)`.

    Every field has an exact validator, and `relations` says how fields must fit each other. Fields declared with
    `launch_field` only change launch values. A field `candidate` of type `str | None` pins a candidate by name.
    `operands` are its tensors, from which fields are read where a host passes tensors alone. `gradient` says whose
    request forms the gradients of its inputs.
    """

    family: ClassVar[str]
    relations: ClassVar[tuple[Relation, ...]] = ()
    operands: ClassVar[tuple[Operand, ...]] = ()
    gradient: ClassVar[Gradient | None] = None

    @classmethod
    def __attrs_init_subclass__(cls) -> None:
        super().__attrs_init_subclass__()
        if own := [name for name in ("selection_key", "data", "to_json") if name in cls.__dict__]:
            raise TypeError(f"{class_name(cls)} overrides {', '.join(own)}, which keys are made of")
        check_operands(cls, cls.operands)
        check_gradient(cls, cls.operands, cls.gradient)
        guard(cls, {"cli_defaults": _mapping, "to_dict": _mapping})

    def check(self) -> None:
        """Refuse fields that do not fit each other. A class that overrides this has rules that only Python knows."""
        for relation in self.relations:
            relation.expect(self)

    @classmethod
    def cli_defaults(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields that the command line may fill in, from those given; it prints what it uses.

        `given` holds values that each field takes by itself. A field that follows from one not given is left out.
        """
        return {}

    def selection_key(self) -> Any:
        """Return the values of all fields but the launch fields, hashable, in order of declaration."""
        return _key_reader(type(self))(self)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields by name, in order of declaration, as JSON data (a tuple becomes a list)."""
        return {name: _listed(value) for name, value in self._values().items()}
