"""What the 8-bit floats of an instruction are: the same instructions have other ones on other archs."""

from __future__ import annotations

from typing import Final

from kinfolk_amdgcn.isa.fault import Stop

_TYPES: Final = {
    ("fnuz", "fp8"): "f8E4M3FNUZ",
    ("fnuz", "bf8"): "f8E5M2FNUZ",
    ("ocp", "fp8"): "f8E4M3FN",
    ("ocp", "bf8"): "f8E5M2",
}


def float8_type(encoding: str, element: str) -> str:
    """Return the scalar type that `fp8` or `bf8` is in an arch's encoding (its fact `fp8_format`)."""
    if (encoding, element) not in _TYPES:
        raise Stop("unsupported", f"has 8-bit floats, of which the arch says the encoding {encoding!r}")
    return _TYPES[encoding, element]
