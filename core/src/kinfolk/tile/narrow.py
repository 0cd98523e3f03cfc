"""f32 to 16-bit floats, in pairs."""

from __future__ import annotations

from collections.abc import Sequence

from kinfolk.ir.ops import convert, lanes, vector
from kinfolk.ir.types import BF16, I32, ScalarType, VectorType
from kinfolk.ir.value import Value


def narrow(values: Sequence[Value], element: ScalarType) -> Value:
    """Return f32 scalars as one vector of `element`, rounded to nearest even."""
    return convert.fptrunc(vector.pack(*values), to=element)


def narrow_weights(values: Sequence[Value], element: ScalarType) -> Value:
    """Return softmax weights (finite, not negative, an even number of them) as one vector of `element`.

    For bf16 ties round up, which costs one add a value and one byte permute a pair; otherwise as `narrow`.
    """
    if element != BF16:
        return narrow(values, element)
    rounded = [convert.bitcast(value, to=I32) + 0x8000 for value in values]
    pairs = [
        lanes.byte_permute(rounded[index], rounded[index + 1], selector=(2, 3, 6, 7))
        for index in range(0, len(rounded), 2)
    ]
    return convert.bitcast(pairs[0] if len(pairs) == 1 else vector.pack(*pairs), to=VectorType(element, len(values)))
