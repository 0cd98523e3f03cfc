"""Combining what the lanes of a wave hold of one row or column."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce

from kinfolk.ir.ops import lanes
from kinfolk.ir.value import Value

Combine = Callable[[Value, Value], Value]


def in_lane(values: Sequence[Value], combine: Combine) -> Value:
    """Combine the values one lane holds, in order."""
    return reduce(combine, values)


def across_lanes(value: Value, masks: Sequence[int], combine: Combine) -> Value:
    """Combine between lanes whose index differs in the bits of `masks` (`lanes_sharing`); every lane gets the whole."""
    for mask in masks:
        value = combine(value, lanes.shuffle_xor(value, mask=mask))
    return value
