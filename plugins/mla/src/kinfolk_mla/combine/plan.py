"""What a split decode launches last."""

from __future__ import annotations

from typing import Final

from kinfolk_mla.combine.spec import MlaCombineSpec
from kinfolk_mla.decode.limits import DTYPE, LATENT_WIDTH

SEGMENTS_AHEAD: Final = 8
"""As many 16-byte reads a lane as 64 registers have room for."""


def combine_spec(latent_width: int = LATENT_WIDTH, dtype: str = DTYPE) -> MlaCombineSpec:
    """Return the spec for rows of a width and type."""
    return MlaCombineSpec(latent_width=latent_width, dtype=dtype, segments_ahead=SEGMENTS_AHEAD)
