"""Which lane, wave and workgroup this is, and values that cross lanes."""

from __future__ import annotations

from typing import Any

import numpy as np

from kinfolk.ir import rules
from kinfolk.ir.meaning import Control, LanePermutation
from kinfolk.ir.op import AttributeDef, OpDef, effects
from kinfolk.ir.ops.declare import BY_TARGET, CORE_OPS, lane_op
from kinfolk.ir.types import I1, I32, ScalarType, Type, component_count, element_type


@lane_op("core.lane_id", "", rules.fixed(I32), BY_TARGET, uniform=False)
def lane_id(m: Any) -> Any:
    """The index of the lane in its wave."""
    return m.lane_id()


@lane_op("core.wave_id", "", rules.fixed(I32), BY_TARGET, uniform=True)
def wave_id(m: Any) -> Any:
    """The index of the wave in its workgroup, equal on all lanes and known to be so."""
    return m.wave_id()


@lane_op("core.thread_id", "", rules.fixed(I32), BY_TARGET, uniform=False)
def thread_id(m: Any) -> Any:
    """The index of the thread in its workgroup."""
    return m.thread_id()


def _axis_rule(types: tuple[Type, ...], attributes: Any) -> tuple[Type, ...]:
    rules.expect(attributes["axis"] in (0, 1, 2), f"axis is 0, 1 or 2, got {attributes['axis']}")
    below = attributes.get("below", 0)
    rules.expect(0 <= below < 2**31, f"below is a number of workgroups, at least 1 and less than 2^31, got {below}")
    return (I32,)


BELOW = AttributeDef("below", "int", default=0)
"""What the index is below, a claim that is checked; 0 stands for as many workgroups as the arch can have."""


@lane_op("core.block_id", "", _axis_rule, BY_TARGET, attributes=(AttributeDef("axis", "int"), BELOW), uniform=True)
def block_id(m: Any, *, axis: int, below: int = 0) -> Any:
    """The index of the workgroup along axis 0, 1 or 2 of the grid."""
    index = m.block_id(axis)
    if below:
        m.require(m.unsigned_less(index, below), f"the grid has more than the {below} workgroups claimed of this axis")
    return index


def _data_rule(types: tuple[Type, ...], _: Any) -> tuple[Type, ...]:
    type_ = rules.data(types[0], "the operand")
    rules.expect(
        component_count(type_) * element_type(type_).bits in (16, 32, 64), f"moves 16, 32 or 64 bits, got {type_}"
    )
    return (type_,)


def _xor_sources(wave_size: int, active: Any, *, mask: int) -> Any:
    return ((0, np.arange(wave_size) ^ mask),)


def _xor_rule(types: tuple[Type, ...], attributes: Any) -> tuple[Type, ...]:
    mask = attributes["mask"]
    rules.expect(mask > 0 and mask & (mask - 1) == 0, f"exchanges lanes a power of two apart, got mask {mask}")
    rules.expect(
        element_type(types[0]).bits == 32 and isinstance(types[0], ScalarType),
        f"moves one 32-bit scalar, got {types[0]}",
    )
    return (types[0],)


shuffle_xor = CORE_OPS.register(
    OpDef(
        name="core.shuffle_xor",
        operands=("x",),
        attributes=(AttributeDef("mask", "int"),),
        result=_xor_rule,
        effects=effects("convergent"),
        issue="workgroup_memory",
        meaning=LanePermutation(_xor_sources),
        lowering=BY_TARGET,
        uniform=False,
    )
)
"""The operand of the lane whose index differs by `mask` (exclusive or)."""


def _first_sources(wave_size: int, active: Any) -> Any:
    return ((0, np.full(wave_size, int(np.argmax(active)))),)


first_lane = CORE_OPS.register(
    OpDef(
        name="core.first_lane",
        operands=("x",),
        result=_data_rule,
        effects=effects("convergent"),
        issue="vector",
        meaning=LanePermutation(_first_sources),
        lowering=BY_TARGET,
        uniform=True,
    )
)
"""The operand of the lowest active lane."""

uniform = CORE_OPS.register(
    OpDef(
        name="core.uniform",
        operands=("x",),
        result=_data_rule,
        effects=effects("convergent"),
        issue="scalar",
        meaning=Control("uniform"),
        lowering=BY_TARGET,
        uniform=True,
    )
)
"""The operand, claimed to be equal on all active lanes: it may live in a scalar register. The claim is checked."""


def _any_rule(types: tuple[Type, ...], _: Any) -> tuple[Type, ...]:
    rules.expect(types[0] == I1, f"asks an i1, got {types[0]}")
    return (I1,)


any_lane = CORE_OPS.register(
    OpDef(
        name="core.any_lane",
        operands=("condition",),
        result=_any_rule,
        effects=effects("convergent"),
        issue="scalar",
        meaning=Control("any"),
        lowering=BY_TARGET,
        uniform=True,
    )
)
"""Whether the condition holds on any active lane of the wave."""


def _permute_rule(types: tuple[Type, ...], attributes: Any) -> tuple[Type, ...]:
    rules.expect(types == (I32, I32), f"permutes the bytes of two i32, got {types[0]} and {types[1]}")
    selector = attributes["selector"]
    rules.expect(
        len(selector) == 4 and all(0 <= byte < 8 for byte in selector),
        f"selector has four bytes in [0, 8), got {selector}",
    )
    return (I32,)


@lane_op("core.byte_permute", "low high", _permute_rule, BY_TARGET, attributes=(AttributeDef("selector", "ints"),))
def byte_permute(m: Any, low: Any, high: Any, *, selector: tuple[int, ...]) -> Any:
    """Four of the eight bytes of (low, high): byte i of the result is byte `selector[i]`, counted from low's lowest."""
    result = m.const(0, I32)
    for position, byte in enumerate(selector):
        source = low if byte < 4 else high
        result = result | ((m.lshr(source, 8 * (byte % 4)) & 0xFF) << (8 * position))
    return result
