"""How a long dot product is laid over matrix atoms, so that both operands are read in wide, contiguous pieces.

Any permutation of k applied to A and B alike leaves A B unchanged. So each run of k that lanes hold in neighbouring
slots, of A and of B, is handed one contiguous stretch of columns, and read in vectors of several atoms' worth.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import attrs
import numpy as np

from kinfolk.errors import IRError
from kinfolk.ir.meaning import Matrix
from kinfolk.ir.ops import vector
from kinfolk.ir.value import Value
from kinfolk.tile.joining import joined
from kinfolk.tile.layout import Table


@attrs.frozen(eq=False)
class Contraction:
    """`length` columns laid over an atom: a lane reads `reads` vectors of `width` columns, one after the other.

    One vector feeds `width // slots` atoms in order, with `slots` elements each. `start_a` and `start_b` [wave_size]
    are the column at which each lane starts in operand A and in operand B. A lane that holds more elements of an
    operand reads as many vectors at once: `parts_a` and `parts_b` are the columns from its start to each of them.
    """

    length: int
    width: int
    reads: int
    slots: int
    start_a: Table
    start_b: Table
    parts_a: tuple[int, ...] = (0,)
    parts_b: tuple[int, ...] = (0,)

    @classmethod
    def of(cls, atom: Matrix, length: int, width: int) -> Contraction:
        """Lay `length` columns over `atom`, in vectors of `width`; proved to use each column once, and alike for A and
        B.
        """
        slots = math.gcd(atom.a.slots, atom.b.slots)
        runs_a, k_a = _runs(atom.a.columns, slots)
        runs_b, k_b = _runs(atom.b.rows, slots)
        if not np.array_equal(k_a, k_b):
            raise IRError(f"the atom {atom.m}x{atom.n}x{atom.k} spreads k differently over A and B")
        stretch = length // len(k_a)
        if length % (len(k_a) * width) or width % slots:
            raise IRError(
                f"{length} columns do not split into {len(k_a)} stretches of vectors of {width} ({slots} slots an atom)"
            )
        start_a, parts_a = _places(runs_a * stretch, "A")
        start_b, parts_b = _places(runs_b * stretch, "B")
        return cls(length, width, stretch // width, slots, start_a, start_b, parts_a, parts_b)

    @property
    def steps(self) -> int:
        """How many atoms one vector feeds."""
        return self.width // self.slots

    def split(self, *vectors: Value) -> list[Value]:
        """Return the atoms' operands out of the vectors of one read, one for each part of the operand."""
        if self.steps == 1:
            return [joined(vectors)]
        return [
            joined([vector.slice_(each, step * self.slots, self.slots) for each in vectors])
            for step in range(self.steps)
        ]


def _runs(k: Table, slots: int) -> tuple[Table, Table]:
    """Cut what each lane holds of k [wave_size, slots of the operand] into runs of `slots`.

    Returns the number of each run [wave_size, runs] and the k [numbers, slots] of each number.
    """
    cut = k.reshape(len(k), -1, slots)
    distinct = sorted({tuple(int(value) for value in run) for lane in cut for run in lane})
    if sorted(value for run in distinct for value in run) != list(range(k.max() + 1)):
        raise IRError("the lanes of an operand do not part k into groups")
    number = {run: index for index, run in enumerate(distinct)}
    return np.array([[number[tuple(int(value) for value in run)] for run in lane] for lane in cut]), np.array(distinct)


def _places(columns: Table, name: str) -> tuple[Table, tuple[int, ...]]:
    """Return where each lane starts, and how far from there the columns [wave_size, parts] of its parts lie."""
    parts: Sequence[int] = (columns[0] - columns[0, 0]).tolist()
    if not np.array_equal(columns, columns[:, :1] + np.array(parts)):
        raise IRError(f"the lanes of operand {name} do not hold parts of k the same distance apart")
    return columns[:, 0], tuple(parts)
