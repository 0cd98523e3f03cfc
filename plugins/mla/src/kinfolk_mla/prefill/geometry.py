"""The atoms of the products of prefill."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from kinfolk.ir.types import SCALARS
from kinfolk.tile.attention.frame import Frame

if TYPE_CHECKING:
    from kinfolk.arch import Arch
    from kinfolk_mla.prefill.spec import MlaProjectedSpec

FRAGMENTS = 4
"""Atoms side by side in a head's columns, whose transposed operands share a window."""


@attrs.frozen(eq=False)
class Geometry(Frame):
    """The atom of all products of a spec, the one that contracts the most at once."""

    spec: MlaProjectedSpec

    @classmethod
    def of(cls, spec: MlaProjectedSpec, arch: Arch) -> Geometry:
        """Choose the atom."""
        element = SCALARS[spec.dtype]
        atom = arch.matrix.find(m=spec.atom, n=spec.atom, a=spec.dtype)
        return cls(
            element,
            atom,
            spec.vector_bytes // element.bytes,
            arch.wave_size,
            spec.waves * arch.wave_size,
            spec.row_padding_bytes // element.bytes,
            spec,
        )

    @property
    def parts(self) -> int:
        """How many parts of pages have the keys of an atom."""
        return self.spec.atom // self.spec.part
