"""The first product: S' = K Q', 16 keys by 16 rows per wave, contracted over latent and rope."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import attrs

from kinfolk.ir.builder import constant
from kinfolk.ir.ops import vector
from kinfolk.ir.types import F32, VectorType
from kinfolk.ir.value import Value
from kinfolk.tile.contraction import Contraction
from kinfolk.tile.lane_index import lane_index
from kinfolk.tile.layout import Table, per_lane
from kinfolk.tile.timeline import Round, Section, Stream
from kinfolk.tile.workgroup_tile import WorkgroupTile
from kinfolk_mla.decode.geometry import Geometry
from kinfolk_mla.decode.query import Query, sections

if TYPE_CHECKING:
    from kinfolk_mla.spec import MlaDecodeSpec


@attrs.frozen(eq=False)
class ScoreProduct:
    """Where this lane reads its key row, and the key index in the tile of each score it ends up with: that of its first
    one, by lane, and how much further each is.
    """

    geometry: Geometry
    tile: WorkgroupTile
    starts: tuple[Value, ...]
    first: Table
    keys: tuple[int, ...]

    @classmethod
    def of(cls, geometry: Geometry, tile: WorkgroupTile) -> ScoreProduct:
        """Find this lane's rows and columns."""
        rows = per_lane(geometry.score.shape.a.rows, "the key of an A element")
        starts = tuple(lane_index(rows * tile.pitch + contraction.start_a) for contraction, _ in sections(geometry))
        key = geometry.score.shape.c.rows
        steps = key[0] - key[0, 0]
        assert (key == key[:, :1] + steps).all()
        return cls(geometry, tile, starts, key[:, 0], tuple(map(int, steps)))

    def scores(self, query: Query, spec: MlaDecodeSpec) -> list[Value]:
        """Return this lane's raw scores, one per key of `keys`."""
        atom = self.geometry.score
        total = [constant(0.0, VectorType(F32, atom.shape.c.slots))]
        pieces = list(self._pieces())

        def read(unit: int) -> list[Value]:
            contraction, start, column = pieces[unit]
            return [self.tile.load(start, contraction.width, column=column + part) for part in contraction.parts_a]

        def use(unit: int, operands: Sequence[Value]) -> None:
            contraction, _, _ = pieces[unit]
            *keys, head = operands
            for a, b in zip(contraction.split(*keys), contraction.split(head), strict=True):
                total[0] = atom(a, b, total[0])

        streams = (
            Stream(read=read, ahead=spec.key_read_ahead),
            Stream(read=lambda unit: [query.vector(unit)], ahead=spec.query_read_ahead),
        )
        products = Section(units=len(pieces), use=use, streams=streams, fence_every=spec.fence_every)
        Round(sections=[products]).lay_out()
        return [vector.extract(total[0], index=slot) for slot in range(atom.shape.c.slots)]

    def _pieces(self) -> Iterator[tuple[Contraction, Value, int]]:
        """Yield contraction, start and column of every read of a key row."""
        for (contraction, first_column), start in zip(sections(self.geometry), self.starts, strict=True):
            for number in range(contraction.reads):
                yield contraction, start, first_column + number * contraction.width
