"""The key tile: one page, staged by all waves through registers into workgroup memory, one tile ahead."""

from __future__ import annotations

import attrs

from kinfolk.ir.ops import control, lanes
from kinfolk.ir.value import Value
from kinfolk.tile.paging import Page, PageTable
from kinfolk.tile.staging import Staging
from kinfolk.tile.workgroup_tile import WorkgroupTile
from kinfolk_mla.decode.geometry import Geometry
from kinfolk_mla.decode.sequence import Work


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

    def load(self, page: Page) -> tuple[list[Value], list[Value]]:
        """Issue this thread's loads of a page."""
        spec, arguments = self.work.geometry.spec, self.work.arguments
        latent = page.view(arguments.c_kv, spec.latent_width, spec.page_size)
        rope = page.view(arguments.k_rope, spec.rope_width, spec.page_size)
        return self.latent.load(latent, control.opaque(self.sources[0])), self.rope.load(rope, self.sources[1])

    def store(self, loaded: tuple[list[Value], list[Value]]) -> None:
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
