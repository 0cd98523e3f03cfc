"""All that is compiled into one pipelined decode kernel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final

import attrs

from kinfolk.fields import ExactInt, OneOf
from kinfolk.tile.rotation import Rotation
from kinfolk_mla.spec import MlaSpec


@attrs.frozen(kw_only=True)
class Staging:
    """How tiles come to workgroup memory, and what goes with it: heads of an atom, keys of a tile.

    `score_units` and `value_units` are how many units the two products of a tile have, one a read.
    """

    atom_heads: int
    tile_keys: int
    score_units: int
    value_units: int


STAGINGS: Final = {
    "registers": Staging(atom_heads=16, tile_keys=16, score_units=18, value_units=8),
    "direct": Staging(atom_heads=32, tile_keys=32, score_units=36, value_units=32),
}

KEYS, VALUES = 1, 0
"""Which tile of a pipelined round the scores are formed of, and which the values are of."""
PIPELINED: Final = {
    "registers": Rotation(slots=3, reads=(KEYS, VALUES, KEYS + 1), writes=(2,)),
    "direct": Rotation(slots=4, reads=(KEYS, VALUES, KEYS + 1), writes=(3,), direct=True),
}
GROUPED: Final = {
    "registers": Rotation(slots=3, reads=(0, -1, 1), writes=(1,)),
    "direct": Rotation(slots=2, reads=(0, 1), writes=(1,), direct=True),
}
"""What happens to the tiles of a ring. Through registers, a half round has a tile: its keys are read in the first half,
its values in the second, whose own tile is the next; directly, each group has a ring of its own, and a round a tile.
"""


@attrs.frozen(kw_only=True)
class MlaWideSpec(MlaSpec):
    """What the kernels with 32 rows a wave and a workgroup to a compute unit share."""

    rows_per_wave: ClassVar[int] = 32
    workgroups_per_cu: ClassVar[int] = 1
    keys_ahead: ClassVar[int] = 4 * max(staging.tile_keys for staging in STAGINGS.values()) + 16
    rotations: ClassVar[Mapping[str, Rotation]]

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
    def tile_keys(self) -> int:
        """How many keys a tile has."""
        return STAGINGS[self.staging].tile_keys

    @property
    def most_shift(self) -> int:
        """The power of two that the largest page has tiles; where a tile has several pages, these are whole."""
        return super().most_shift if self.tile_pages == 1 else 0

    @property
    def rotation(self) -> Rotation:
        """What happens to the tiles of a ring."""
        return self.rotations[self.staging]


@attrs.frozen(kw_only=True)
class MlaPipelinedSpec(MlaWideSpec):
    """A decode kernel whose scores run one tile ahead of its values, for 128 rows a workgroup.

    Tiles lie in a ring in workgroup memory: one whose values are used, one whose scores are formed, the others being
    staged. The schedule: how many units before their use keys and values are read, after how many units of the first
    product the order is fenced, and how many units of the second product are left when the waves meet.
    """

    rotations: ClassVar[Mapping[str, Rotation]] = PIPELINED

    def symbol(self) -> str:
        """Return a short readable name; it is no key."""
        return f"mla_pipelined_{self.kv_dtype.lower()}_{self.digest()[:8]}"


@attrs.frozen(kw_only=True)
class MlaGroupedSpec(MlaWideSpec):
    """A decode kernel for 64 rows a workgroup: two groups of two waves take turns at the tiles and merge at the end.

    Where tiles come directly, each group has slots of its own: one whose tile is used, one that is being staged. Where
    they come through registers, both groups share a ring that all waves stage, half a round apart. The schedule is that
    of `MlaPipelinedSpec`.
    """

    key_groups: ClassVar[int] = 2
    rotations: ClassVar[Mapping[str, Rotation]] = GROUPED

    def symbol(self) -> str:
        """Return a short readable name; it is no key."""
        return f"mla_grouped_{self.kv_dtype.lower()}_{self.digest()[:8]}"
