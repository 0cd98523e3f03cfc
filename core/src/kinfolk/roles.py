"""Roles: what an op of an arch is good for, so that the toolkit asks for it and never for the arch's name.

An arch declares `roles={"transpose_read_16": op}`. A role is a promise about the op's operands, result and meaning,
checked when the arch is made; what the op does beyond that the toolkit reads from its meaning.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import attrs

from kinfolk.errors import IRError, PluginError
from kinfolk.ir.meaning import LaneFunction, MemoryAccess
from kinfolk.ir.op import OpDef
from kinfolk.ir.types import BF16, F32, I8, I16, I32, BufferType, ScalarType, Type, VectorType


@attrs.frozen
class Role:
    """What an op in this role does, in words; `fault` says what of it an op does not keep, or nothing."""

    promise: str
    fault: Callable[[OpDef], str]


def _result(op: OpDef, *operands: Type) -> tuple[Type, ...]:
    defaults = {each.name: each.default for each in op.attributes}
    try:
        return op.result(operands, defaults)
    except IRError as error:
        raise PluginError(f"{op.name} does not take {', '.join(map(str, operands))}: {error}") from None


def _transpose_read(element: ScalarType) -> Role:
    def fault(op: OpDef) -> str:
        meaning, names = op.meaning, [each.name for each in op.attributes]
        if not isinstance(meaning, MemoryAccess) or (meaning.space, meaning.action) != ("workgroup", "load"):
            return "is no load from workgroup memory"
        if meaning.exchange is None:
            return "hands no element to another lane"
        if missing := [name for name in ("offset", "alignment", "scope") if name not in names]:
            return f"has no attribute {' or '.join(missing)}"
        (result,) = _result(op, BufferType(element, 4096), I32)
        return "" if isinstance(result, VectorType) and result.element == element else f"gives {result}"

    return Role(
        f"each lane loads a vector of {element.bits}-bit elements at its own index in workgroup memory, and elements "
        "change lanes as the meaning's exchange says",
        fault,
    )


def _narrow_fault(op: OpDef) -> str:
    if not isinstance(op.meaning, LaneFunction):
        return "is no lane function"
    results = _result(op, F32, F32)
    return "" if results == (VectorType(BF16, 2),) else f"gives {', '.join(map(str, results))} for two f32"


ROLES: Final[Mapping[str, Role]] = {
    "transpose_read_16": _transpose_read(I16),
    "transpose_read_8": _transpose_read(I8),
    "narrow_bf16": Role("two f32 become one vector of two bf16, rounded to nearest even", _narrow_fault),
}
"""The roles the toolkit knows."""


def check_roles(arch: str, roles: Mapping[str, OpDef], ops: tuple[OpDef, ...]) -> None:
    """Raise PluginError for a role nobody knows, an op the arch does not have, and one that does not keep its role."""
    for name, op in roles.items():
        if name not in ROLES:
            raise PluginError(f"{arch} declares an op for the role {name!r}, roles are: {', '.join(ROLES)}")
        if op not in ops:
            raise PluginError(f"{arch} declares {op.name} for the role {name}, but does not list it among its ops")
        if fault := ROLES[name].fault(op):
            raise PluginError(f"{op.name} cannot have the role {name} ({ROLES[name].promise}): it {fault}")
