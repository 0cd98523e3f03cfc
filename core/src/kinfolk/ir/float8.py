"""The 8-bit float formats as data: what widening, narrowing and their lowerings read.

Sources: "OCP 8-bit Floating Point Specification (OFP8)", revision 1.0, for f8E4M3FN and f8E5M2; Noune et al., "8-bit
Numerical Formats for Deep Neural Networks", arXiv:2206.02915, for the FNUZ ones. Oracle: ml_dtypes.
"""

from __future__ import annotations

import struct
from typing import Final

import attrs

from kinfolk.ir.types import F8E4M3FN, F8E4M3FNUZ, F8E5M2, F8E5M2FNUZ, ScalarType


@attrs.frozen
class Float8:
    """A sign, an exponent with a bias, and `mantissa` bits. Codes are storage bits without the sign.

    `largest` is the code of the largest finite value and `infinity` that of infinity, None where the format has none.
    `nan` is the code of the NaN that conversions give. A format with `one_zero` (FNUZ) has no negative zero: the code
    of its sign alone is its only NaN.
    """

    type: ScalarType
    encoding: str
    mantissa: int
    bias: int
    largest: int
    infinity: int | None
    nan: int
    one_zero: bool = False

    @property
    def largest_value(self) -> float:
        """The largest finite value."""
        exponent, fraction = divmod(self.largest, 1 << self.mantissa)
        return (1 + fraction / (1 << self.mantissa)) * 2.0 ** (exponent - self.bias)

    @property
    def overflow_bits(self) -> int:
        """The f32 bits of the smallest value that rounds past the largest: the tie where it goes up, or beyond it."""
        last_place = 2.0 ** (self.largest // (1 << self.mantissa) - self.bias - self.mantissa)
        tie = int.from_bytes(struct.pack("<f", self.largest_value + last_place / 2), "little")
        return tie if self.largest % 2 else tie + 1

    @property
    def past_largest(self) -> int:
        """The code of what is past the largest value: infinity, or NaN where there is none."""
        return self.nan if self.infinity is None else self.infinity


FORMATS: Final[dict[ScalarType, Float8]] = {
    each.type: each
    for each in (
        Float8(F8E4M3FN, "ocp", mantissa=3, bias=7, largest=0x7E, infinity=None, nan=0x7F),
        Float8(F8E5M2, "ocp", mantissa=2, bias=15, largest=0x7B, infinity=0x7C, nan=0x7E),
        Float8(F8E4M3FNUZ, "fnuz", mantissa=3, bias=8, largest=0x7F, infinity=None, nan=0x80, one_zero=True),
        Float8(F8E5M2FNUZ, "fnuz", mantissa=2, bias=16, largest=0x7F, infinity=None, nan=0x80, one_zero=True),
    )
}
ENCODINGS: Final[dict[str, tuple[ScalarType, ...]]] = {
    encoding: tuple(each.type for each in FORMATS.values() if each.encoding == encoding) for encoding in ("ocp", "fnuz")
}
"""The types of each encoding, by the name that archs say theirs with (the fact `fp8_format`)."""
