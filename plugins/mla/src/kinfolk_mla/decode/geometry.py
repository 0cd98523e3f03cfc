"""How one workgroup is cut: waves of one head tile each share the key tile; everything else follows from the atoms."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from kinfolk.ir.types import SCALARS, ScalarType
from kinfolk.matrix import Atom
from kinfolk.tile.contraction import Contraction
from kinfolk.tile.layout import Layout, lanes_sharing, per_lane, relabel

if TYPE_CHECKING:
    from kinfolk.arch import Arch
    from kinfolk_mla.spec import MlaDecodeSpec


@attrs.frozen(eq=False)
class Geometry:
    """The atoms of both products and the layouts that follow.

    Scores are computed transposed, S' = K Q' with keys as rows and heads as columns, and so is the output, O' = V' P'.
    Then the scores of a lane are the very elements it must hold of P' for the second product: `weights_order` is the
    proof.
    """

    spec: MlaDecodeSpec
    element: ScalarType
    score: Atom
    value: Atom
    latent: Contraction
    rope: Contraction
    weights_order: tuple[int, ...]
    head_masks: tuple[int, ...]
    wave_size: int

    @classmethod
    def of(cls, spec: MlaDecodeSpec, arch: Arch) -> Geometry:
        """Choose the atoms `arch` has for the spec."""
        heads = spec.heads_per_wave
        keys = spec.page_size
        score = arch.matrix.find(m=keys, n=heads, a=spec.dtype)
        value = arch.matrix.find(m=keys, n=heads, k=keys, a=spec.dtype)
        scores, weights = Layout.of("scores", score.shape.c), Layout.of("weights", value.shape.b)
        element = SCALARS[spec.dtype]
        width = spec.vector_bytes // element.bytes
        return cls(
            spec=spec,
            element=element,
            score=score,
            value=value,
            latent=Contraction.of(score.shape, spec.latent_width, width),
            rope=Contraction.of(score.shape, spec.rope_width, width),
            weights_order=relabel(scores, weights),
            head_masks=lanes_sharing(per_lane(score.shape.c.columns, "the head of a score")),
            wave_size=arch.wave_size,
        )

    @property
    def threads(self) -> int:
        """Threads of a workgroup."""
        return self.spec.waves * self.wave_size

    @property
    def row_width(self) -> int:
        """Elements of a key row: latent, then rope."""
        return self.spec.latent_width + self.spec.rope_width

    @property
    def row_padding(self) -> int:
        """Unused elements after a key row, so that the rows of a column start in different banks."""
        return self.spec.row_padding_bytes // self.element.bytes

    @property
    def idle_waves(self) -> bool:
        """Whether the last workgroup has waves without heads."""
        return self.spec.num_heads % (self.spec.waves * self.spec.heads_per_wave) != 0
