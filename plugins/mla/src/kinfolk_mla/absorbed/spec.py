"""All that is compiled into the kernels before and after latent attention."""

from __future__ import annotations

import attrs

from kinfolk.fields import ExactInt
from kinfolk.ir.types import I32, SCALARS, PointerType
from kinfolk.parameters import Parameter
from kinfolk_mla.prefill.spec import MlaWeightsSpec


@attrs.frozen(kw_only=True)
class MlaTokensSpec(MlaWeightsSpec):
    """A kernel whose rows are tokens, of any sequence, one head at a time."""

    def token_parameters(self) -> tuple[Parameter, ...]:
        """Return what both kernels take last."""
        return (
            Parameter(name="total_q", type=I32, minimum=0, maximum=self.most_keys),
            Parameter(name="num_heads", type=I32, minimum=1, maximum=self.most_heads),
        )


@attrs.frozen(kw_only=True)
class MlaAbsorbSpec(MlaTokensSpec):
    """The kernel that absorbs the up-projection of keys into queries, and passes their rotated part on as it is."""

    rope_width: int = attrs.field(validator=ExactInt(minimum=64, step=64))

    @property
    def key_width(self) -> int:
        """Columns of a head's query as it was projected."""
        return self.head_width + self.rope_width

    @property
    def row_width(self) -> int:
        """Columns of an absorbed query, as many as a key row has."""
        return self.latent_width + self.rope_width

    def symbol(self) -> str:
        """Return a short readable name; it is no key."""
        return f"mla_absorb_{self.dtype}_{self.digest()[:8]}"

    def parameters(self) -> tuple[Parameter, ...]:
        """Return what the kernel takes.

        `q` [tokens, heads, head + rope] and `w_ukv` [heads, latent, 2 * head], whose first columns are those of keys.
        `qa` [tokens, heads, latent + rope] gets w times the first part of q, summed in f32 and rounded once, then the
        rotated part.
        """
        data = PointerType(SCALARS[self.dtype])
        return (
            Parameter(name="q", type=data, alignment=16),
            Parameter(name="w_ukv", type=data, alignment=16),
            Parameter(name="qa", type=data, access="write", alignment=16),
            *self.token_parameters(),
        )


@attrs.frozen(kw_only=True)
class MlaProjectSpec(MlaTokensSpec):
    """The kernel that projects the latent output of each head to its values' width."""

    def symbol(self) -> str:
        """Return a short readable name; it is no key."""
        return f"mla_project_{self.dtype}_{self.digest()[:8]}"

    def parameters(self) -> tuple[Parameter, ...]:
        """Return what the kernel takes.

        `latent` [tokens, heads, latent], and `w_ukv` [heads, latent, 2 * head], whose last columns are those of values.
        `out` [tokens, heads, head] gets their product, summed in f32 and rounded once.
        """
        data = PointerType(SCALARS[self.dtype])
        return (
            Parameter(name="latent", type=data, alignment=16),
            Parameter(name="w_ukv", type=data, alignment=16),
            Parameter(name="out", type=data, access="write", alignment=16),
            *self.token_parameters(),
        )
