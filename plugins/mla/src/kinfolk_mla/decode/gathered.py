"""The key tile of pages smaller than a tile: each thread carries part of one row, from wherever it lies."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from kinfolk.ir.builder import constant
from kinfolk.ir.ops import arithmetic, control, convert, lanes
from kinfolk.ir.types import F32, I1, I32, SCALARS
from kinfolk.ir.value import Value
from kinfolk.tile.gathering import Gathering
from kinfolk.tile.paging import PageTable, Row
from kinfolk.tile.state import branch
from kinfolk.tile.workgroup_tile import WorkgroupTile
from kinfolk_mla.decode.epilogue import count_refused_pages
from kinfolk_mla.decode.geometry import Geometry
from kinfolk_mla.decode.keys import Coming, Loaded, Places
from kinfolk_mla.decode.sequence import Work


@attrs.frozen(eq=False)
class GatheredTile:
    """The tile in workgroup memory, rows of latent then rope, and how this thread fills it.

    A thread carries part of one row. A lane watches one key: a wave watches all of a tile, so that it knows of any that
    is missing.
    """

    work: Work
    pages: PageTable
    tile: WorkgroupTile
    latent: Gathering
    rope: Gathering

    @classmethod
    def of(cls, work: Work) -> GatheredTile:
        """Reserve the tile."""
        geometry = work.geometry
        spec = geometry.spec
        tile = WorkgroupTile.allocate(geometry.element, spec.tile_keys, geometry.row_width, geometry.row_padding)
        latent = _gathering(tile, geometry, 0, spec.latent_width)
        return cls(work, work.pages(), tile, latent, _gathering(tile, geometry, spec.latent_width, spec.rope_width))

    @property
    def _keys(self) -> int:
        return self.work.geometry.spec.tile_keys

    @property
    def _thread(self) -> Value:
        """This thread, as a value that takes no register between its uses."""
        return control.opaque(lanes.thread_id())

    @property
    def tiles(self) -> Value:
        """How many tiles the segment has."""
        return (self.pages.length + (self._keys - 1)) // self._keys

    def partial(self, rows: Value) -> Value:
        """Return whether the watched key's page is none: whether the segment has the key, rows say by what they see."""
        return arithmetic.xor(rows, constant(1, I1))

    def _watched(self, tile: Value) -> Value:
        return tile * self._keys + self._thread % self._keys

    def _carried(self, tile: Value) -> Value:
        return tile * self._keys + self._thread // self.latent.sharing

    def lookup(self, tile: Value) -> list[Value]:
        """Return the page ids of the keys that this lane carries and watches; 0 past the segment's last."""
        return [self.pages.lookup(self._carried(tile)), self.pages.lookup(self._watched(tile))]

    def resolve(self, identifiers: Sequence[Value], tile: Value) -> Coming:
        """Return the tile, of which the watched key's page is one or none; past the segment's last key it is page 0."""
        carried, watched = identifiers
        row = self.pages.row(carried, self._carried(tile))
        return Coming(self.pages.has(watched), lambda: self._load(row))

    def masked(self, scores: Sequence[Value], places: Places, seen: Value, tile: Value, rows: Value) -> list[Value]:
        """Return scores of keys at `places` of a tile with -inf where there is none, or the query row sees none: it
        sees those below `seen`. Page ids are looked up again.
        """
        keys = [places.first + key if key else places.first for key in places.further]
        numbers = [tile * self._keys + key for key in keys]
        exist = [
            self.pages.row(self.pages.lookup(number), number).exists & (key < seen)
            for number, key in zip(numbers, keys, strict=True)
        ]
        lowest = constant(float("-inf"), F32)
        return [arithmetic.select(there, score, lowest) for there, score in zip(exist, scores, strict=True)]

    def refused(self, tile: Value, rows: Value) -> Value:
        """Return 1 where the watched key opens a page outside the cache, else 0; of lanes that `count` does not ask,
        nothing is said.
        """
        key = tile * self._keys + self._thread
        return convert.zext(self.partial(rows) & (key < self.pages.length) & self.pages.opens(key), to=I32)

    def count(self, refused: Value) -> None:
        """Add refused page ids to the status word, each lane those of the keys that it alone watches."""
        count_refused_pages(self.work, refused, self._keys)

    def _load(self, row: Row) -> Loaded:
        """Issue this thread's loads of its row: zeros, and no load, where there is none."""
        arguments, spec, thread = self.work.arguments, self.work.geometry.spec, self._thread
        element = SCALARS[spec.kv_dtype]

        def there() -> Loaded:
            latent = row.pointer(arguments.c_kv, spec.latent_width)
            rope = row.pointer(arguments.k_rope, spec.rope_width)
            return (
                self.latent.load(latent, self.latent.source(thread)),
                self.rope.load(rope, self.rope.source(thread)),
            )

        return branch(row.exists, there, lambda: (self.latent.nothing(element), self.rope.nothing(element)))

    def store(self, loaded: Loaded) -> None:
        """Write what was loaded into the tile."""
        thread = self._thread
        self.latent.store(self.latent.target(thread), loaded[0])
        self.rope.store(self.rope.target(thread), loaded[1])


def _gathering(tile: WorkgroupTile, geometry: Geometry, first_column: int, columns: int) -> Gathering:
    return Gathering.of(
        tile,
        rows=geometry.spec.tile_keys,
        first_column=first_column,
        columns=columns,
        threads=geometry.threads,
        max_width=geometry.spec.vector_bytes // geometry.element.bytes,
    )
