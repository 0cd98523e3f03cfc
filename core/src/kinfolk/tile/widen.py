"""Short floats as longer ones, exactly."""

from __future__ import annotations

from kinfolk.ir.ops import convert, float8
from kinfolk.ir.types import ScalarType, VectorType, element_type
from kinfolk.ir.value import Value


def widened(value: Value, element: ScalarType) -> Value:
    """Return a scalar or vector of floats as `element`, which holds all their values; itself where it is of that type.

    8-bit floats become f32, f16 or bf16, those of 16 bits f32.
    """
    assert isinstance(value.type, ScalarType | VectorType)
    own = element_type(value.type)
    if own == element:
        return value
    return float8.widen_float8(value, to=element) if own.bytes == 1 else convert.fpext(value, to=element)
