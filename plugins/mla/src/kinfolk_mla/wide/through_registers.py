"""Tiles that all waves carry through registers: asked for in one round, written to the ring in the next."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from kinfolk.ir.builder import constant
from kinfolk.ir.ops import lanes
from kinfolk.ir.types import I32
from kinfolk.ir.value import Value
from kinfolk.tile.layout import per_lane
from kinfolk.tile.paging import Page
from kinfolk.tile.parting import parted
from kinfolk.tile.slots import RoundSlots, Slots
from kinfolk.tile.staging import Staging
from kinfolk.tile.timeline import Job, Spread
from kinfolk.tile.workgroup_tile import WorkgroupTile
from kinfolk_mla.decode.sequence import Work
from kinfolk_mla.wide.ring import Incoming, Pages, Staged, naming_jobs, row_views
from kinfolk_mla.wide.rows import STAGED, PaddedPart


@attrs.frozen(eq=False)
class RegisterRing:
    """Slots of padded key rows, latent then rope, a page each."""

    work: Work
    pages: Pages
    slots: Slots
    latent: WorkgroupTile
    parts: tuple[PaddedPart, PaddedPart]
    stagings: tuple[Staging, Staging]
    sources: tuple[Value, Value]
    targets: tuple[Value, Value]

    @classmethod
    def of(cls, work: Work, slots: int) -> RegisterRing:
        """Reserve the ring and find this thread's part of a tile."""
        geometry = work.geometry
        spec = geometry.spec
        tile = WorkgroupTile.allocate(
            geometry.element, slots * spec.tile_keys, geometry.row_width, geometry.row_padding
        )
        sections = ((0, spec.latent_width), (spec.latent_width, spec.rope_width))
        latent, rope = (
            Staging.of(
                tile,
                rows=spec.tile_keys,
                first_column=first,
                columns=columns,
                threads=geometry.threads,
                wave_size=geometry.wave_size,
                max_width=spec.vector_bytes // geometry.element.bytes,
            )
            for first, columns in sections
        )
        lane = lanes.lane_id()
        sources = (latent.source(work.wave, lane), rope.source(work.wave, lane))
        rows = per_lane(geometry.score.shape.a.rows, "the key of an A element")
        return cls(
            work,
            Pages(work.pages(), spec.tile_pages),
            Slots(begin=constant(0, I32), count=slots, elements=spec.tile_keys * tile.pitch),
            tile,
            (
                PaddedPart.of(tile, geometry.latent, rows),
                PaddedPart.of(tile, geometry.rope, rows, spec.latent_width),
            ),
            (latent, rope),
            sources,
            (latent.target(sources[0]), rope.target(sources[1])),
        )

    def fill(self, tiles: Sequence[Sequence[Page]], incoming: Incoming) -> None:
        """Stage all tiles but the last, and ask for that one."""
        *staged, coming = tiles
        with parted(self.latent.buffer, later="read"):
            for number, pages in enumerate(staged):
                loaded: list[Value] = []
                do([*self.loads(pages, loaded), *self.stores(self.slots.at(number), loaded)])
            do(self.loads(coming, incoming.loaded))

    def jobs(
        self, slots: RoundSlots, tile: Value, loaded: Sequence[Value], following: Sequence[Value], incoming: Incoming
    ) -> Staged:
        """Return the jobs that write tile `tile` + 2 and ask for tile `tile` + 3."""
        jobs = [
            *self.stores(slots.ahead(2), loaded),
            *naming_jobs(self.pages, tile + 3, following, incoming),
            *self.loads(incoming.pages, incoming.loaded),
        ]
        return Staged(beside_scores=[Spread(jobs=jobs, end=0.8, writes=2)])

    def loads(self, pages: Sequence[Page], loaded: list[Value]) -> list[Job]:
        """Return the jobs that issue this thread's loads of a tile, each adding to `loaded`."""
        views: list[Value] = []

        def bound() -> None:
            (page,) = pages
            views.extend(row_views(self.work, page, self.work.geometry.spec.page_size))

        def load(number: int, piece: int) -> Job:
            return lambda: loaded.append(self.stagings[number].load_piece(views[number], self.sources[number], piece))

        return [bound, *(load(number, piece) for number, piece in self._order())]

    def stores(self, slot: Value, loaded: Sequence[Value]) -> list[Job]:
        """Return the jobs that write what was loaded to a slot that no wave reads any more."""
        targets: list[Value] = []

        def place() -> None:
            targets.extend(target + slot for target in self.targets)

        def store(index: int, number: int, piece: int) -> Job:
            return lambda: self.stagings[number].store_piece(targets[number], piece, loaded[index], scope=STAGED)

        return [place, *(store(index, number, piece) for index, (number, piece) in enumerate(self._order()))]

    def _order(self) -> list[tuple[int, int]]:
        return [(number, piece) for number, staging in enumerate(self.stagings) for piece in range(staging.pieces)]


def do(jobs: Sequence[Job]) -> None:
    """Do jobs at once, in order."""
    for job in jobs:
        job()
