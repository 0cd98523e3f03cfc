"""The atom of all products, and how a workgroup's threads carry tiles."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from kinfolk.ir.ops import memory, vector
from kinfolk.ir.types import ScalarType
from kinfolk.ir.value import Value
from kinfolk.matrix import Atom
from kinfolk.tile.contraction import Contraction
from kinfolk.tile.narrow import narrow


@attrs.frozen(eq=False)
class Frame:
    """Products are made of `atom`; `vector` elements are read or written at once, by `threads` threads, and `padding`
    unused ones stand after a row of a tile, so that the rows of a column start in different banks.
    """

    element: ScalarType
    atom: Atom
    vector: int
    wave_size: int
    threads: int
    padding: int

    def contraction(self, length: int) -> Contraction:
        """Lay a dot product over the atom, in vectors."""
        return Contraction.of(self.atom.shape, length, self.vector)


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
