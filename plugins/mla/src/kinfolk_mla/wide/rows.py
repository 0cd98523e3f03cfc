"""How a lane reads its part of a staged key row, for the product over its columns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

import attrs

from kinfolk.errors import IRError
from kinfolk.ir.value import Value
from kinfolk.tile.contraction import Contraction
from kinfolk.tile.lane_index import lane_index
from kinfolk.tile.layout import Table
from kinfolk.tile.workgroup_tile import WorkgroupTile

STAGED: Final = "staged"
READ: Final = "read"
"""The alias scopes: what is being staged is never what is being read."""


class Part(Protocol):
    """A stretch of the columns of a key row, and the product over it."""

    @property
    def contraction(self) -> Contraction: ...
    def reads(self, slot: Value) -> Callable[[int], Value]:
        """Return what issues the reads of a slot, by number."""
        ...


@attrs.frozen(eq=False)
class PaddedPart:
    """Columns from `first_column` on of rows that lie one after the other, `start` being where a lane begins."""

    tile: WorkgroupTile
    contraction: Contraction
    first_column: int
    start: Value

    @classmethod
    def of(cls, tile: WorkgroupTile, contraction: Contraction, rows: Table, first_column: int = 0) -> PaddedPart:
        """Return the part for lanes whose rows are `rows`."""
        return cls(tile, contraction, first_column, lane_index(rows * tile.pitch + contraction.start_a))

    def reads(self, slot: Value) -> Callable[[int], Value]:
        """Return what issues the reads of a slot, by number; they share an address."""
        address: list[Value] = []

        def read(number: int) -> Value:
            if not address:
                address.append(self.start + slot)
            width = self.contraction.width
            return self.tile.load(address[0], width, column=self.first_column + number * width, scope=READ)

        return read


@attrs.frozen(eq=False)
class SwizzledPart:
    """Rows without padding whose vectors stand in another order in each pair of rows: vector v of row r is at v xor
    (r / 2).

    So the lanes of a read meet different banks although the rows follow each other as they lay in the cache.
    """

    tile: WorkgroupTile
    contraction: Contraction
    begin: int
    addresses: tuple[Value, ...]

    @classmethod
    def of(cls, tile: WorkgroupTile, contraction: Contraction, rows: Table, begin: int) -> SwizzledPart:
        """Return the part for lanes whose rows are `rows`, the first row being at element `begin` of a slot."""
        vectors = tile.columns // contraction.width
        if vectors & (vectors - 1) or tile.pitch != tile.columns:
            raise IRError(f"rows of {tile.columns} in vectors of {contraction.width}, {tile.pitch} apart: no xor order")
        row, first = lane_index(rows * tile.pitch), lane_index(contraction.start_a // contraction.width)
        turn = lane_index(rows // 2 % vectors)
        addresses = tuple(
            row + ((first + number if number else first) ^ turn) * contraction.width
            for number in range(contraction.reads)
        )
        return cls(tile, contraction, begin, addresses)

    def reads(self, slot: Value) -> Callable[[int], Value]:
        """Return what issues the reads of a slot, by number."""

        def read(number: int) -> Value:
            address = self.addresses[number] + slot
            return self.tile.load(address, self.contraction.width, column=self.begin, scope=READ)

        return read


def swizzled_vector(row: Value, vector: Value, vectors: int) -> Value:
    """Return which vector of a row in the cache goes to place `vector` of row `row`."""
    return vector ^ ((row >> 1) & (vectors - 1))
