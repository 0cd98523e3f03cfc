"""How a long dot product is laid over matrix atoms, so that both operands are read in wide, contiguous pieces.

Any permutation of k applied to A and B alike leaves A B unchanged. So each group of lanes that an atom gives the same k
is handed one contiguous stretch of columns, and reads it in vectors of several atoms' worth.
"""

from __future__ import annotations

import attrs
import numpy as np

from kinfolk.errors import IRError
from kinfolk.ir.meaning import Matrix
from kinfolk.ir.ops import vector
from kinfolk.ir.value import Value
from kinfolk.tile.layout import Table


@attrs.frozen(eq=False)
class Contraction:
    """`length` columns laid over an atom: a lane reads `reads` vectors of `width` columns, one after the other.

    One vector feeds `width // slots` atoms in order. `start_a` and `start_b` [wave_size] are the column at which each
    lane starts in operand A and in operand B.
    """

    length: int
    width: int
    reads: int
    slots: int
    start_a: Table
    start_b: Table

    @classmethod
    def of(cls, atom: Matrix, length: int, width: int) -> Contraction:
        """Lay `length` columns over `atom`, in vectors of `width`; proved to use each column once, and alike for A and
        B.
        """
        groups_a, k_a = _groups(atom.a.columns)
        groups_b, k_b = _groups(atom.b.rows)
        if not np.array_equal(k_a, k_b):
            raise IRError(f"the atom {atom.m}x{atom.n}x{atom.k} spreads k differently over A and B")
        count, slots = k_a.shape
        stretch = length // count
        if length % (count * width) or width % slots:
            raise IRError(
                f"{length} columns do not split into {count} stretches of vectors of {width} ({slots} slots an atom)"
            )
        return cls(length, width, stretch // width, slots, groups_a * stretch, groups_b * stretch)

    @property
    def steps(self) -> int:
        """How many atoms one vector feeds."""
        return self.width // self.slots

    def split(self, fragment: Value) -> list[Value]:
        """Return the atoms' operands out of one vector read."""
        if self.steps == 1:
            return [fragment]
        return [vector.slice_(fragment, step * self.slots, self.slots) for step in range(self.steps)]


def _groups(k: Table) -> tuple[Table, Table]:
    """Return the group of each lane, and the k [groups, slots] of each group, given the k [wave_size, slots] of an
    operand.
    """
    distinct = sorted({tuple(int(value) for value in row) for row in k})
    if sorted(value for row in distinct for value in row) != list(range(k.max() + 1)):
        raise IRError("the lanes of an operand do not part k into groups")
    number = {row: index for index, row in enumerate(distinct)}
    return np.array([number[tuple(int(value) for value in row)] for row in k]), np.array(distinct)
