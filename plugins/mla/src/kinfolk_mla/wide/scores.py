"""The first product as units: S' = K Q', a read of a key row and its matrix operations each."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np

from kinfolk.ir.builder import constant
from kinfolk.ir.ops import vector
from kinfolk.ir.types import F32, I32, VectorType
from kinfolk.ir.value import Value
from kinfolk.tile.layout import Table
from kinfolk.tile.softmax import mask_scores
from kinfolk.tile.timeline import Read, Use
from kinfolk_mla.decode.geometry import Geometry
from kinfolk_mla.decode.query import query_vectors
from kinfolk_mla.decode.sequence import Work
from kinfolk_mla.wide.rows import Part


@attrs.frozen(eq=False)
class ScoreUnits:
    """The reads of a key row, the fragments of a wave's rows, and which key each score a lane ends up with is of.

    `pieces` are the reads: part and number of the read in it. `query` [head tile][read] are B operands. A score's
    key is `keys` places in a page after the lane's `first`, in page `pages` of the tile.
    """

    geometry: Geometry
    parts: tuple[Part, ...]
    pieces: tuple[tuple[int, int], ...]
    query: tuple[tuple[Value, ...], ...]
    first: Table
    keys: tuple[int, ...]
    pages: tuple[int, ...]

    @classmethod
    def of(cls, work: Work, parts: tuple[Part, ...]) -> ScoreUnits:
        """Load the wave's query and find this lane's keys."""
        geometry = work.geometry
        pieces = tuple((part, read) for part, each in enumerate(parts) for read in range(each.contraction.reads))
        query = tuple(tuple(query_vectors(work, number)) for number in range(geometry.head_tiles))
        return cls(geometry, parts, pieces, query, *_keys(geometry))

    @property
    def units(self) -> int:
        """How many units a tile's scores take."""
        return len(self.pieces)

    def reads(self, slot: Value) -> Read:
        """Return what reads the key rows of a slot."""
        issues = [part.reads(slot) for part in self.parts]

        def read(unit: int) -> list[Value]:
            part, number = self.pieces[unit]
            return [issues[part](number)]

        return read

    def start(self) -> list[Value]:
        """Return zeros to add the products to, one per head tile."""
        return [constant(0.0, VectorType(F32, self.geometry.score.shape.c.slots))] * self.geometry.head_tiles

    def use(self, total: list[Value]) -> Use:
        """Return what multiplies a read with every head tile, into `total`."""

        def use(unit: int, operands: Sequence[Value]) -> None:
            contraction = self.parts[self.pieces[unit][0]].contraction
            keys = contraction.split(operands[0])
            heads = [contraction.split(fragments[unit]) for fragments in self.query]
            for step, key in enumerate(keys):
                for number, parts in enumerate(heads):
                    total[number] = self.geometry.score(key, parts[step], total[number])

        return use

    def elements(self, scores: Value) -> list[Value]:
        """Return the scores of one head tile, in the order of `keys`."""
        return [vector.extract(scores, index=slot) for slot in range(self.geometry.score.shape.c.slots)]

    def masked(self, scores: Value, valid: Sequence[Value]) -> list[Value]:
        """Return the scores of one head tile with -inf for keys of a page that are not below `valid`, counted from the
        lane's first.
        """
        keys = [constant(key, I32) for key in self.keys]
        elements = self.elements(scores)
        masked: list[Value] = []
        for page, bound in enumerate(valid):
            own = [slot for slot, other in enumerate(self.pages) if other == page]
            masked += mask_scores([elements[slot] for slot in own], [keys[slot] for slot in own], bound)
        return masked


def _keys(geometry: Geometry) -> tuple[Table, tuple[int, ...], tuple[int, ...]]:
    """Return the place in its page of a lane's first key, and per score how much further its key lies and in which
    page, the same for all lanes.
    """
    rows, size = geometry.score.shape.c.rows, geometry.spec.page_size
    pages = tuple(int(page) for page in rows[0] // size)
    assert (rows // size == np.array(pages)).all() and list(pages) == sorted(pages)
    places = rows % size
    steps = places[0] - places[0, 0]
    assert (places == places[:, :1] + steps).all()
    return places[:, 0], tuple(map(int, steps)), pages
