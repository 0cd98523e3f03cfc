"""The tiles of keys and values in workgroup memory: what is expanded, and the rotated part of keys from the cache."""

from __future__ import annotations

from collections.abc import Sequence as Many
from typing import TYPE_CHECKING

import attrs

from kinfolk.ir.builder import constant
from kinfolk.ir.ops import lanes
from kinfolk.ir.types import I32
from kinfolk.ir.value import Value
from kinfolk.tile.attention.rows import STAGED
from kinfolk.tile.attention.values import Values
from kinfolk.tile.paging import Page, PageTable
from kinfolk.tile.slots import Slots
from kinfolk.tile.staging import Staging
from kinfolk.tile.timeline import Job
from kinfolk.tile.workgroup_tile import WorkgroupTile
from kinfolk_mla.prefill.batch import Sequence

if TYPE_CHECKING:
    from kinfolk_mla.prefill.attend import Arguments
    from kinfolk_mla.prefill.spec import MlaPrefillSpec


@attrs.frozen(eq=False)
class Tiles:
    """`keys` is a ring of rows of expanded columns, then rotated ones; `values` have one of their own.

    All waves stage expanded rows, from `views` of a head's keys and values; the rotated rows of each part of a page
    that a tile has, `own` for this wave, are staged by its share of the waves.
    """

    spec: MlaPrefillSpec
    arguments: Arguments
    pages: PageTable
    keys: WorkgroupTile
    key_slots: Slots
    values: Values
    views: tuple[Value, Value]
    own: Value
    stagings: tuple[Staging, Staging]
    sources: tuple[Value, Value]
    targets: tuple[Value, Value]

    @classmethod
    def of(cls, spec: MlaPrefillSpec, arguments: Arguments, sequence: Sequence, values: Values) -> Tiles:
        """Reserve the ring of keys and find this thread's part of a tile."""
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

        share = spec.waves // spec.tile_parts
        nope = staging(spec.tile_keys, 0, spec.head_width, spec.waves)
        rope = staging(spec.part, spec.head_width, spec.rope_width, share)
        wave, lane = lanes.wave_id(), lanes.lane_id()
        source, rope_source = nope.source(wave, lane), rope.source(wave % share, lane)
        below = wave // share * (spec.part * keys.pitch)
        return cls(
            spec,
            arguments,
            sequence.pages(),
            keys,
            Slots(begin=zero, count=spec.key_slots, elements=spec.tile_keys * keys.pitch),
            values,
            (sequence.rows(0, zero, spec.most_keys), sequence.rows(1, zero, spec.most_keys)),
            wave // share,
            (nope, rope),
            (source, rope_source),
            (nope.target(source), rope.target(rope_source) + below),
        )

    @property
    def key_pieces(self) -> int:
        """How many vectors of a tile of keys this thread carries."""
        return sum(staging.pieces for staging in self.stagings)

    def lookups(self, tile: Value) -> list[Value]:
        """Return the page id of this wave's part of a tile."""
        return [self.pages.lookup(tile * self.spec.tile_parts + self.own)]

    def resolve(self, found: Many[Value], tile: Value) -> Page:
        """Return the part of a page that this wave's part of a tile is."""
        return self.pages.resolve(found[0], tile * self.spec.tile_parts + self.own)

    def lookup_all(self, tile: Value) -> list[Value]:
        """Return the page ids of all parts of a tile."""
        first = tile * self.spec.tile_parts
        return [self.pages.lookup(first + part if part else first) for part in range(self.spec.tile_parts)]

    def rows_of_all(self, identifiers: Many[Value]) -> list[Value]:
        """Return how many rows of each part of a tile are there: all or none. No query sees a key past the last."""
        return [self.pages.rows_held(each) for each in identifiers]

    def key_loads(self, place: Page, tile: Value, loaded: list[Value]) -> list[Job]:
        """Return the jobs that issue this thread's loads of a tile of keys, `place` being its part of it."""
        (nope, rope), spec = self.stagings, self.spec

        def load(piece: int) -> Job:
            return lambda: loaded.append(nope.load_piece(self.views[0], self.sources[0] + self.first(tile), piece))

        def load_rope(piece: int) -> Job:
            def job() -> None:
                view = place.view(self.arguments.k_rope, spec.rope_width, spec.part)
                loaded.append(rope.load_piece(view, self.sources[1], piece))

            return job

        return [*map(load, range(nope.pieces)), *map(load_rope, range(rope.pieces))]

    def key_stores(self, slot: Value, loaded: Many[Value]) -> list[Job]:
        """Return the jobs that write a tile of keys to a slot."""
        order = [(number, piece) for number, staging in enumerate(self.stagings) for piece in range(staging.pieces)]

        def store(index: int) -> Job:
            number, piece = order[index]
            staging, target = self.stagings[number], self.targets[number]
            return lambda: staging.store_piece(target + slot, piece, loaded[index], scope=STAGED)

        return [store(index) for index in range(len(order))]

    def value_loads(self, tile: Value, loaded: list[Value]) -> list[Job]:
        """Return the jobs that issue this thread's loads of a tile of values."""
        return self.values.loads(self.views[1], self.first(tile), loaded)

    def first(self, tile: Value) -> Value:
        """Return the first element of a tile among the expanded elements of a head."""
        return tile * (self.spec.tile_keys * self.spec.head_width)
