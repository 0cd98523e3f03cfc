"""Which integers cannot be negative, by how they are computed."""

from __future__ import annotations

from kinfolk.ir.ops import CORE_OPS, arithmetic, control, convert, lanes
from kinfolk.ir.types import ScalarType
from kinfolk.ir.value import Value
from kinfolk.testing.mutation.operators.declare import constant_bits

_INDICES = (lanes.lane_id, lanes.wave_id, lanes.thread_id, lanes.block_id)
_OF_ALL = (arithmetic.udiv, arithmetic.urem, arithmetic.smin, arithmetic.umin, CORE_OPS["core.or"], lanes.uniform)
_OF_ANY = (arithmetic.smax, CORE_OPS["core.and"])
_OF_FIRST = (arithmetic.lshr, lanes.first_lane, convert.sext, control.opaque)
_MOST_STEPS = 40


def nonnegative(value: Value, steps: int = _MOST_STEPS) -> bool:
    """Whether an integer is at least 0 by how it is computed; where that is not seen, False.

    Sums and products that claim not to wrap are taken at their word, which engines check.
    """
    if steps == 0 or not isinstance(value.type, ScalarType):
        return False
    bits = constant_bits(value)
    if bits is not None:
        return not bits >> (value.type.bits - 1)
    op = value.defining_op
    if op is None:
        return False
    operands = (nonnegative(operand, steps - 1) for operand in op.operands)
    if op.definition in _INDICES or op.definition is convert.zext:
        return True
    if op.definition in (arithmetic.add, arithmetic.mul):
        return op.attributes["nsw"] is True and all(operands)
    if op.definition in _OF_ALL:
        return all(operands)
    if op.definition in _OF_ANY:
        return any(operands)
    return op.definition in _OF_FIRST and next(operands)
