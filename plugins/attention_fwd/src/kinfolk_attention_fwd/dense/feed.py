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
    """

    spec: AttentionDenseSpec
    arguments: DenseArguments
    sequence: RowSequence
    queries: Queries

    @classmethod
    def of(cls, spec: AttentionDenseSpec, arguments: DenseArguments, queries: Queries, values: Values) -> RowFeed:
        """Reserve the ring of keys and find this thread's part of a tile."""

        def rows() -> Strided:
            return Strided(arguments.num_kv_heads * spec.head_size, queries.kv_head * spec.head_size)

        sequence = queries.sequence
        assert isinstance(sequence, RowSequence)
        return cls(KeyRing.of(spec, queries.frame, rows), values, spec, arguments, sequence, queries)

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
        return self.ring.columns.loads(lambda: self._rows(self.arguments.k, tile, self.spec.head_size), None, loaded)

    def value_place(self, place: None) -> None:
        """As `Feed` says: nothing needs to be kept."""

    def value_loads(self, place: None, tile: Value, loaded: list[Value]) -> list[Job]:
        """As `Feed` says."""
        return self.values.loads(lambda: self._rows(self.arguments.v, tile, self.spec.head_size_v), None, loaded)

    def _rows(self, tensor: Value, tile: Value, width: int) -> Value:
        """Return a view of the rows of a tile that the sequence has, of all heads: those past its last read as 0."""
        row, length = self.arguments.num_kv_heads * width, self.queries.length
        first = arithmetic.smin(tile * self.spec.tile_keys, length)
        left = lanes.uniform(bounded(length - first, self.spec.tile_keys))
        return memory.bound(memory.offset(tensor, self._token(first) * wide(row)), left * row)

    def _token(self, key: Value) -> Value:
        """Return the number (i64) of a key, counted as `queries` does, among those of all sequences."""
        first, origin = self.sequence.first_key(), self.queries.origin
        return (first if origin is None else first + wide(origin)) + wide(key)
