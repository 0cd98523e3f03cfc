"""The atoms of the products of prefill, and where this lane's part of a result goes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import attrs

from kinfolk.ir.ops import memory, vector
from kinfolk.ir.types import SCALARS, ScalarType
from kinfolk.ir.value import Value
from kinfolk.matrix import Atom
from kinfolk.tile.contraction import Contraction
from kinfolk.tile.narrow import narrow

if TYPE_CHECKING:
    from kinfolk.arch import Arch
    from kinfolk_mla.prefill.spec import MlaProjectedSpec

FRAGMENTS = 4
"""Atoms side by side in a head's columns, whose transposed operands share a window."""


@attrs.frozen(eq=False)
class Geometry:
    """The atom of all products; `vector` elements are read or written at once."""

    spec: MlaProjectedSpec
    element: ScalarType
    atom: Atom
    vector: int
    wave_size: int

    @classmethod
    def of(cls, spec: MlaProjectedSpec, arch: Arch) -> Geometry:
        """Choose the atom that contracts the most at once."""
        element = SCALARS[spec.dtype]
        atom = arch.matrix.find(m=spec.atom, n=spec.atom, a=spec.dtype)
        return cls(spec, element, atom, spec.vector_bytes // element.bytes, arch.wave_size)

    @property
    def threads(self) -> int:
        """Threads of a workgroup."""
        return self.spec.waves * self.wave_size

    @property
    def padding(self) -> int:
        """Unused elements after a staged row, so that the rows of a column start in different banks."""
        return self.spec.row_padding_bytes // self.element.bytes

    def contraction(self, length: int) -> Contraction:
        """Lay a dot product over the atom, in vectors."""
        return Contraction.of(self.atom.shape, length, self.vector)

    @property
    def parts(self) -> int:
        """How many parts of pages have the keys of an atom."""
        return self.spec.atom // self.spec.part


def store_columns(
    view: Value,
    row: Value,
    order: Sequence[tuple[int, int, int]],
    element: ScalarType,
    accumulators: Sequence[Value],
    factor: Value | None = None,
) -> None:
    """Write this lane's columns of a product, of which `row` is where the first one goes, rounded to `element`.

    `order` has them in order: how far from the first, in which of the f32 `accumulators` and which slot of it
    (`TransposedOperand.columns_of_result`). They are multiplied by `factor`.
    """
    elements = (vector.extract(accumulators[fragment], index=slot) for _, fragment, slot in order)
    columns = [each if factor is None else each * factor for each in elements]
    width, begin = 16 // element.bytes, 0
    places = [offset for offset, _, _ in order]
    for end in range(1, len(places) + 1):
        if end == len(places) or places[end] != places[end - 1] + 1 or end - begin == width:
            view_index = row + places[begin] if places[begin] else row
            memory.view_store(view, view_index, narrow(columns[begin:end], element))
            begin = end
