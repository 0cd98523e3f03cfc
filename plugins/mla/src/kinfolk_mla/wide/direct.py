"""Tiles that come to workgroup memory directly: no register carries them, a wait before the barrier sees them there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import attrs

from kinfolk.errors import IRError
from kinfolk.ir.builder import constant, op_for_role
from kinfolk.ir.op import OpDef
from kinfolk.ir.ops import arithmetic, lanes, memory
from kinfolk.ir.types import I32
from kinfolk.ir.value import Value
from kinfolk.tile.layout import per_lane
from kinfolk.tile.paging import Page
from kinfolk.tile.parting import parted
from kinfolk.tile.slots import RoundSlots, Slots
from kinfolk.tile.timeline import Job, Spread
from kinfolk.tile.workgroup_tile import WorkgroupTile
from kinfolk_mla.decode.sequence import Work
from kinfolk_mla.wide.ring import Incoming, Pages, Staged, naming_jobs, row_views
from kinfolk_mla.wide.rows import STAGED, PaddedPart, SwizzledPart, swizzled_vector

STRETCH: Final = 16
"""Rows of a tile that a view has: a page, or a part of one."""


@attrs.frozen(eq=False)
class DirectRing:
    """Slots of padded latent rows, then rope rows without padding, `stage` bringing a wave's worth of vectors.

    The waves of a group bring a tile together: as many rows of each stretch of `STRETCH` as any other, one a call, and
    as many blocks of rope rows. So the rows of a wave lie within what an instruction adds to an address. Each group
    has slots of its own.
    """

    work: Work
    pages: Pages
    slots: Slots
    latent: WorkgroupTile
    rope: WorkgroupTile
    rope_begin: int
    parts: tuple[PaddedPart, SwizzledPart]
    stage: OpDef

    @classmethod
    def of(cls, work: Work, slots: int) -> DirectRing:
        """Reserve `slots` for each group of waves."""
        geometry = work.geometry
        spec = geometry.spec
        pitch = spec.latent_width + geometry.row_padding
        begin = spec.tile_keys * pitch
        elements = begin + spec.tile_keys * spec.rope_width
        buffer = memory.allocate(geometry.element, spec.key_groups * slots * elements)
        first = work.group * (slots * elements) if spec.key_groups > 1 else constant(0, I32)
        latent = WorkgroupTile(buffer, geometry.element, spec.tile_keys, spec.latent_width, pitch)
        rope = WorkgroupTile(buffer, geometry.element, spec.tile_keys, spec.rope_width, spec.rope_width)
        rows = per_lane(geometry.score.shape.a.rows, "the key of an A element")
        ring = cls(
            work,
            Pages(work.pages(), spec.tile_pages),
            Slots(begin=first, count=slots, elements=elements),
            latent,
            rope,
            begin,
            (PaddedPart.of(latent, geometry.latent, rows), SwizzledPart.of(rope, geometry.rope, rows, begin)),
            op_for_role(f"stage_view_{spec.vector_bytes}"),
        )
        ring._check()
        return ring

    @property
    def _vector(self) -> int:
        return self.work.geometry.spec.vector_bytes // self.work.geometry.element.bytes

    @property
    def _rows_per_wave(self) -> int:
        """Rows of a stretch that a wave brings."""
        return STRETCH // self.work.geometry.spec.row_waves

    @property
    def _rope_rows(self) -> int:
        """Rope rows that one call brings."""
        return self.work.geometry.wave_size * self._vector // self.rope.columns

    @property
    def _rope_calls(self) -> int:
        """Calls for rope rows that a wave makes."""
        return self.work.geometry.spec.tile_keys // self._rope_rows // self.work.geometry.spec.row_waves

    def _check(self) -> None:
        geometry, spec = self.work.geometry, self.work.geometry.spec
        a_call = geometry.wave_size * self._vector
        shared = self._rope_calls * spec.row_waves * self._rope_rows == spec.tile_keys
        if a_call != spec.latent_width or STRETCH % spec.row_waves or not shared:
            raise IRError(
                f"{spec.row_waves} waves do not bring rows of {spec.latent_width} + {spec.rope_width} elements, "
                f"{spec.tile_keys} a tile, in calls of {a_call} elements each"
            )

    def fill(self, tiles: Sequence[Sequence[Page]], incoming: Incoming) -> None:
        """Stage all tiles."""
        with parted(self.latent.buffer, later="read"):
            for number, pages in enumerate(tiles):
                for job in self.calls(pages, self.slots.at(number)):
                    job()

    def jobs(
        self, slots: RoundSlots, tile: Value, loaded: Sequence[Value], following: Sequence[Value], incoming: Incoming
    ) -> Staged:
        """Return the jobs that ask for tile `tile` + 3."""
        names = naming_jobs(self.pages, tile + 3, following, incoming)
        jobs = [*names, *self.calls(incoming.pages, slots.ahead(3))]
        return Staged(beside_values=[Spread(jobs=jobs, end=0.5, writes=3)])

    def calls(self, pages: Sequence[Page], slot: Value) -> list[Job]:
        """Return the jobs that ask for this wave's part of a tile, `pages` being there when they run."""
        spec, vector = self.work.geometry.spec, self._vector
        parts: list[Page] = []
        views: list[Value] = []
        row = self.work.member * self._rows_per_wave
        begin: list[Value] = []

        def bound() -> None:
            parts.extend(part for page in pages for part in page.divided(spec.page_size // STRETCH, spec.page_size))
            views.extend(row_views(self.work, part, STRETCH)[0] for part in parts)
            begin.append(slot + row * self.latent.pitch)

        def latent(part: int, number: int) -> Job:
            def call() -> None:
                index = row * spec.latent_width + lanes.lane_id() * vector
                place = (part * STRETCH + number) * self.latent.pitch
                self.stage.add(
                    views[part],
                    index + number * spec.latent_width if number else index,
                    self.latent.buffer,
                    begin[0],
                    count=vector,
                    offset=place,
                    scope=STAGED,
                )

            return call

        stretches = spec.tile_keys // STRETCH
        calls = [latent(part, number) for number in range(self._rows_per_wave) for part in range(stretches)]
        return [bound, *calls, *(self._rope_job(parts, slot, number) for number in range(self._rope_calls))]

    def _rope_job(self, parts: Sequence[Page], slot: Value, number: int) -> Job:
        return lambda: self._rope_call(parts, slot, number)

    def _rope_call(self, parts: Sequence[Page], slot: Value, number: int) -> None:
        """Ask for one of this wave's blocks of rope rows; where each lane reads decides the order of its vectors."""
        vector = self._vector
        blocks = STRETCH // self._rope_rows
        first = self.work.member * self._rope_calls if self._rope_calls > 1 else self.work.member
        place = first + number if number else first
        part, block = place // blocks, place % blocks
        chosen = parts[0]
        for number_of_other, other in enumerate(parts[1:], start=1):
            here = part.eq(number_of_other)
            chosen = Page(
                arithmetic.select(here, other.identifier, chosen.identifier),
                arithmetic.select(here, other.rows, chosen.rows),
            )
        vectors = self.rope.columns // vector
        lane = lanes.lane_id()
        row = block * self._rope_rows + lane // vectors
        source = row * self.rope.columns + swizzled_vector(row, lane % vectors, vectors) * vector
        start = slot + place * (self._rope_rows * self.rope.columns)
        _, view = row_views(self.work, chosen, STRETCH)
        self.stage.add(view, source, self.rope.buffer, start, count=vector, offset=self.rope_begin, scope=STAGED)
