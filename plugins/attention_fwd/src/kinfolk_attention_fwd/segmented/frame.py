"""How keys, queries and values of a tile are laid over lanes: all of it follows from the two matrix atoms."""

from __future__ import annotations

from collections.abc import Sequence as Many
from typing import TYPE_CHECKING

import attrs
import numpy as np

from kinfolk.ir.builder import constant
from kinfolk.ir.ops import arithmetic, vector
from kinfolk.ir.types import I32, SCALARS, ScalarType
from kinfolk.ir.value import Value
from kinfolk.matrix import Atom
from kinfolk.narrow import is_narrow
from kinfolk.tile.contraction import Contraction
from kinfolk.tile.lane_index import lane_index
from kinfolk.tile.layout import Layout, Table, lanes_sharing, per_lane, steps_of

if TYPE_CHECKING:
    from kinfolk.arch import Arch
    from kinfolk_attention_fwd.segmented.spec import AttentionSegmentSpec

NOWHERE = 2**28
"""A column that no row has."""


@attrs.frozen
class Stretch:
    """Columns that the lanes of a row read at once, `width` each, from column `first` on."""

    first: int
    width: int


def stretches(head_size: int, lanes: int) -> tuple[Stretch, ...]:
    """Return the stretches of a row that `lanes` lanes read: of 8 columns a lane as long as more than 4 are left.

    The last one may have lanes without columns.
    """
    found: list[Stretch] = []
    first = 0
    while first < head_size:
        width = 8 if head_size - first > 4 * lanes else 4
        found.append(Stretch(first, width))
        first += width * lanes
    return tuple(found)


@attrs.frozen(eq=False)
class Frame:
    """Scores are `score` products, keys by rows of queries, and outputs `value` products of columns by rows.

    A lane loads of each of the `keys` [lanes, loads] it has part `part` [lanes] of the row, and its scores are of the
    same keys: operand B of the second product, whose k is the keys in that order.
    """

    spec: AttentionSegmentSpec
    element: ScalarType
    score: Atom
    value: Atom
    contraction: Contraction
    keys: Table
    part: Table

    @classmethod
    def of(cls, spec: AttentionSegmentSpec, arch: Arch) -> Frame:
        """Lay a tile over the atoms of an arch; proved lane by lane."""
        element, size = SCALARS[spec.dtype], spec.columns
        depths = (atom.shape.k for atom in arch.matrix if cls._fits(atom, size, spec))
        score = arch.matrix.find(m=size, n=size, k=max(depths), a=spec.dtype)
        value = arch.matrix.find(m=size, n=size, k=spec.tile_keys, a=spec.dtype)
        [step] = steps_of(Layout.of("scores", score.shape.c), value.shape.b)
        vector = spec.vector_bytes // element.bytes
        groups = spec.lanes // size
        width = vector if spec.head_size % (groups * vector) == 0 else vector // 2
        contraction = Contraction.of(score.shape, spec.head_size, width)
        part = per_lane(value.shape.a.rows, "the column of a value")
        keys = step.rows[value.shape.a.columns]
        assert np.array_equal(keys, score.shape.c.rows)
        return cls(spec, element, score, value, contraction, keys, part)

    @staticmethod
    def _fits(atom: Atom, size: int, spec: AttentionSegmentSpec) -> bool:
        shape = atom.shape
        return (shape.m, shape.n, shape.a_type.name) == (size, size, spec.dtype) and spec.head_size % shape.k == 0

    @property
    def is_narrow(self) -> bool:
        """Whether elements of keys and values are of 8 bits."""
        return is_narrow(self.spec.kv_dtype)

    @property
    def read_step(self) -> int:
        """How many columns a read of a row is further than the one before: lanes that share a row read neighbours."""
        return self.spec.lanes // self.spec.columns * self.contraction.width

    def first_read(self, start: Table) -> Table:
        """Return the column of each lane's first read, of those from which it would read one column after the other."""
        return start // (self.contraction.reads * self.contraction.width) * self.contraction.width

    @property
    def stretches(self) -> tuple[Stretch, ...]:
        """The stretches of a row."""
        return stretches(self.spec.head_size, self.spec.columns)

    @property
    def padded_columns(self) -> int:
        """Columns of a row with those of lanes that have none."""
        last = self.stretches[-1]
        return last.first + last.width * self.spec.columns

    @property
    def column(self) -> Table:
        """Which row of queries a lane has scores of."""
        return per_lane(self.score.shape.c.columns, "the query of a score")

    @property
    def masks(self) -> tuple[int, ...]:
        """How far apart lanes are that have scores of the same row of queries."""
        return lanes_sharing(self.column)

    @property
    def score_keys(self) -> tuple[Table, tuple[int, ...]]:
        """The key of a lane's first score, and how much further those of all are."""
        rows = self.score.shape.c.rows
        places = rows - rows[:, :1]
        assert (places == places[0]).all()
        return rows[:, 0], tuple(map(int, places[0]))

    def elements(self, scores: Many[Value]) -> list[Value]:
        """Return a lane's scores, those of a product after the other."""
        slots = range(self.score.shape.c.slots)
        return [vector.extract(product, index=slot) for product in scores for slot in slots]

    def start(self, stretch: Stretch) -> Value:
        """Return the first column that this lane reads of a stretch; of a lane that has none, one that no row has, or
        where rows are looked up, whose places are near the most of 32 bits, the last one's, which comes to nothing.
        """
        begin = stretch.first + self.part * stretch.width
        column = lane_index(begin)
        if int(begin.max()) < self.spec.head_size:
            return column
        if self.spec.unit == 1:
            return arithmetic.smin(column, constant(self.spec.head_size - stretch.width, I32))
        return arithmetic.select(column < self.spec.head_size, column, constant(NOWHERE, I32))
