"""Elements of matrix operands: what the bits of registers are as numbers.

Floats of 4 and 6 bits are those of the OCP specification of microscaling formats. An xf32 is an f32 of which the
fraction is rounded to 10 bits, to nearest even: AMD's texts do not say how.
"""

from __future__ import annotations

from typing import Any, Final

import ml_dtypes
import numpy as np

from kinfolk.check.element import numpy_dtype
from kinfolk_amdgcn.isa.float8 import float8_type
from kinfolk_amdgcn.isa.waves import Array

BITS: Final = {
    **dict.fromkeys(("f32", "xf32"), 32),
    **dict.fromkeys(("f16", "bf16"), 16),
    **dict.fromkeys(("i8", "fp8", "bf8"), 8),
    "f64": 64,
    "fp6": 6,
    "bf6": 6,
    "fp4": 4,
}
CHOSEN: Final = ("fp8", "bf8", "fp6", "bf6", "fp4")
"""What a field of an instruction that says what its operands are stands for."""
_SMALL: Final[dict[str, Any]] = {
    "fp6": ml_dtypes.float6_e2m3fn,
    "bf6": ml_dtypes.float6_e3m2fn,
    "fp4": ml_dtypes.float4_e2m1fn,
}
FRACTION_OF_XF32: Final = 10


def elements(by_lane: Array, element: str, encoding: str) -> Array:
    """Return registers [..., registers] of lanes as numbers [..., elements]: f64, i32 for i8, else f32."""
    if element == "f64":
        return by_lane.view(np.float64)
    if element == "i8":
        return by_lane.view(np.int8).astype(np.int32)
    if element == "bf16":
        return (by_lane.view(np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32)
    if element == "xf32":
        return _rounded(by_lane).view(np.float32)
    if element in _SMALL:
        return _small(by_lane, BITS[element]).view(_SMALL[element]).astype(np.float32)
    dtype = numpy_dtype(float8_type(encoding, element) if element in ("fp8", "bf8") else element)
    return by_lane.view(dtype).astype(np.float32)


def _rounded(bits: Array) -> Array:
    away = 23 - FRACTION_OF_XF32
    half = np.uint32((1 << away - 1) - 1)
    rounded = bits + half + (bits >> np.uint32(away) & np.uint32(1)) & np.uint32(0xFFFFFFFF << away & 0xFFFFFFFF)
    return np.where(bits & np.uint32(0x7F800000) == np.uint32(0x7F800000), bits, rounded)


def _small(by_lane: Array, bits: int) -> Array:
    """Return elements of a few bits, which lie side by side, the first lowest, as bytes."""
    spread = np.unpackbits(by_lane.view(np.uint8), axis=-1, bitorder="little")
    parts = spread[..., : spread.shape[-1] // bits * bits].reshape(*spread.shape[:-1], -1, bits)
    weights = (1 << np.arange(bits)).astype(np.uint8)
    found: Array = (parts * weights).sum(axis=-1, dtype=np.uint8)
    return found
