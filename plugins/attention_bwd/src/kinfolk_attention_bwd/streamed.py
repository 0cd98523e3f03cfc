"""Tiles of a tensor that go by in workgroup memory: read as rows, and as columns where its rows are added up.

Where the arch reads transposed, one image of a tile serves both, in a ring of two. Elsewhere columns have an image of
their own, of one slot as that of rows has: while one is read, the other one is written, a barrier after each.
"""

from __future__ import annotations

from collections.abc import Sequence as Many
from typing import TYPE_CHECKING, Protocol

import attrs

from kinfolk.ir.builder import constant, op_in_role
from kinfolk.ir.types import I32
from kinfolk.ir.value import Value
from kinfolk.tile.attention.frame import Frame
from kinfolk.tile.attention.rows import STAGED, RowColumns, Strided, kept_columns
from kinfolk.tile.attention.values import RowValues, TransposedValues, Values
from kinfolk.tile.layout import Layout, Step, steps_of
from kinfolk.tile.rotation import Rotation
from kinfolk.tile.slots import Slots
from kinfolk.tile.timeline import Job
from kinfolk.tile.workgroup_tile import WorkgroupTile

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from kinfolk_attention_bwd.rows import Tokens
    from kinfolk_attention_bwd.spec import GradientSpec


def row_steps(frame: Frame, tile_rows: int) -> tuple[Step, ...]:
    """Return how products of a tile's rows, a block after the other, are operands B: as many blocks a step as it takes
    to fill one.
    """
    import numpy as np

    shape = frame.atom.shape
    together = -(-shape.b.slots // shape.c.slots)

    def stacked(table: npt.NDArray[np.int64], apart: int) -> npt.NDArray[np.int64]:
        return np.concatenate([table + block * apart for block in range(together)], axis=1)

    layout = Layout("scores", stacked(shape.c.rows, shape.m), stacked(shape.c.columns, 0))
    steps = steps_of(layout, shape.b)
    begins = range(0, tile_rows, together * shape.m)
    return tuple(Step(step.slots, step.rows + begin) for begin in begins for step in steps)


class Streamed(Protocol):
    """A ring of tiles; `columns` are None where they are not read."""

    @property
    def tile(self) -> WorkgroupTile:
        """That of the rows."""
        ...

    @property
    def columns(self) -> Values | None: ...
    def loads(self, tokens: Tokens, first: Value, head: Value, loaded: list[Value]) -> list[Job]:
        """Return the jobs that issue this thread's loads of the tile that begins with token `first` of a head."""
        ...

    def row_stores(self, slot: Value, loaded: Many[Value]) -> list[Job]:
        """Return the jobs that write what was loaded to a slot of rows."""
        ...

    def column_stores(self, slot: Value, loaded: Many[Value]) -> list[Job]:
        """Return the jobs that write it to a slot of columns; none where rows are read as such."""
        ...


@attrs.frozen(eq=False)
class OneImage:
    """Rows, which are also read as columns where `columns` is not None."""

    spec: GradientSpec
    staged: RowColumns
    tile: WorkgroupTile
    columns: RowValues | None

    @classmethod
    def of(cls, spec: GradientSpec, frame: Frame, tokens: Tokens, slots: int, *, both: bool) -> OneImage:
        """Reserve the ring."""
        rows = Strided(tokens.pitch, constant(0, I32))
        if both:
            steps = row_steps(frame, spec.tile_rows)
            values = RowValues.of(
                frame, steps, tile_keys=spec.tile_rows, columns=spec.head_size, slots=slots, rows=rows
            )
            return cls(spec, values.columns, values.operand.tile, values)
        kept = kept_columns(spec.head_size)
        tile = WorkgroupTile.allocate(frame.element, slots * spec.tile_rows, kept, frame.padding)
        return cls(spec, RowColumns.of(frame, tile, spec.tile_rows, spec.head_size, rows), tile, None)

    def loads(self, tokens: Tokens, first: Value, head: Value, loaded: list[Value]) -> list[Job]:
        """As `Streamed` says."""
        return self.staged.loads(lambda: tokens.view(first, self.spec.tile_rows, head), None, loaded)

    def row_stores(self, slot: Value, loaded: Many[Value]) -> list[Job]:
        """As `Streamed` says."""
        return self.staged.stores(slot, loaded)

    def column_stores(self, slot: Value, loaded: Many[Value]) -> list[Job]:
        """As `Streamed` says."""
        return []


@attrs.frozen(eq=False)
class TwoImages:
    """Rows, and columns beside them; a thread has small blocks of both."""

    spec: GradientSpec
    tile: WorkgroupTile
    columns: TransposedValues
    place: Value

    @classmethod
    def of(cls, spec: GradientSpec, frame: Frame, tokens: Tokens) -> TwoImages:
        """Reserve both."""
        values = TransposedValues.of(
            frame,
            row_steps(frame, spec.tile_rows),
            columns=spec.head_size,
            slots=1,
            rows=Strided(tokens.pitch, constant(0, I32)),
        )
        tile = WorkgroupTile.allocate(frame.element, spec.tile_rows, values.kept.columns, frame.padding)
        row, column = values.kept.first_place()
        return cls(spec, tile, values, row * tile.pitch + column)

    def loads(self, tokens: Tokens, first: Value, head: Value, loaded: list[Value]) -> list[Job]:
        """As `Streamed` says."""
        return self.columns.loads(lambda: tokens.view(first, self.spec.tile_rows, head), None, loaded)

    def row_stores(self, slot: Value, loaded: Many[Value]) -> list[Job]:
        """As `Streamed` says."""
        kept = self.columns.kept

        def store(index: int) -> Job:
            row, column = kept.apart(*divmod(index, kept.width))

            def job() -> None:
                place = self.place + slot
                self.tile.store(place, loaded[index], kept.width, row=row, column=column, scope=STAGED)

            return job

        return [store(index) for index in range(kept.pieces * kept.width)]

    def column_stores(self, slot: Value, loaded: Many[Value]) -> list[Job]:
        """As `Streamed` says."""
        return self.columns.stores(slot, loaded)


@attrs.frozen(eq=False)
class Rings:
    """The slots of both images: `columns` None where rows are read as columns; and what a round does with them."""

    rows: Slots
    columns: Slots | None
    row_rotation: Rotation
    column_rotation: Rotation

    @classmethod
    def of(cls, spec: GradientSpec, streamed: Many[Streamed]) -> Rings:
        """Return the slots that all tensors have in common."""
        one = transposing()
        pitches = {each.tile.pitch for each in streamed}
        assert len(pitches) == 1
        rows = Slots(begin=constant(0, I32), count=2 if one else 1, elements=spec.tile_rows * pitches.pop())
        columns = None if one else next(each.columns.slots for each in streamed if each.columns is not None)
        row_rotation = Rotation(slots=rows.count, reads=(0, 1), writes=(1,), meetings=1 if one else 2)
        return cls(rows, columns, row_rotation, Rotation(slots=1, reads=(0,), writes=(0,), meetings=2))


def transposing() -> bool:
    """Return whether the arch reads columns of rows."""
    return op_in_role("transpose_read_16") is not None


def streamed_of(spec: GradientSpec, frame: Frame, tokens: Tokens, *, both: bool) -> Streamed:
    """Reserve the ring of a tensor, whose columns are read if `both`."""
    if transposing():
        return OneImage.of(spec, frame, tokens, 2, both=both)
    return TwoImages.of(spec, frame, tokens) if both else OneImage.of(spec, frame, tokens, 1, both=False)
