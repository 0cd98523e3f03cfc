"""Which family forms the gradients of another's outputs, as data: for a host that differentiates what it calls.

    GRADIENT = Gradient(
        family="scale_bwd",
        distribution="kinfolk-scale-bwd",
        reads={"x": "x", "factor": "factor"},
        given={"dy": "y"},
        gives={"x": "dx", "factor": "dfactor"},
    )

Neither family imports the other: a name is all that one says of it, and it works where the other is not installed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, cast

import attrs

from kinfolk.expr import Expr, Value, lift
from kinfolk.expr.node import Field
from kinfolk.frozen import FrozenDict
from kinfolk.operand import Operand, value_over
from kinfolk.refusal import Refusal

NO_FIELDS: Final[Mapping[str, Any]] = FrozenDict({})


def _frozen(values: Mapping[str, Any]) -> Mapping[str, Any]:
    return FrozenDict(dict(values))


def _stated(values: Mapping[str, Value | Expr]) -> Mapping[str, Expr]:
    return FrozenDict({name: lift(value) for name, value in values.items()})


@attrs.frozen
class Only:
    """The one value, or field whose value it is, that a field has where there is a gradient; why, what to do instead.

    Equality is all that is asked, so that the value may be a float.
    """

    value: Any
    because: str
    remedy: str


@attrs.frozen(kw_only=True)
class Gradient:
    """The request of another `family`, of `distribution`, whose outputs are the gradients of a request's inputs.

    Its tensors, by their names there: `reads` says which input or output of the forward pass each one is, `given` of
    which output it is the gradient. `gives` says which of its outputs is the gradient of an input. `states` are fields
    of its request that its tensors do not state, as values or of the forward request's fields.

    `keeps` are fields that the forward request has where its outputs are all that is read. `only` says which requests
    the other family's cannot speak of; what it can, and does not serve, it refuses itself.
    """

    family: str
    distribution: str
    reads: Mapping[str, str] = attrs.field(converter=_frozen)
    given: Mapping[str, str] = attrs.field(converter=_frozen)
    gives: Mapping[str, str] = attrs.field(converter=_frozen)
    states: Mapping[str, Expr] = attrs.field(default=NO_FIELDS, converter=_stated)
    keeps: Mapping[str, Value] = attrs.field(default=NO_FIELDS, converter=_frozen)
    only: Mapping[str, Only] = attrs.field(default=NO_FIELDS, converter=_frozen)

    def refusals(self, request_type: type, fields: Mapping[str, Any], plugin: str) -> tuple[Refusal, ...]:
        """Return a refusal for every field of a request that has another value than it is to have for a gradient."""
        return tuple(_refusals(self.only, getattr(request_type, "family", ""), fields, plugin))


def _refusals(only: Mapping[str, Only], family: str, fields: Mapping[str, Any], plugin: str) -> Iterator[Refusal]:
    for name, taken in only.items():
        value = value_over(taken.value, fields) if isinstance(taken.value, Expr) else taken.value
        if fields[name] != value:
            yield Refusal(
                code=f"{family}.gradient.{name}",
                kind="not_implemented",
                field=name,
                value=fields[name],
                limit=str(value),
                because=taken.because,
                remedy=taken.remedy,
                plugin=plugin,
            )


def check_gradient(request_type: type, operands: Sequence[Operand], gradient: Gradient | None) -> None:
    """Raise TypeError where a gradient names what is no tensor or no field of the request whose gradient it is."""
    if gradient is None:
        return
    fields = {field.name for field in attrs.fields(cast("Any", request_type))}
    outputs = {operand.name for operand in operands if operand.output}
    inputs = {operand.name for operand in operands} - outputs
    exprs = list(gradient.states.values())
    exprs += [each.value for each in gradient.only.values() if isinstance(each.value, Expr)]
    read = [leaf.name for expr in exprs for leaf in expr.leaves() if isinstance(leaf, Field)]
    for what, names, known in (
        ("tensor", gradient.reads.values(), inputs | outputs),
        ("output", gradient.given.values(), outputs),
        ("input", gradient.gives, inputs),
        ("field", [*gradient.keeps, *gradient.only, *read], fields),
    ):
        if unknown := sorted(set(names) - known):
            raise TypeError(f"{request_type.__name__} has no {what} {', '.join(unknown)}, as its gradient says")
