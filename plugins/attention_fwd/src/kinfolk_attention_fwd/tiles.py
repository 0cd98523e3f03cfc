"""Tiles of keys and values in workgroup memory, staged from rows in which all heads of keys lie side by side."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Many
from typing import TYPE_CHECKING, Protocol, TypeVar

import attrs

from kinfolk.ir.builder import constant
from kinfolk.ir.types import I32
from kinfolk.ir.value import Value
from kinfolk.tile.attention.ahead import Feed, Mask
from kinfolk.tile.attention.frame import Frame
from kinfolk.tile.attention.rows import RowColumns, Strided, kept_columns
from kinfolk.tile.attention.values import Values
from kinfolk.tile.slots import Slots
from kinfolk.tile.timeline import Job
from kinfolk.tile.workgroup_tile import WorkgroupTile
from kinfolk_attention_fwd.scores import SeenKeys

if TYPE_CHECKING:
    from kinfolk_attention_fwd.spec import AttentionSpec

Place = TypeVar("Place")
"""As of `ScoresAhead`."""


class TileFeed(Feed[Place], Protocol[Place]):
    """Tiles on their way to workgroup memory, of which keys may be missing."""

    def mask(self, seen: SeenKeys) -> Mask:
        """Return which keys a lane's query sees, of those that it would see were all there."""
        ...

    def whole(self, tiles: Value) -> Value:
        """Return how many tiles every query sees as a whole, of so many that it would were all keys there."""
        ...


@attrs.frozen(eq=False)
class KeyRing:
    """Tiles of keys in workgroup memory, and this thread's part of one."""

    tile: WorkgroupTile
    slots: Slots
    columns: RowColumns

    @classmethod
    def of(cls, spec: AttentionSpec, frame: Frame, rows: Callable[[], Strided | None]) -> KeyRing:
        """Reserve it, for `rows` of keys in global memory."""
        count = spec.key_slots * spec.tile_keys
        tile = WorkgroupTile.allocate(frame.element, count, kept_columns(spec.head_size), frame.padding)
        columns = RowColumns.of(frame, tile, spec.tile_keys, spec.head_size, rows())
        slots = Slots(begin=constant(0, I32), count=spec.key_slots, elements=spec.tile_keys * tile.pitch)
        return cls(tile, slots, columns)


@attrs.frozen(eq=False)
class StagedTiles:
    """What `Feed` asks of tiles whose keys are rows of global memory; `values` have a ring of their own."""

    ring: KeyRing
    values: Values

    @property
    def keys(self) -> WorkgroupTile:
        """As `Feed` says."""
        return self.ring.tile

    @property
    def key_slots(self) -> Slots:
        """As `Feed` says."""
        return self.ring.slots

    @property
    def key_pieces(self) -> int:
        """As `Feed` says."""
        return self.ring.columns.pieces

    def key_stores(self, slot: Value, loaded: Many[Value]) -> list[Job]:
        """As `Feed` says."""
        return self.ring.columns.stores(slot, loaded)
