"""All that is compiled into one pipelined decode kernel."""

from __future__ import annotations

from typing import ClassVar, Final

import attrs

from kinfolk.fields import ExactInt, OneOf
from kinfolk_mla.spec import MlaSpec


@attrs.frozen(kw_only=True)
class Staging:
    """How tiles come to workgroup memory, and what goes with it: heads of an atom, pages of a tile, slots of the ring.

    Through registers, a tile is on its way for a round and takes a slot when it is written. Directly, it takes one from
    the moment it is asked for.
    """

    atom_heads: int
    tile_pages: int
    slots: int


STAGINGS: Final = {
    "registers": Staging(atom_heads=16, tile_pages=1, slots=3),
    "direct": Staging(atom_heads=32, tile_pages=2, slots=4),
}


GROUPED_SLOTS: Final = {"registers": 3, "direct": 4}
"""Slots of all groups where the waves work in groups."""


@attrs.frozen(kw_only=True)
class MlaWideSpec(MlaSpec):
    """What the kernels with 32 heads a wave and a workgroup to a compute unit share."""

    heads_per_wave: ClassVar[int] = 32
    workgroups_per_cu: ClassVar[int] = 1

    staging: str = attrs.field(validator=OneOf(tuple(STAGINGS)))
    key_read_ahead: int = attrs.field(validator=ExactInt(minimum=1, maximum=8))
    value_read_ahead: int = attrs.field(validator=ExactInt(minimum=1, maximum=8))
    fence_every: int = attrs.field(validator=ExactInt(minimum=0, maximum=8))
    units_after_barrier: int = attrs.field(validator=ExactInt(minimum=0, maximum=32))

    @property
    def atom_heads(self) -> int:
        """How many heads a matrix atom of either product has side by side."""
        return STAGINGS[self.staging].atom_heads

    @property
    def tile_pages(self) -> int:
        """How many pages make a tile."""
        return STAGINGS[self.staging].tile_pages


@attrs.frozen(kw_only=True)
class MlaPipelinedSpec(MlaWideSpec):
    """A decode kernel whose scores run one tile ahead of its values, for 128 heads a workgroup.

    Tiles lie in a ring in workgroup memory: one whose values are used, one whose scores are formed, the others being
    staged. The schedule: how many units before their use keys and values are read, after how many units of the first
    product the order is fenced, and how many units of the second product are left when the waves meet.
    """

    @property
    def slots(self) -> int:
        """How many tiles the ring holds."""
        return STAGINGS[self.staging].slots

    def symbol(self) -> str:
        """Return a short readable name; it is no key."""
        return f"mla_pipelined_h{self.num_heads}_{self.dtype}_{self.digest()[:8]}"


@attrs.frozen(kw_only=True)
class MlaGroupedSpec(MlaWideSpec):
    """A decode kernel for 64 heads a workgroup: two groups of two waves take turns at the tiles and merge at the end.

    Where tiles come directly, each group has slots of its own: one whose tile is used, one that is being staged. Where
    they come through registers, both groups share a ring that all waves stage, half a round apart. The schedule is that
    of `MlaPipelinedSpec`.
    """

    key_groups: ClassVar[int] = 2

    @property
    def slots(self) -> int:
        """How many tiles lie in workgroup memory."""
        return GROUPED_SLOTS[self.staging]

    def symbol(self) -> str:
        """Return a short readable name; it is no key."""
        return f"mla_grouped_h{self.num_heads}_{self.dtype}_{self.digest()[:8]}"
