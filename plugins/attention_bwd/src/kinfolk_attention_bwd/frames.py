"""The atom of a kernel's products, and how its threads carry tiles."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinfolk.ir.types import SCALARS
from kinfolk.tile.attention.frame import Frame

if TYPE_CHECKING:
    from kinfolk.arch import Arch
    from kinfolk_attention_bwd.spec import GradientSpec


def frame_of(spec: GradientSpec, arch: Arch) -> Frame:
    """Return the frame of a spec: the atom that contracts the most at once."""
    element = SCALARS[spec.dtype]
    return Frame(
        element,
        arch.matrix.find(m=spec.atom, n=spec.atom, a=spec.dtype),
        spec.vector_bytes // element.bytes,
        arch.wave_size,
        spec.waves * arch.wave_size,
        spec.row_padding_bytes // element.bytes,
    )
