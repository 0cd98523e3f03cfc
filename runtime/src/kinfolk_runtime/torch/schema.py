"""What an operator takes: the tensors of a family and the fields of its request, as torch writes schemas."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from kinfolk.errors import PluginError
from kinfolk.fields import ExactBool, ExactFloat, ExactInt, ExactStr, OneOf, Optional, TupleOf
from kinfolk.operand import inputs_of
from kinfolk.record import fields_of

if TYPE_CHECKING:
    from kinfolk.request import Request

KINDS: Final[Mapping[type, str]] = {int: "SymInt", float: "float", bool: "bool", str: "str"}
OWN: Final = {"arch": "str? arch=None", "flavor": "str? flavor=None", "check": "bool check=True"}
"""What an operator takes beside tensors and fields."""
OUT: Final = "out"
"""What one that writes outputs it is passed takes first."""


def schema_of(request_type: type[Request], *, out: bool) -> str:
    """Return the schema of a family's operator: tensors, then by name what is its own and the fields of the request.

    Each may be left out: what tensors state is read off them, and the rest is missed when it is called. With `out` the
    outputs come first, which are then written, and nothing is returned. Raises PluginError where a family says nothing
    of its tensors, or a name is that of two things.
    """
    family, names = request_type.family, inputs_of(request_type.operands)
    if not names:
        raise PluginError(
            f"{family} is no operator: {request_type.__name__} declares no operands, so that its tensors are known "
            f"for a plan alone. Declare `operands` (kinfolk.operand), or call a Runner."
        )
    fields = [field.name for field in fields_of(request_type)]
    if twice := [name for name in [*names, *fields] if [*names, *fields, *OWN, OUT].count(name) > 1]:
        raise PluginError(
            f"{family} is no operator: {', '.join(sorted(set(twice)))} is the name of two things. Rename."
        )
    tensors = [f"Tensor? {name}=None" for name in names]
    values = [f"{_kind(field.validator, field.name)}? {field.name}=None" for field in fields_of(request_type)]
    arguments = ", ".join([*tensors, "*", *OWN.values(), *values])
    return f"(Tensor(a!)[] {OUT}, {arguments}) -> ()" if out else f"({arguments}) -> Tensor[]"


def _kind(validator: Any, name: str) -> str:
    """Return torch's word for the values that a validator takes."""
    match validator:
        case Optional(inner):
            return _kind(inner, name)
        case TupleOf(inner):
            return f"{_kind(inner, name)}[]"
        case ExactBool():
            return KINDS[bool]
        case ExactInt():
            return KINDS[int]
        case ExactFloat():
            return KINDS[float]
        case ExactStr():
            return KINDS[str]
        case OneOf(values):
            return KINDS[type(values[0])]
        case _:
            raise PluginError(f"no operator has an argument for the field {name}, whose validator is {validator!r}")
