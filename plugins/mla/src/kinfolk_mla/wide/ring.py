"""The ring of staged key tiles: what the rings of both stagings share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import attrs

from kinfolk.ir.value import Value
from kinfolk.tile.paging import Page, PageTable
from kinfolk.tile.slots import RoundSlots, Slots
from kinfolk.tile.timeline import Job, Spread
from kinfolk.tile.workgroup_tile import WorkgroupTile
from kinfolk_mla.decode.sequence import Work
from kinfolk_mla.wide.rows import Part


@attrs.frozen(eq=False)
class Pages:
    """The pages of tiles, `per_tile` each."""

    table: PageTable
    per_tile: int

    @property
    def tiles(self) -> Value:
        """How many tiles the sequence has."""
        return (self.table.tiles + (self.per_tile - 1)) // self.per_tile if self.per_tile > 1 else self.table.tiles

    def lookup(self, tile: Value) -> list[Value]:
        """Return a tile's page ids, 0 past the sequence's last page."""
        return [self.table.lookup(number) for number in self.numbers(tile)]

    def resolve(self, identifiers: Sequence[Value], tile: Value) -> list[Page]:
        """Return the pages that the slots of a tile name."""
        numbers = self.numbers(tile)
        return [self.table.resolve(name, number) for name, number in zip(identifiers, numbers, strict=True)]

    def numbers(self, tile: Value) -> list[Value]:
        """Return the places in the page table of a tile's pages."""
        first = tile * self.per_tile if self.per_tile > 1 else tile
        return [first + page if page else first for page in range(self.per_tile)]


@attrs.frozen(eq=False)
class Incoming:
    """What a round's jobs leave: the pages of the tile that is asked for, the page ids of the next, and the vectors of
    it that this thread carries, none where tiles come directly.
    """

    pages: list[Page] = attrs.field(factory=list[Page])
    following: list[Value] = attrs.field(factory=list[Value])
    loaded: list[Value] = attrs.field(factory=list[Value])


@attrs.frozen(kw_only=True, eq=False)
class Staged:
    """A round's staging: jobs beside the units of either product."""

    beside_scores: Sequence[Spread] = ()
    beside_values: Sequence[Spread] = ()


class Ring(Protocol):
    """Tiles in workgroup memory: `latent` is where the values are read, `parts` are what scores are formed over."""

    @property
    def pages(self) -> Pages: ...
    @property
    def slots(self) -> Slots: ...
    @property
    def latent(self) -> WorkgroupTile: ...
    @property
    def parts(self) -> tuple[Part, Part]: ...

    def fill(self, tiles: Sequence[Sequence[Page]], incoming: Incoming) -> None:
        """Stage what the first round needs of the first tiles."""
        ...

    def jobs(
        self, slots: RoundSlots, tile: Value, loaded: Sequence[Value], following: Sequence[Value], incoming: Incoming
    ) -> Staged:
        """Return the staging of the round of `slots`, whose own tile is `tile`: tile `tile` + 2 is on its way, + 3 is
        asked for, whose page ids are `following`.
        """
        ...


def naming_jobs(pages: Pages, tile: Value, following: Sequence[Value], incoming: Incoming, step: int = 1) -> list[Job]:
    """Return the jobs that resolve the pages of `tile` and look up those of the tile `step` further.

    In this order, before the data are asked for: loads come back in the order in which they were issued.
    """

    def resolve() -> None:
        incoming.pages.extend(pages.resolve(following, tile))

    def look_up() -> None:
        incoming.following.extend(pages.lookup(tile + step))

    return [resolve, look_up]


def row_views(work: Work, page: Page, page_size: int) -> tuple[Value, Value]:
    """Return the views of a page's rows, latent and rope."""
    spec, arguments = work.geometry.spec, work.arguments
    return (
        page.view(arguments.c_kv, spec.latent_width, page_size),
        page.view(arguments.k_rope, spec.rope_width, page_size),
    )
