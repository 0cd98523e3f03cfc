"""Tiles of keys and values on their way to workgroup memory: a view of the rows of each, which ends with the last."""

from __future__ import annotations

from collections.abc import Sequence as Many
from typing import TYPE_CHECKING

import attrs

from kinfolk.ir.builder import constant
from kinfolk.ir.ops import arithmetic, lanes, memory
from kinfolk.ir.types import I32
from kinfolk.ir.value import Value
from kinfolk.tile.attention.frame import Frame
from kinfolk.tile.attention.rows import RowColumns, Strided, kept_columns
from kinfolk.tile.attention.values import Values
from kinfolk.tile.paging import bounded
from kinfolk.tile.slots import Slots
from kinfolk.tile.timeline import Job
from kinfolk.tile.workgroup_tile import WorkgroupTile
from kinfolk_attention_fwd.dense.queries import Queries, wide

if TYPE_CHECKING:
    from kinfolk_attention_fwd.dense.spec import AttentionDenseSpec


@attrs.frozen(eq=False)
class RowFeed:
    """A tile's rows are those of one head of keys, in a view of those of all heads that begins anywhere in 64 bits.

    As `kinfolk.tile.attention.ahead.Feed`: where a tile lies follows from its number.
    """

    spec: AttentionDenseSpec
    queries: Queries
    keys: WorkgroupTile
    key_slots: Slots
    columns: RowColumns
    values: Values

    @classmethod
    def of(cls, spec: AttentionDenseSpec, queries: Queries, frame: Frame, values: Values) -> RowFeed:
        """Reserve the ring of keys and find this thread's part of a tile."""
        rows = spec.key_slots * spec.tile_keys
        keys = WorkgroupTile.allocate(frame.element, rows, kept_columns(spec.head_size), frame.padding)
        strided = Strided(queries.arguments.num_kv_heads * spec.head_size, queries.kv_head * spec.head_size)
        columns = RowColumns.of(frame, keys, spec.tile_keys, spec.head_size, strided)
        slots = Slots(begin=constant(0, I32), count=spec.key_slots, elements=spec.tile_keys * keys.pitch)
        return cls(spec, queries, keys, slots, columns, values)

    @property
    def key_pieces(self) -> int:
        """How many vectors of a tile of keys this thread carries."""
        return self.columns.pieces

    def lookups(self, tile: Value) -> list[Value]:
        """As `Feed` says: nothing needs to be asked for."""
        return []

    def resolve(self, found: Many[Value], tile: Value) -> None:
        """As `Feed` says: nothing needs to be known."""

    def key_loads(self, place: None, tile: Value, loaded: list[Value]) -> list[Job]:
        """As `Feed` says."""
        return self.columns.loads(lambda: self._rows(self.queries.arguments.k, tile, self.spec.head_size), None, loaded)

    def key_stores(self, slot: Value, loaded: Many[Value]) -> list[Job]:
        """As `Feed` says."""
        return self.columns.stores(slot, loaded)

    def value_loads(self, tile: Value, loaded: list[Value]) -> list[Job]:
        """As `Feed` says."""
        return self.values.loads(
            lambda: self._rows(self.queries.arguments.v, tile, self.spec.head_size_v), None, loaded
        )

    def _rows(self, tensor: Value, tile: Value, width: int) -> Value:
        """Return a view of the rows of a tile that the sequence has, of all heads: those past its last read as 0."""
        row, length = self.queries.arguments.num_kv_heads * width, self.queries.length
        first = arithmetic.smin(tile * self.spec.tile_keys, length)
        left = lanes.uniform(bounded(length - first, self.spec.tile_keys))
        return memory.bound(memory.offset(tensor, self.queries.token(first) * wide(row)), left * row)
