"""The query fragments: most stay in registers, the last ones are parked in workgroup memory, each lane reading its own
back.
"""

from __future__ import annotations

import attrs

from kinfolk.ir.ops import lanes, memory
from kinfolk.ir.value import Value
from kinfolk.tile.contraction import Contraction
from kinfolk.tile.lane_index import lane_index
from kinfolk.tile.layout import LayoutMismatch, Table, per_lane
from kinfolk_mla.decode.geometry import Geometry
from kinfolk_mla.decode.sequence import Work


@attrs.frozen(eq=False)
class Query:
    """The wave's query as B operands, one vector per read of a key row, in the order of the key reads."""

    held: list[Value]
    parked: Value | None
    park_index: Value
    threads: int
    width: int

    @staticmethod
    def reserve(geometry: Geometry, count: int) -> Value | None:
        """Reserve the workgroup memory in which the fragments of the last `count` reads are parked, if any are."""
        return memory.allocate(geometry.element, count * geometry.threads * geometry.latent.width) if count else None

    def vector(self, read: int) -> Value:
        """Return the query vector that meets key read number `read`."""
        if read < len(self.held):
            return self.held[read]
        assert self.parked is not None
        slot = read - len(self.held)
        return memory.workgroup_load(
            self.parked, self.park_index, count=self.width, offset=slot * self.threads * self.width, alignment=16
        )


def load_query(work: Work, parking: Value | None, parked: int) -> Query:
    """Load the wave's rows of the query, the last `parked` reads of which go to `parking`."""
    return _park(query_vectors(work), work.geometry, parking, parked)


def query_vectors(work: Work, head_tile: int = 0) -> list[Value]:
    """Load the rows of one atom: lane l holds a column of B, a row of the query, in the contraction's column order."""
    geometry = work.geometry
    view = work.rows_of(work.arguments.qa, geometry.row_width)
    first = work.wave_row + head_tile * geometry.spec.atom_heads if head_tile else work.wave_row
    index = first * geometry.row_width
    vectors: list[Value] = []
    for contraction, first_column in sections(geometry):
        if len(contraction.parts_b) > 1:
            raise LayoutMismatch(f"a lane has {len(contraction.parts_b)} parts of a row, it reads one vector at a time")
        start = index + lane_index(_query_start(geometry, contraction.start_b))
        for read in range(contraction.reads):
            column = first_column + read * contraction.width
            vectors.append(memory.view_load(view, start + column, count=contraction.width))
    return vectors


def sections(geometry: Geometry) -> list[tuple[Contraction, int]]:
    """Return the contractions a score is made of, each with its first column in a key row."""
    return [(geometry.latent, 0), (geometry.rope, geometry.spec.latent_width)]


def _query_start(geometry: Geometry, start: Table) -> Table:
    rows = per_lane(geometry.score.shape.b.columns, "the row of a query element")
    return rows * geometry.row_width + start


def _park(vectors: list[Value], geometry: Geometry, parking: Value | None, parked_reads: int) -> Query:
    count = parked_reads if parking is not None else 0
    width = geometry.latent.width
    index = lanes.thread_id() * width
    held, parked = vectors[: len(vectors) - count], vectors[len(vectors) - count :]
    for slot, value in enumerate(parked):
        assert parking is not None
        memory.workgroup_store(parking, index, value, offset=slot * geometry.threads * width, alignment=16)
    return Query(held, parking, index, geometry.threads, width)
