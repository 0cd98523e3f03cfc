"""Loops, branches, barriers and the markers that tell a compiler about order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kinfolk.errors import IRError
from kinfolk.ir import rules
from kinfolk.ir.builder import current_builder
from kinfolk.ir.meaning import Control, ScheduleMarker
from kinfolk.ir.op import AttributeDef, LlvmWriter, OpDef, effects
from kinfolk.ir.ops.declare import BY_TARGET, CORE_OPS
from kinfolk.ir.types import I1, I32, Type
from kinfolk.ir.value import Operation, Region, Value


def _nothing(types: tuple[Type, ...], _: Mapping[str, Any]) -> tuple[Type, ...]:
    return ()


def _no_operands(types: tuple[Type, ...], _: Mapping[str, Any]) -> tuple[Type, ...]:
    rules.expect(not types, "takes no operands")
    return ()


def _by_region(w: LlvmWriter, op: Operation) -> None:
    """Terminators are written by the op whose region they end."""


RETURN = CORE_OPS.register(
    OpDef(
        name="core.return",
        result=_no_operands,
        effects=effects("convergent"),
        issue="none",
        meaning=Control("return"),
        lowering=lambda w, op: w.emit("ret void"),
    )
)
YIELD = CORE_OPS.register(
    OpDef(
        name="core.yield",
        operands=("values*",),
        result=_nothing,
        effects=effects("convergent"),
        issue="none",
        meaning=Control("yield"),
        lowering=_by_region,
    )
)


def _for_rule(types: tuple[Type, ...], _: Mapping[str, Any]) -> tuple[Type, ...]:
    rules.expect(types[:3] == (I32, I32, I32), f"bounds and step are i32, got {', '.join(map(str, types[:3]))}")
    return types[3:]


def _lower_for(w: LlvmWriter, op: Operation) -> None:
    from kinfolk.lowering.function import lower_for

    lower_for(w, op)


FOR = CORE_OPS.register(
    OpDef(
        name="core.for",
        operands=("lower", "upper", "step", "carried*"),
        result=_for_rule,
        effects=effects("convergent"),
        issue="none",
        meaning=Control("for"),
        lowering=_lower_for,
        regions=1,
    )
)


def for_range(
    lower: Value | int,
    upper: Value | int,
    step: int,
    carried: Sequence[Value],
    body: Callable[[Value, tuple[Value, ...]], Sequence[Value]],
) -> tuple[Value, ...]:
    """Run `body(index, carried)` for index = lower, lower + step, ... while index < upper (signed i32).

    Returns the carried values after the last pass. Bounds are equal on all active lanes, and the last index plus the
    step is below 2^31. `body` returns the next carried values, of the same types.
    """
    if type(step) is not int or step < 1:
        raise IRError(f"the step of a loop is a positive Python int, got {step!r}")
    builder = current_builder()
    bounds = [value if isinstance(value, Value) else builder.constant(value, I32) for value in (lower, upper, step)]
    region = Region((I32, *(value.type for value in carried)))
    with builder.inside(region):
        following = tuple(body(region.arguments[0], region.arguments[1:]))
        _check_carried("for_range", [value.type for value in carried], following)
        builder.add(YIELD, following, {})
    return builder.add(FOR, (*bounds, *carried), {}, (region,)).results


def _if_rule(types: tuple[Type, ...], attributes: Mapping[str, Any]) -> tuple[Type, ...]:
    rules.expect(types == (I1,), f"branches on an i1, got {types[0]}")
    return ()


def _lower_if(w: LlvmWriter, op: Operation) -> None:
    from kinfolk.lowering.function import lower_if

    lower_if(w, op)


IF = CORE_OPS.register(
    OpDef(
        name="core.if",
        operands=("condition",),
        attributes=(AttributeDef("cold", "bool", default=False),),
        result=_if_rule,
        effects=effects("convergent"),
        issue="none",
        meaning=Control("if"),
        lowering=_lower_if,
        regions=2,
    )
)


def if_else(
    condition: Value,
    then: Callable[[], Sequence[Value]],
    otherwise: Callable[[], Sequence[Value]] = tuple,
    *,
    cold: bool = False,
) -> tuple[Value, ...]:
    """Run one of two branches, lane by lane, and return what it yields, of the same types. `cold`: rarely taken."""
    builder = current_builder()
    regions: list[Region] = []
    for branch in (then, otherwise):
        region = Region()
        with builder.inside(region):
            builder.add(YIELD, tuple(branch()), {})
        regions.append(region)
    return builder.add(IF, (condition,), {"cold": cold}, (regions[0], regions[1])).results


def _list(types: Sequence[Type]) -> str:
    return ", ".join(map(str, types)) or "nothing"


def _check_carried(name: str, expected: Sequence[Type], got: Sequence[Value]) -> None:
    types = [value.type for value in got]
    if types != list(expected):
        raise IRError(f"{name}: the body returns {_list(types)}, it carries {_list(expected)}")


BARRIER = CORE_OPS.register(
    OpDef(
        name="core.barrier",
        result=_no_operands,
        effects=effects("barrier", "convergent"),
        issue="scalar",
        meaning=Control("barrier"),
        lowering=BY_TARGET,
    )
)


def barrier() -> None:
    """Wait for all waves of the workgroup; their accesses to workgroup memory before it are done and seen after it."""
    BARRIER.add()


MEET = CORE_OPS.register(
    OpDef(
        name="core.meet",
        attributes=(AttributeDef("place", "str"),),
        result=_no_operands,
        effects=effects("barrier", "convergent"),
        issue="scalar",
        meaning=Control("barrier"),
        lowering=BY_TARGET,
    )
)


def meet(place: str) -> None:
    """As `barrier`, where waves may come to different ops: all that name one `place` are the same barrier.

    So groups of waves can run the same code half a round apart.
    """
    MEET.add(place=place)


SCHEDULE_FENCE = CORE_OPS.register(
    OpDef(
        name="core.schedule_fence",
        result=_no_operands,
        effects=effects("convergent"),
        issue="none",
        meaning=ScheduleMarker(),
        lowering=BY_TARGET,
    )
)


def schedule_fence() -> None:
    """Keep the compiler from moving instructions across this point."""
    SCHEDULE_FENCE.add()


def _opaque_rule(types: tuple[Type, ...], _: Mapping[str, Any]) -> tuple[Type, ...]:
    rules.expect(types == (I32,), f"hides one i32, got {types[0]}")
    return (I32,)


opaque = CORE_OPS.register(
    OpDef(
        name="core.opaque",
        operands=("x",),
        attributes=(AttributeDef("uniform", "bool", default=False),),
        result=_opaque_rule,
        effects=effects("convergent"),
        issue="none",
        meaning=ScheduleMarker(),
        lowering=BY_TARGET,
    )
)
"""The operand, as a value the compiler knows nothing of: what is computed from it is computed where it stands, not
shared with an equal computation elsewhere and kept in a register meanwhile. `uniform`: equal on all lanes, in a
scalar register.
"""
