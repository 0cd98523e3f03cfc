"""f32 to 16-bit floats, in pairs."""

from __future__ import annotations

from collections.abc import Sequence

from kinfolk.ir.builder import op_in_role
from kinfolk.ir.ops import arithmetic, convert, lanes, vector
from kinfolk.ir.types import BF16, I32, ScalarType, VectorType
from kinfolk.ir.value import Value


def narrow(values: Sequence[Value], element: ScalarType) -> Value:
    """Return f32 scalars as one vector of `element`, rounded to nearest even."""
    pair = op_in_role("narrow_bf16")
    if pair is None or element != BF16 or len(values) % 2:
        return convert.fptrunc(vector.pack(*values), to=element)
    pairs = [pair(values[index], values[index + 1]) for index in range(0, len(values), 2)]
    if len(pairs) == 1:
        return pairs[0]
    return _as_vector([convert.bitcast(each, to=I32) for each in pairs], element)


def narrow_weights(values: Sequence[Value], element: ScalarType) -> Value:
    """Return softmax weights (finite, not negative, an even number of them) as one vector of `element`.

    For bf16, on an arch that has no op in the role `narrow_bf16`, ties round up, which costs one add a value and one
    byte permute a pair; otherwise as `narrow`.
    """
    if element != BF16 or op_in_role("narrow_bf16") is not None:
        return narrow(values, element)
    rounded = [arithmetic.add(convert.bitcast(value, to=I32), 0x8000) for value in values]  # bits, not a number
    return _as_vector(
        [
            lanes.byte_permute(rounded[index], rounded[index + 1], selector=(2, 3, 6, 7))
            for index in range(0, len(rounded), 2)
        ],
        element,
    )


def _as_vector(words: Sequence[Value], element: ScalarType) -> Value:
    packed = words[0] if len(words) == 1 else vector.pack(*words)
    return convert.bitcast(packed, to=VectorType(element, 2 * len(words)))
