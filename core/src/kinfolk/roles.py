"""Roles: what an op of an arch is good for, so that the toolkit asks for it and never for the arch's name.

An arch declares `roles={"transpose_read_16": op}`. A role is a promise about the op's operands, result and meaning,
checked when the arch is made; what the op does beyond that the toolkit reads from its meaning. Who has a way without
the op asks `op_in_role` and gets None; who has none asks `op_for_role`, whose error names what the arch lacks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Literal

import attrs
import numpy as np

from kinfolk.errors import IllegalOp, IRError, PluginError
from kinfolk.ir.meaning import LaneFunction, LanePermutation, MemoryAccess, ScheduleMarker
from kinfolk.ir.op import OpDef
from kinfolk.ir.types import BF16, F32, I8, I16, I32, BufferType, PointerType, ScalarType, Type, VectorType, ViewType


@attrs.frozen
class Role:
    """What an op in this role does, in words; `fault` says what of it an op does not keep, or nothing.

    Roles of one `kind` do the same thing in other sizes: what an arch has of it is what it has instead.
    """

    kind: str
    promise: str
    fault: Callable[[OpDef], str]


def _result(op: OpDef, *operands: Type, **given: int | str) -> tuple[Type, ...]:
    attributes = {each.name: each.default for each in op.attributes} | given
    try:
        return op.result(operands, attributes)
    except IRError as error:
        taken = [*map(str, operands), *(f"{name} = {value}" for name, value in given.items())]
        raise PluginError(f"{op.name} does not take {', '.join(taken)}: {error}") from None


def _lacks_attributes(op: OpDef, *needed: str) -> str:
    missing = [name for name in needed if name not in [each.name for each in op.attributes]]
    return f"has no attribute {' or '.join(missing)}" if missing else ""


def _transpose_read(element: ScalarType) -> Role:
    def fault(op: OpDef) -> str:
        meaning = op.meaning
        if not isinstance(meaning, MemoryAccess) or (meaning.space, meaning.action) != ("workgroup", "load"):
            return "is no load from workgroup memory"
        if meaning.exchange is None:
            return "hands no element to another lane"
        if missing := _lacks_attributes(op, "offset", "alignment", "scope"):
            return missing
        (result,) = _result(op, BufferType(element, 4096), I32)
        return "" if isinstance(result, VectorType) and result.element == element else f"gives {result}"

    return Role(
        "transpose_read",
        f"each lane loads a vector of {element.bits}-bit elements at its own index in workgroup memory, and elements "
        "change lanes as the meaning's exchange says",
        fault,
    )


def _narrow_fault(op: OpDef) -> str:
    if not isinstance(op.meaning, LaneFunction):
        return "is no lane function"
    results = _result(op, F32, F32)
    return "" if results == (VectorType(BF16, 2),) else f"gives {', '.join(map(str, results))} for two f32"


def _swap(apart: int) -> Role:
    def fault(op: OpDef) -> str:
        if not isinstance(op.meaning, LanePermutation):
            return "is no lane permutation"
        if (results := _result(op, I32, I32)) != (I32, I32):
            return f"gives {', '.join(map(str, results))} for two i32"
        size = 4 * apart
        lane = np.arange(size)
        upper = lane // apart % 2
        expected = ((upper, lane - upper * apart), (upper, lane + (1 - upper) * apart))
        found = op.meaning.sources(size, np.ones(size, np.bool_))
        kept = len(found) == len(expected) and all(
            np.array_equal(np.broadcast_to(mine, size), theirs)
            for results in zip(found, expected, strict=True)
            for mine, theirs in zip(*results, strict=True)
        )
        return "" if kept else "exchanges other lanes"

    return Role(
        "swap",
        f"two values of 32 bits trade places: of a every second group of {apart} lanes, of b the group before it",
        fault,
    )


def _stage(source: str, width: int) -> Role:
    through_view = source == "view"

    def fault(op: OpDef) -> str:
        if not isinstance(op.meaning, MemoryAccess) or op.meaning != MemoryAccess(_SPACES[source], "stage"):
            return f"stages nothing from a {source} to workgroup memory"
        if missing := _lacks_attributes(op, "count", "offset", "scope"):
            return missing
        where: tuple[Type, ...] = (ViewType(I32), I32) if through_view else (PointerType(I32),)
        results = _result(op, *where, BufferType(I32, 4096), I32, count=width // I32.bytes)
        return f"gives {', '.join(map(str, results))}, not nothing" if results else ""

    return Role(
        "stage_view" if through_view else "stage",
        f"each lane moves {width} bytes from a {source} to workgroup memory without passing registers",
        fault,
    )


_SPACES: Final[Mapping[str, Literal["view", "global"]]] = {"view": "view", "pointer": "global"}


def _lane_fault(op: OpDef) -> str:
    if not isinstance(op.meaning, LaneFunction) or op.operands:
        return "is no lane function of nothing"
    return "" if (results := _result(op)) == (I32,) else f"gives {', '.join(map(str, results))}"


def _wait_fault(op: OpDef) -> str:
    if not isinstance(op.meaning, MemoryAccess) or op.meaning != MemoryAccess("workgroup", "wait"):
        return "waits for no staging"
    return _lacks_attributes(op, "outstanding")


def _pin_fault(op: OpDef) -> str:
    if not isinstance(op.meaning, ScheduleMarker) or len(op.operands) != 1:
        return "does more than to hand on a value"
    if missing := _lacks_attributes(op, "register"):
        return missing
    type_ = VectorType(F32, 4)
    results = _result(op, type_, register="accumulator")
    return "" if results == (type_,) else f"gives {', '.join(map(str, results))} for {type_}"


ROLES: Final[Mapping[str, Role]] = {
    "transpose_read_16": _transpose_read(I16),
    "transpose_read_8": _transpose_read(I8),
    "narrow_bf16": Role("narrow", "two f32 become one vector of two bf16, rounded to nearest even", _narrow_fault),
    "swap_16": _swap(16),
    "swap_32": _swap(32),
    "stage_4": _stage("pointer", 4),
    "stage_16": _stage("pointer", 16),
    "stage_view_4": _stage("view", 4),
    "stage_view_16": _stage("view", 16),
    "lane_again": Role(
        "lane_again", "the lane's number in its wave as an i32, computed here and not kept from earlier", _lane_fault
    ),
    "pin": Role(
        "pin",
        "a value as it is, computed by here, in a register of a kind: register='accumulator', as results of matrix "
        "operations, or 'vector'",
        _pin_fault,
    ),
    "wait_staged": Role("wait_staged", "the wave waits until all but its latest stagings have arrived", _wait_fault),
}
"""The roles that can be asked for. One op may have several: an op that stages 4 or 16 bytes has both roles."""


def known_role(role: str) -> str:
    """Return `role`; raise IRError unless it is one of `ROLES`."""
    if role not in ROLES:
        raise IRError(f"nobody knows the role {role!r}, roles are: {', '.join(ROLES)}")
    return role


def op_for_role(arch: str, role: str, roles: Mapping[str, OpDef]) -> OpDef:
    """Return the op that `roles` has in a role; raise IllegalOp, naming what is missing and what of its kind there is,
    where it has none."""
    if known_role(role) in roles:
        return roles[role]
    kind = ROLES[role].kind
    instead = [f"{other} ({ROLES[other].promise})" for other in roles if ROLES[other].kind == kind]
    raise IllegalOp(
        f"{arch} has no op in the role {role} ({ROLES[role].promise}); "
        f"of its kind it has {', '.join(instead) or 'nothing'}"
    )


ROLE_FACT: Final = "role."


def role_fact(role: str) -> str:
    """Return the name of the fact whether an arch has an op in a role, for conditions of limits.

    Raises IRError for a role nobody knows.
    """
    if role not in ROLES:
        raise IRError(f"no role {role!r}; roles are: {', '.join(ROLES)}")
    return ROLE_FACT + role


def check_roles(arch: str, roles: Mapping[str, OpDef], ops: tuple[OpDef, ...]) -> None:
    """Raise PluginError for a role nobody knows, an op the arch does not have, and one that does not keep its role."""
    for name, op in roles.items():
        if name not in ROLES:
            raise PluginError(f"{arch} declares an op for the role {name!r}, roles are: {', '.join(ROLES)}")
        if op not in ops:
            raise PluginError(f"{arch} declares {op.name} for the role {name}, but does not list it among its ops")
        if fault := ROLES[name].fault(op):
            raise PluginError(f"{op.name} cannot have the role {name} ({ROLES[name].promise}): it {fault}")
