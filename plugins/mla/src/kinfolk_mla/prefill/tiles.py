"""The tile of keys and values in workgroup memory: what is expanded, and the rotated part of keys from the cache."""

from __future__ import annotations

from collections.abc import Sequence as Many
from typing import TYPE_CHECKING

import attrs

from kinfolk.ir.ops import arithmetic, lanes
from kinfolk.ir.value import Value
from kinfolk.tile.paging import Page, PageTable
from kinfolk.tile.staging import Staging
from kinfolk.tile.workgroup_tile import WorkgroupTile
from kinfolk_mla.prefill.batch import Sequence

if TYPE_CHECKING:
    from kinfolk_mla.prefill.attend import Arguments
    from kinfolk_mla.prefill.spec import MlaPrefillSpec


@attrs.frozen(eq=False)
class Tiles:
    """`keys` has rows of expanded columns, then rotated ones, `values` expanded rows.

    All waves stage expanded rows; of the parts of pages in a tile each has its share of the waves for rotated rows.
    """

    spec: MlaPrefillSpec
    arguments: Arguments
    sequence: Sequence
    pages: PageTable
    keys: WorkgroupTile
    values: WorkgroupTile
    stagings: tuple[Staging, Staging, Staging]
    sources: tuple[Value, Value, Value]
    targets: tuple[Value, Value, Value]

    @classmethod
    def of(cls, spec: MlaPrefillSpec, arguments: Arguments, sequence: Sequence) -> Tiles:
        """Reserve the tiles and find this thread's part of them."""
        geometry = sequence.geometry
        keys = WorkgroupTile.allocate(geometry.element, spec.atom, spec.key_width, geometry.padding)
        values = WorkgroupTile.allocate(geometry.element, spec.atom, spec.head_width, geometry.padding)

        def staging(tile: WorkgroupTile, rows: int, first: int, columns: int, waves: int) -> Staging:
            return Staging.of(
                tile,
                rows=rows,
                first_column=first,
                columns=columns,
                threads=waves * geometry.wave_size,
                wave_size=geometry.wave_size,
                max_width=geometry.vector,
            )

        nope = staging(keys, spec.atom, 0, spec.head_width, spec.waves)
        value = staging(values, spec.atom, 0, spec.head_width, spec.waves)
        share = spec.waves // geometry.parts
        rope = staging(keys, spec.part, spec.head_width, spec.rope_width, share)
        wave, lane = lanes.wave_id(), lanes.lane_id()
        source = nope.source(wave, lane)
        rope_source = rope.source(wave % share, lane)
        below = wave // share * (spec.part * keys.pitch)
        return cls(
            spec,
            arguments,
            sequence,
            sequence.pages(),
            keys,
            values,
            (nope, value, rope),
            (source, source, rope_source),
            (nope.target(source), value.target(source), rope.target(rope_source) + below),
        )

    @property
    def _parts(self) -> int:
        return self.sequence.geometry.parts

    def lookup(self, tile: Value) -> list[Value]:
        """Return the page ids of a tile's parts."""
        return [self.pages.lookup(part) for part in self._places(tile)]

    def resolve(self, identifiers: Many[Value], tile: Value) -> list[Page]:
        """Return the parts of pages that a tile's keys lie in."""
        places = self._places(tile)
        return [self.pages.resolve(each, place) for each, place in zip(identifiers, places, strict=True)]

    def _places(self, tile: Value) -> list[Value]:
        first = tile * self._parts
        return [first + part if part else first for part in range(self._parts)]

    def load(self, pages: Many[Page], tile: Value) -> tuple[list[Value], list[Value], list[Value]]:
        """Issue this thread's loads of a tile."""
        spec, first = self.spec, tile * self.spec.atom
        nope, value, rope = self.stagings
        part, chosen = lanes.wave_id() // (spec.waves // self._parts), pages[0]
        for number, page in enumerate(pages[1:], start=1):
            here = part.eq(number)
            chosen = Page(
                arithmetic.select(here, page.identifier, chosen.identifier),
                arithmetic.select(here, page.rows, chosen.rows),
            )
        return (
            nope.load(self.sequence.rows(0, first, spec.atom), self.sources[0]),
            value.load(self.sequence.rows(1, first, spec.atom), self.sources[1]),
            rope.load(chosen.view(self.arguments.k_rope, spec.rope_width, spec.part), self.sources[2]),
        )

    def store(self, loaded: tuple[list[Value], list[Value], list[Value]]) -> None:
        """Write what was loaded; every reader of the tile before is past a barrier."""
        for staging, target, pieces in zip(self.stagings, self.targets, loaded, strict=True):
            staging.store(target, pieces)
