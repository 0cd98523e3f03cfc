"""The key tile: one page, staged by all waves through registers into workgroup memory, one tile ahead."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs

from kinfolk.ir.builder import constant
from kinfolk.ir.ops import arithmetic, control, convert, lanes
from kinfolk.ir.types import I32
from kinfolk.ir.value import Value
from kinfolk.tile.paging import Page, PageTable
from kinfolk.tile.softmax import mask_scores
from kinfolk.tile.staging import Staging
from kinfolk.tile.workgroup_tile import WorkgroupTile
from kinfolk_mla.decode.epilogue import count_refused_pages
from kinfolk_mla.decode.geometry import Geometry
from kinfolk_mla.decode.sequence import Work

Loaded = tuple[list[Value], list[Value]]
"""What a thread carries of a tile: vectors of latent rows, and of rotated ones."""


@attrs.frozen(eq=False)
class Places:
    """Where in a tile the keys of a lane's scores lie: the first one, and how much further each is."""

    first: Value
    further: tuple[int, ...]


@attrs.frozen(eq=False)
class Coming:
    """A tile whose rows are known: `rows` says which are there, `load` issues this thread's loads."""

    rows: Value
    load: Callable[[], Loaded]


@attrs.frozen(eq=False)
class KeyTile:
    """The tile in workgroup memory, rows of latent then rope, and how this thread fills it."""

    work: Work
    pages: PageTable
    tile: WorkgroupTile
    latent: Staging
    rope: Staging
    sources: tuple[Value, Value]
    targets: tuple[Value, Value]

    @classmethod
    def of(cls, work: Work) -> KeyTile:
        """Reserve the tile and find this thread's part of it."""
        geometry = work.geometry
        spec = geometry.spec
        tile = WorkgroupTile.allocate(geometry.element, spec.page_size, geometry.row_width, geometry.row_padding)
        latent = _staging(tile, geometry, 0, spec.latent_width)
        rope = _staging(tile, geometry, spec.latent_width, spec.rope_width)
        lane = lanes.lane_id()
        sources = (latent.source(work.wave, lane), rope.source(work.wave, lane))
        return cls(
            work, work.pages(), tile, latent, rope, sources, (latent.target(sources[0]), rope.target(sources[1]))
        )

    @property
    def tiles(self) -> Value:
        """How many tiles the segment has."""
        return self.pages.tiles

    def partial(self, rows: Value) -> Value:
        """Return whether a key of the tile is not there."""
        return rows < self.work.geometry.spec.page_size

    def lookup(self, tile: Value) -> list[Value]:
        """Return the page id of a tile, 0 past the segment's last."""
        return [self.pages.lookup(tile)]

    def resolve(self, identifiers: Sequence[Value], tile: Value) -> Coming:
        """Return the tile, of which so many rows of its page are there."""
        (identifier,) = identifiers
        page = self.pages.resolve(identifier, tile)
        return Coming(page.rows, lambda: self._load(page))

    def masked(self, scores: Sequence[Value], places: Places, seen: Value, tile: Value, rows: Value) -> list[Value]:
        """Return scores of keys at `places` of a tile with -inf where there is none, or the query row sees none: it
        sees those below `seen`.
        """
        bound = arithmetic.smin(seen, rows) - places.first
        return mask_scores(scores, [constant(key, I32) for key in places.further], bound)

    def refused(self, tile: Value, rows: Value) -> Value:
        """Return 1 where the tile opens a page outside the cache, else 0."""
        return convert.zext(rows.eq(0) & self.pages.opens(tile), to=I32)

    def count(self, refused: Value) -> None:
        """Add refused page ids to the status word."""
        count_refused_pages(self.work, refused)

    def _load(self, page: Page) -> Loaded:
        """Issue this thread's loads of a page."""
        spec, arguments = self.work.geometry.spec, self.work.arguments
        latent = page.view(arguments.c_kv, spec.latent_width, spec.page_size)
        rope = page.view(arguments.k_rope, spec.rope_width, spec.page_size)
        return self.latent.load(latent, control.opaque(self.sources[0])), self.rope.load(rope, self.sources[1])

    def store(self, loaded: Loaded) -> None:
        """Write what was loaded into the tile."""
        self.latent.store(self.targets[0], loaded[0])
        self.rope.store(self.targets[1], loaded[1])


def _staging(tile: WorkgroupTile, geometry: Geometry, first_column: int, columns: int) -> Staging:
    return Staging.of(
        tile,
        rows=geometry.spec.page_size,
        first_column=first_column,
        columns=columns,
        threads=geometry.threads,
        wave_size=geometry.wave_size,
        max_width=geometry.spec.vector_bytes // geometry.element.bytes,
    )
