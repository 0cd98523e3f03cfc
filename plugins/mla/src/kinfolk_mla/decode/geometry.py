"""How one workgroup is cut: waves of one head tile each share the key tile; everything else follows from the atoms."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from kinfolk.ir.types import SCALARS, ScalarType
from kinfolk.matrix import Atom, atom_fact
from kinfolk.tile.contraction import Contraction
from kinfolk.tile.layout import Layout, Step, lanes_sharing, per_lane, steps_of

if TYPE_CHECKING:
    from kinfolk.arch import Arch
    from kinfolk_mla.spec import MlaSpec


@attrs.frozen(eq=False)
class Geometry:
    """The atoms of both products and the layouts that follow.

    Scores are computed transposed, S' = K Q' with keys as rows and rows of the query as columns, and so is the output,
    O' = V' P'. Then the scores of a lane are the very elements it must hold of P' for the second product: `steps` is
    the proof.
    """

    spec: MlaSpec
    element: ScalarType
    score: Atom
    value: Atom
    latent: Contraction
    rope: Contraction
    steps: tuple[Step, ...]
    head_masks: tuple[int, ...]
    wave_size: int

    @classmethod
    def of(cls, spec: MlaSpec, arch: Arch) -> Geometry:
        """Choose the atoms `arch` has for the spec."""
        heads = spec.atom_heads
        score = arch.matrix.find(m=spec.tile_keys, n=heads, a=spec.dtype)
        value = _deepest(arch, spec)
        element = SCALARS[spec.dtype]
        width = spec.vector_bytes // element.bytes
        return cls(
            spec=spec,
            element=element,
            score=score,
            value=value,
            latent=Contraction.of(score.shape, spec.latent_width, width),
            rope=Contraction.of(score.shape, spec.rope_width, width),
            steps=steps_of(Layout.of("scores", score.shape.c), value.shape.b),
            head_masks=lanes_sharing(per_lane(score.shape.c.columns, "the row of a score")),
            wave_size=arch.wave_size,
        )

    @property
    def threads(self) -> int:
        """Threads of a workgroup."""
        return self.spec.waves * self.wave_size

    @property
    def head_tiles(self) -> int:
        """How many atoms side by side hold a wave's rows."""
        return self.spec.rows_per_wave // self.spec.atom_heads

    @property
    def row_width(self) -> int:
        """Elements of a key row: latent, then rope."""
        return self.spec.latent_width + self.spec.rope_width

    @property
    def row_padding(self) -> int:
        """Unused elements after a key row, so that the rows of a column start in different banks."""
        return self.spec.row_padding_bytes // self.element.bytes


def _deepest(arch: Arch, spec: MlaSpec) -> Atom:
    """Return the atom of the second product that contracts the most keys of a tile at once."""
    m, n = spec.atom_rows, spec.atom_heads
    for depth in range(spec.tile_keys, 0, -1):
        if spec.tile_keys % depth == 0 and arch.fact(atom_fact(m=m, n=n, k=depth, a=spec.dtype)):
            return arch.matrix.find(m=m, n=n, k=depth, a=spec.dtype)
    return arch.matrix.find(m=m, n=n, a=spec.dtype)
