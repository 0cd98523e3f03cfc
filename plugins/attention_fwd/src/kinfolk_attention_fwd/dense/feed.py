"""Tiles of keys and values on their way to workgroup memory: a view of the rows of each, which ends with the last."""

from __future__ import annotations

from collections.abc import Sequence as Many
from typing import TYPE_CHECKING

import attrs

from kinfolk.ir.ops import arithmetic, lanes, memory
from kinfolk.ir.value import Value
from kinfolk.tile.attention.ahead import Mask
from kinfolk.tile.attention.rows import Strided
from kinfolk.tile.attention.values import Values
from kinfolk.tile.paging import bounded
from kinfolk.tile.timeline import Job
from kinfolk_attention_fwd.dense.sequence import RowSequence
from kinfolk_attention_fwd.queries import Queries
from kinfolk_attention_fwd.scores import SeenKeys
from kinfolk_attention_fwd.sequence import wide
from kinfolk_attention_fwd.tiles import KeyRing, StagedTiles

if TYPE_CHECKING:
    from kinfolk_attention_fwd.dense.kernel import DenseArguments
    from kinfolk_attention_fwd.dense.spec import AttentionDenseSpec


@attrs.frozen(eq=False)
class RowFeed(StagedTiles):
    """A tile's rows are those of one head of keys, in a view of those of all heads that begins anywhere in 64 bits.

    As `kinfolk_attention_fwd.tiles.TileFeed`: where a tile lies follows from its number, and all keys are there.
    `first_key` and `first_value` point to the sequence's first rows, counted as `queries` counts keys.
    """

    spec: AttentionDenseSpec
    arguments: DenseArguments
    queries: Queries
    first_key: Value
    first_value: Value

    @classmethod
    def of(cls, spec: AttentionDenseSpec, arguments: DenseArguments, queries: Queries, values: Values) -> RowFeed:
        """Reserve the ring of keys and find this thread's part of a tile."""

        def rows() -> Strided:
            return Strided(arguments.num_kv_heads * spec.head_size, queries.kv_head * spec.head_size)

        sequence, origin = queries.sequence, queries.origin
        assert isinstance(sequence, RowSequence)
        key = sequence.first_key() if origin is None else sequence.first_key() + wide(origin)
        first_key, first_value = (
            memory.offset(tensor, key * wide(arguments.num_kv_heads * width))
            for tensor, width in ((arguments.k, spec.head_size), (arguments.v, spec.head_size_v))
        )
        ring = KeyRing.of(spec, queries.frame, rows)
        return cls(ring, values, spec, arguments, queries, first_key, first_value)

    def mask(self, seen: SeenKeys) -> Mask:
        """As `TileFeed` says."""
        return seen

    def whole(self, tiles: Value) -> Value:
        """As `TileFeed` says."""
        return tiles

    def lookups(self, tile: Value) -> list[Value]:
        """As `Feed` says: nothing needs to be asked for."""
        return []

    def resolve(self, found: Many[Value], tile: Value) -> None:
        """As `Feed` says: nothing needs to be known."""

    def key_loads(self, place: None, tile: Value, loaded: list[Value]) -> list[Job]:
        """As `Feed` says."""
        return self.ring.columns.loads(lambda: self._rows(self.first_key, tile, self.spec.head_size), None, loaded)

    def value_place(self, place: None) -> None:
        """As `Feed` says: nothing needs to be kept."""

    def value_loads(self, place: None, tile: Value, loaded: list[Value]) -> list[Job]:
        """As `Feed` says."""
        return self.values.loads(lambda: self._rows(self.first_value, tile, self.spec.head_size_v), None, loaded)

    def _rows(self, begin: Value, tile: Value, width: int) -> Value:
        """Return a view of the rows of a tile that the sequence has, of all heads: those past its last read as 0."""
        row, length = self.arguments.num_kv_heads * width, self.queries.length
        first = arithmetic.smin(tile * self.spec.tile_keys, length)
        left = lanes.uniform(bounded(length - first, self.spec.tile_keys))
        return memory.bound(memory.offset(begin, wide(first) * wide(row)), left * row)
