"""The first product as units: S' = K Q', a read of a key row and its matrix operations each."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np

from kinfolk.ir.builder import constant
from kinfolk.ir.ops import arithmetic, vector
from kinfolk.ir.types import F32, VectorType
from kinfolk.ir.value import Value
from kinfolk.tile.lane_index import lane_index
from kinfolk.tile.timeline import Read, Use
from kinfolk_mla.decode.geometry import Geometry
from kinfolk_mla.decode.query import query_vectors
from kinfolk_mla.decode.sequence import Work
from kinfolk_mla.wide.rows import Part


@attrs.frozen(eq=False)
class ScoreUnits:
    """The reads of a key row, the fragments of a wave's heads, and which key each score a lane ends up with is of.

    `pieces` are the reads: part and number of the read in it. `query` [head tile][read] are B operands. `keys` are
    places in a page, `pages` which page of the tile.
    """

    geometry: Geometry
    parts: tuple[Part, ...]
    pieces: tuple[tuple[int, int], ...]
    query: tuple[tuple[Value, ...], ...]
    keys: tuple[Value, ...]
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
        """Return the scores of one head tile with -inf where a page, `valid` rows (i32) of it each, has no such key."""
        bounds = [valid[page] for page in self.pages]
        lowest = constant(float("-inf"), F32)
        elements = self.elements(scores)
        return [
            arithmetic.select(key < bound, score, lowest)
            for key, bound, score in zip(self.keys, bounds, elements, strict=True)
        ]


def _keys(geometry: Geometry) -> tuple[tuple[Value, ...], tuple[int, ...]]:
    """Return, per score, its key's place in the page and which page that is, the same for all lanes."""
    rows, size = geometry.score.shape.c.rows, geometry.spec.page_size
    pages = tuple(int(page) for page in rows[0] // size)
    assert (rows // size == np.array(pages)).all()
    places = rows % size
    first, steps = lane_index(places[:, 0]), places[0] - places[0, 0]
    assert (places == places[:, :1] + steps).all()
    return tuple(first + int(step) if step else first for step in steps), pages
