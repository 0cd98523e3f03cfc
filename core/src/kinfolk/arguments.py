"""What a launch passes for the parameters that a kernel declares: bindings and fields of their names, and integers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from kinfolk.errors import InternalError
from kinfolk.plan import Argument, FloatField

if TYPE_CHECKING:
    from kinfolk.expr import Expr
    from kinfolk.parameters import Parameter


def named_arguments(
    parameters: Iterable[Parameter],
    integers: Mapping[str, Expr],
    bound: Mapping[str, str] = MappingProxyType({}),
) -> tuple[Argument, ...]:
    """Return the arguments of a kernel's parameters, in order.

    A pointer is the binding of its name, or the one that `bound` has for it; an f32 is the field of its name, an i32 or
    i64 its expression in `integers`. Raises InternalError where an integer has none.
    """

    def argument(parameter: Parameter) -> Argument:
        name = parameter.name
        if parameter.is_pointer:
            return Argument(name, "pointer", bound.get(name, name))
        if parameter.kind == "f32":
            return Argument(name, "f32", FloatField(name))
        if name not in integers:
            given = ", ".join(integers)
            raise InternalError(f"parameter {name} is an {parameter.kind}, and integers are given for {given} alone")
        return Argument(name, "i64" if parameter.kind == "i64" else "i32", integers[name])

    return tuple(map(argument, parameters))
