"""A layout is data: which row and column of a matrix each lane keeps in each of its slots. Conversions are proved, not
assumed.
"""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from kinfolk.banks import BankAction, BankCost, BankModel
from kinfolk.errors import KinfolkError
from kinfolk.ir.meaning import OperandMap
from kinfolk.ir.types import ScalarType

Table = npt.NDArray[np.int64]


class LayoutMismatch(KinfolkError):
    """One layout cannot be read as another by renaming registers; the message names the first lane and slot that
    differ.
    """


@attrs.frozen(eq=False)
class Layout:
    """(lane, slot) to (row, column), as two tables [wave_size, slots]; `name` is for messages."""

    name: str
    rows: Table
    columns: Table

    @classmethod
    def of(cls, name: str, operand: OperandMap) -> Layout:
        """Return the layout of a matrix atom's operand."""
        return cls(name, operand.rows, operand.columns)

    @property
    def wave_size(self) -> int:
        """The number of lanes."""
        return self.rows.shape[0]

    @property
    def slots(self) -> int:
        """The number of elements a lane holds."""
        return self.rows.shape[1]

    @property
    def transposed(self) -> Layout:
        """The layout of the transposed matrix in the same registers."""
        return Layout(f"{self.name} transposed", self.columns, self.rows)

    def bank_cost(
        self, banks: BankModel, action: BankAction, element: ScalarType, *, pitch: int, count: int
    ) -> BankCost:
        """Return the cycles in which each lane accesses `count` neighbouring elements of a row, from its slot 0 on.

        Row r of the matrix begins at element r * `pitch` of workgroup memory.
        """
        addresses = (self.rows[:, 0] * pitch + self.columns[:, 0]) * element.bytes
        starts = (count | pitch) * element.bytes
        return banks.access_cost(
            action, count * element.bytes, starts & -starts, addresses, np.arange(self.wave_size, dtype=np.int64)
        )


def relabel(source: Layout, target: Layout) -> tuple[int, ...]:
    """Return the source slot that each target slot is, equal on all lanes, so that no data moves.

    Proved by looking at every lane and slot; raises `LayoutMismatch` where no such renaming exists.
    """
    if source.rows.shape != target.rows.shape:
        raise LayoutMismatch(
            f"{source.name} keeps {source.slots} elements on {source.wave_size} lanes, "
            f"{target.name} {target.slots} on {target.wave_size}"
        )
    held = {
        (int(row), int(column)): slot
        for slot, (row, column) in enumerate(zip(source.rows[0], source.columns[0], strict=True))
    }
    order: list[int] = []
    for slot in range(target.slots):
        wanted = (int(target.rows[0, slot]), int(target.columns[0, slot]))
        if wanted not in held:
            raise LayoutMismatch(
                f"{source.name} as {target.name}: lane 0 slot {slot} needs element {wanted}, which lane 0 does not hold"
            )
        order.append(held[wanted])
    differs = (source.rows[:, order] != target.rows) | (source.columns[:, order] != target.columns)
    if differs.any():
        lane, slot = (int(index) for index in np.argwhere(differs)[0])
        wanted = (int(target.rows[lane, slot]), int(target.columns[lane, slot]))
        got = (int(source.rows[lane, order[slot]]), int(source.columns[lane, order[slot]]))
        raise LayoutMismatch(
            f"{source.name} as {target.name}: lane {lane} slot {slot} needs element {wanted}, it holds {got}"
        )
    return tuple(order)


@attrs.frozen(eq=False)
class Step:
    """One step of a product over what another product left in the lanes: the slots that are its B operand as they are,
    and which row of the source each k of the step is (`rows`, one entry per k).
    """

    slots: tuple[int, ...]
    rows: Table


def steps_of(source: Layout, target: OperandMap) -> tuple[Step, ...]:
    """Return how a result [rows, columns] is handed to B operands [k, columns] with no data moved, rows as k.

    Any order of k gives the same product, as long as A has it too: `rows` says which. Proved by looking at every lane
    and slot; raises `LayoutMismatch` where the lanes do not hold what the operand needs.
    """
    count = target.rows.shape[1]
    if source.rows.shape[0] != target.rows.shape[0] or source.slots % count:
        raise LayoutMismatch(
            f"{source.name} keeps {source.slots} elements on {source.wave_size} lanes, an operand "
            f"{count} on {target.rows.shape[0]}"
        )
    steps: list[Step] = []
    for first in range(0, source.slots, count):
        slots = slice(first, first + count)
        rows: Table = np.full(int(target.rows.max()) + 1, -1, np.int64)
        rows[target.rows] = source.rows[:, slots]
        agrees = (rows[target.rows] == source.rows[:, slots]) & (target.columns == source.columns[:, slots])
        if not agrees.all() or len(set(rows.tolist())) != len(rows):
            lane, slot = (int(index) for index in np.argwhere(~agrees)[0]) if not agrees.all() else (0, 0)
            raise LayoutMismatch(
                f"{source.name} as an operand: lane {lane} slot {first + slot} holds element "
                f"({int(source.rows[lane, first + slot])}, {int(source.columns[lane, first + slot])}), another lane "
                "needs another row for the same k"
            )
        steps.append(Step(tuple(range(first, first + count)), rows))
    return tuple(steps)


def lanes_sharing(table: Table) -> tuple[int, ...]:
    """Return the lane bits (as masks 1, 2, 4, ...) whose change leaves `table` [wave_size] unchanged on every lane.

    Exchanging values between lanes these far apart combines everything the lanes hold of one entry.
    """
    lanes = np.arange(len(table))
    return tuple(
        1 << bit for bit in range(len(table).bit_length() - 1) if bool(np.all(table[lanes ^ (1 << bit)] == table))
    )


def per_lane(table: npt.NDArray[Any], what: str) -> Table:
    """Return the one value per lane of a table [wave_size, slots] that does not depend on the slot; raise otherwise."""
    if not np.all(table == table[:, :1]):
        raise LayoutMismatch(f"{what} differs between the slots of a lane")
    return table[:, 0]
