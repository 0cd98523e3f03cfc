"""The tiles of keys and values in workgroup memory: what is expanded, and the rotated part of keys from the cache."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from collections.abc import Sequence as Many
from typing import TYPE_CHECKING, Generic, Self, TypeVar

import attrs

from kinfolk.ir.builder import constant
from kinfolk.ir.ops import lanes
from kinfolk.ir.types import I32
from kinfolk.ir.value import Value
from kinfolk.tile.attention.ahead import Mask
from kinfolk.tile.attention.rows import STAGED
from kinfolk.tile.attention.scores import TileScores
from kinfolk.tile.attention.values import Values
from kinfolk.tile.slots import Slots
from kinfolk.tile.staging import Staging
from kinfolk.tile.timeline import Job
from kinfolk.tile.workgroup_tile import WorkgroupTile
from kinfolk_mla.prefill.batch import Sequence

if TYPE_CHECKING:
    from kinfolk_mla.prefill.spec import MlaPrefillSpec


Rotated = TypeVar("Rotated")
"""What the rotated rows of keys are found by."""
Place = TypeVar("Place")
"""As of `ScoresAhead`."""


@attrs.frozen(eq=False)
class PagedKeys:
    """The parameters of rotated rows that lie in pages of the cache."""

    k_rope: Value
    block_table: Value
    block_table_stride: Value
    num_pages: Value
    page_shift: Value


@attrs.frozen(eq=False)
class RowKeys:
    """The parameters of rotated rows that lie one after the other, `present` saying which keys there are."""

    rotated: Value
    present: Value


@attrs.frozen(eq=False)
class Tiles(ABC, Generic[Rotated, Place]):
    """`keys` is a ring of rows of expanded columns, then rotated ones; `values` have one of their own.

    All waves stage expanded rows, from `views` of a head's keys and values; the rotated rows of each part that a tile
    has, `own` for this wave, are staged by its share of the waves.
    """

    spec: MlaPrefillSpec
    rotated: Rotated
    keys: WorkgroupTile
    key_slots: Slots
    values: Values
    views: tuple[Value, Value]
    own: Value
    stagings: tuple[Staging, Staging]
    sources: tuple[Value, Value]
    targets: tuple[Value, Value]

    @classmethod
    def of(
        cls, spec: MlaPrefillSpec, sequence: Sequence, values: Values, parts: int, rotated: Callable[[], Rotated]
    ) -> Self:
        """Reserve the ring of keys and find this thread's part of a tile of so many parts."""
        geometry, zero = sequence.geometry, constant(0, I32)
        keys = WorkgroupTile.allocate(
            geometry.element, spec.key_slots * spec.tile_keys, spec.key_width, geometry.padding
        )

        def staging(rows: int, first: int, columns: int, waves: int) -> Staging:
            return Staging.of(
                keys,
                rows=rows,
                first_column=first,
                columns=columns,
                threads=waves * geometry.wave_size,
                wave_size=geometry.wave_size,
                max_width=geometry.vector,
            )

        share, part = spec.waves // parts, spec.tile_keys // parts
        nope = staging(spec.tile_keys, 0, spec.head_width, spec.waves)
        rope = staging(part, spec.head_width, spec.rope_width, share)
        wave, lane = lanes.wave_id(), lanes.lane_id()
        source, rope_source = nope.source(wave, lane), rope.source(wave % share, lane)
        below = wave // share * (part * keys.pitch)
        return cls(
            spec,
            rotated(),
            keys,
            Slots(begin=zero, count=spec.key_slots, elements=spec.tile_keys * keys.pitch),
            values,
            (sequence.rows(0), sequence.rows(1)),
            wave // share,
            (nope, rope),
            (source, rope_source),
            (nope.target(source), rope.target(rope_source) + below),
        )

    @property
    def key_pieces(self) -> int:
        """How many vectors of a tile of keys this thread carries."""
        return sum(staging.pieces for staging in self.stagings)

    def expanded_loads(self, tile: Value, loaded: list[Value]) -> list[Job]:
        """Return the jobs that issue this thread's loads of a tile's expanded keys."""
        nope = self.stagings[0]

        def load(piece: int) -> Job:
            return lambda: loaded.append(nope.load_piece(self.views[0], self.sources[0] + self.first(tile), piece))

        return [*map(load, range(nope.pieces))]

    @abstractmethod
    def lookups(self, tile: Value) -> list[Value]:
        """Issue the loads that say where this thread's rotated rows of a tile lie."""

    @abstractmethod
    def resolve(self, found: Many[Value], tile: Value) -> Place:
        """Return where they lie."""

    @abstractmethod
    def key_loads(self, place: Place, tile: Value, loaded: list[Value]) -> list[Job]:
        """Return the jobs that issue this thread's loads of a tile of keys."""

    @abstractmethod
    def mask(self, scores: TileScores, seen: Value) -> Mask:
        """Return which keys of a tile a lane's query sees, where it sees the first `seen` of a sequence that exist."""

    def key_stores(self, slot: Value, loaded: Many[Value]) -> list[Job]:
        """Return the jobs that write a tile of keys to a slot."""
        order = [(number, piece) for number, staging in enumerate(self.stagings) for piece in range(staging.pieces)]

        def store(index: int) -> Job:
            number, piece = order[index]
            staging, target = self.stagings[number], self.targets[number]
            return lambda: staging.store_piece(target + slot, piece, loaded[index], scope=STAGED)

        return [store(index) for index in range(len(order))]

    def value_place(self, place: Place) -> None:
        """As `Feed` says: where expanded values lie follows from a tile's number."""

    def value_loads(self, place: Place | None, tile: Value, loaded: list[Value]) -> list[Job]:
        """Return the jobs that issue this thread's loads of a tile of values."""
        return self.values.loads(self.views[1], self.first(tile), loaded)

    def first(self, tile: Value) -> Value:
        """Return the first element of a tile among the expanded elements of a head."""
        return tile * (self.spec.tile_keys * self.spec.head_width)
