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
from kinfolk.tile.attention.values import STAGED, Values, made
from kinfolk.tile.paging import bounded
from kinfolk.tile.slots import Slots
from kinfolk.tile.staging import Staging
from kinfolk.tile.timeline import Job
from kinfolk.tile.workgroup_tile import WorkgroupTile
from kinfolk_attention_fwd.dense.queries import Queries, wide

if TYPE_CHECKING:
    from kinfolk_attention_fwd.dense.spec import AttentionDenseSpec


@attrs.frozen(eq=False)
class RowFeed:
    """A tile's rows are those of one head of keys, `pitch` elements apart in a view of those of all heads; where that
    begins is counted in 64 bits.

    As `kinfolk.tile.attention.ahead.Feed`: where a tile lies follows from its number.
    """

    spec: AttentionDenseSpec
    queries: Queries
    keys: WorkgroupTile
    key_slots: Slots
    values: Values
    staging: Staging
    pitch: Value
    source: Value
    target: Value

    @classmethod
    def of(cls, spec: AttentionDenseSpec, queries: Queries, frame: Frame, values: Values) -> RowFeed:
        """Reserve the ring of keys and find this thread's part of a tile."""
        keys = WorkgroupTile.allocate(frame.element, spec.key_slots * spec.tile_keys, spec.head_size, frame.padding)
        staging = Staging.of(
            keys,
            rows=spec.tile_keys,
            first_column=0,
            columns=spec.head_size,
            threads=frame.threads,
            wave_size=frame.wave_size,
            max_width=frame.vector,
        )
        pitch = queries.arguments.num_kv_heads * spec.head_size
        flat = staging.source(lanes.wave_id(), lanes.lane_id())
        slots = Slots(begin=constant(0, I32), count=spec.key_slots, elements=spec.tile_keys * keys.pitch)
        source = staging.source_in(flat, pitch) + queries.kv_head * spec.head_size
        return cls(spec, queries, keys, slots, values, staging, pitch, source, staging.target(flat))

    @property
    def key_pieces(self) -> int:
        """How many vectors of a tile of keys this thread carries."""
        return self.staging.pieces

    def lookups(self, tile: Value) -> list[Value]:
        """As `Feed` says: nothing needs to be asked for."""
        return []

    def resolve(self, found: Many[Value], tile: Value) -> None:
        """As `Feed` says: nothing needs to be known."""

    def key_loads(self, place: None, tile: Value, loaded: list[Value]) -> list[Job]:
        """As `Feed` says."""
        rows = made(lambda: self._rows(self.queries.arguments.k, tile, self.spec.head_size))

        def load(piece: int) -> Job:
            return lambda: loaded.append(self.staging.load_piece(rows(), self.source, piece, self.pitch))

        return [load(piece) for piece in range(self.staging.pieces)]

    def key_stores(self, slot: Value, loaded: Many[Value]) -> list[Job]:
        """As `Feed` says."""

        def store(piece: int) -> Job:
            return lambda: self.staging.store_piece(self.target + slot, piece, loaded[piece], scope=STAGED)

        return [store(piece) for piece in range(self.staging.pieces)]

    def value_loads(self, tile: Value, loaded: list[Value]) -> list[Job]:
        """As `Feed` says."""
        return self.values.loads(
            lambda: self._rows(self.queries.arguments.v, tile, self.spec.head_size_v), None, loaded
        )

    def _rows(self, tensor: Value, tile: Value, width: int) -> Value:
        """Return a view of the rows of a tile that the sequence has, of all heads: those past its last read as 0."""
        arguments = self.queries.arguments
        row = arguments.num_kv_heads * width
        first = arithmetic.smin(tile * self.spec.tile_keys, arguments.seqlen_k)
        left = lanes.uniform(bounded(arguments.seqlen_k - first, self.spec.tile_keys))
        token = wide(self.queries.sequence) * wide(arguments.seqlen_k) + wide(first)
        return memory.bound(memory.offset(tensor, token * wide(row)), left * row)
