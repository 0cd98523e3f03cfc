"""What a workgroup works on: a block of one head's queries of a sequence, and which keys they see."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import attrs

from kinfolk.ir.builder import constant
from kinfolk.ir.ops import arithmetic, control, lanes, memory
from kinfolk.ir.types import I32
from kinfolk.ir.value import Value
from kinfolk.tile.attention.frame import Frame, store_columns
from kinfolk.tile.contraction import Contraction
from kinfolk.tile.lane_index import lane_index
from kinfolk.tile.layout import Table, per_lane
from kinfolk.tile.paging import bounded
from kinfolk_attention_fwd.sequence import Sequence, wide

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from collections.abc import Sequence as Many

    from kinfolk.tile.attention.values import Values
    from kinfolk_attention_fwd.attention import Arguments
    from kinfolk_attention_fwd.spec import AttentionSpec

Column = tuple[int, int, int]
"""How far it is from a lane's first, and in which accumulator and slot."""


@attrs.frozen(eq=False)
class Work:
    """Which block of queries, counted from the last one of the longest sequence, of which head and sequence (i32)."""

    head: Value
    kv_head: Value
    sequence: Value
    block: Value


@attrs.frozen(eq=False)
class Queries:
    """Queries of head `head` and of `sequence`: the workgroup's from `workgroup_first` on, a
    wave's from `first` on. They attend to head `kv_head` of keys and values.

    Keys are counted from `origin`, where that is not None: the first one of the first tile in a window of the
    workgroup, so that the tiles before it are not walked.
    """

    spec: AttentionSpec
    arguments: Arguments
    frame: Frame
    sequence: Sequence
    head: Value
    kv_head: Value
    workgroup_first: Value
    first: Value
    origin: Value | None

    @classmethod
    def of(
        cls,
        spec: AttentionSpec,
        arguments: Arguments,
        frame: Frame,
        sequence_of: Callable[[], Sequence],
        work: Work | None = None,
    ) -> Queries:
        """Find the block: the last ones, which see the most keys, come first. `sequence_of` finds the sequence. Without
        `work` the grid's first axis are heads, its second blocks.
        """
        block = lanes.block_id(axis=1, below=spec.most_rows // spec.block) if work is None else work.block
        last = arithmetic.smax(arguments.query_blocks - 1 - block, constant(0, I32))
        workgroup_first = last * spec.block
        first = workgroup_first + lanes.wave_id() * spec.atom
        head = lanes.block_id(axis=0, below=spec.most_heads) if work is None else work.head
        kv_head = head // arguments.heads_per_kv if work is None else work.kv_head
        whole = cls(spec, arguments, frame, sequence_of(), head, kv_head, workgroup_first, first, origin=None)
        before = whole._before(workgroup_first)
        return whole if before is None else attrs.evolve(whole, origin=before // spec.tile_keys * spec.tile_keys)

    @property
    def exist(self) -> Value:
        """Whether the workgroup has a query."""
        return self.workgroup_first < self.sequence.queries

    def seen_by_workgroup(self) -> Value:
        """Return how many keys the workgroup's last query sees, so that no other sees more."""
        return self._seen(arithmetic.smin(self.workgroup_first + self.spec.block, self.sequence.queries))

    def seen_by_all(self) -> Value:
        """Return how many keys every query of the workgroup sees."""
        return self._seen(self.workgroup_first + 1)

    def seen_by_lane(self) -> Value:
        """Return how many keys this lane's query sees, if it exists."""
        return self._seen(self.first + lane_index(self._places) + 1)

    def _seen(self, number: Value) -> Value:
        """Return how many keys the first `number` queries see."""
        length, ahead = self.sequence.length, self.sequence.length - self.sequence.queries
        causal = arithmetic.smin(arithmetic.smax(number + ahead, constant(0, I32)), length)
        return self._counted(arithmetic.select(self.arguments.causal.eq(1), causal, length))

    def before_all(self) -> Value | None:
        """Return how many keys come before the windows of all queries of the workgroup; None where there is none."""
        return self._before(self.workgroup_first)

    def before_workgroup(self) -> Value | None:
        """Return how many keys come before the window of some query of the workgroup; None where there is none."""
        end = arithmetic.smin(self.workgroup_first + self.spec.block, self.sequence.queries)
        return self._before(end - 1)

    def before_lane(self) -> Value | None:
        """Return how many keys come before the window of this lane's query, if it exists; None where there is none."""
        return self._before(self.first + lane_index(self._places))

    def _before(self, number: Value) -> Value | None:
        """Return how many keys come before the window of a query."""
        window = self.arguments.window_left
        if window is None:
            return None
        length = self.sequence.length
        first = number + (length - self.sequence.queries) - window
        return self._counted(arithmetic.smin(arithmetic.smax(first, constant(0, I32)), length))

    @property
    def length(self) -> Value:
        """How many keys the sequence has, from `origin` on."""
        return self._counted(self.sequence.length)

    def _counted(self, keys: Value) -> Value:
        """Return how many of the sequence's first keys come after `origin`."""
        return keys if self.origin is None else arithmetic.smax(keys - self.origin, constant(0, I32))

    @property
    def _places(self) -> Table:
        return per_lane(self.frame.atom.shape.c.columns, "the query of a score")

    def load(self, contraction: Contraction) -> list[Value]:
        """Load this lane's query as operands B; of a query that does not exist, 0."""
        view, row = self._rows(self.arguments.q, self.spec.head_size)
        place = lane_index(per_lane(self.frame.atom.shape.b.columns, "the query of an element")) * row
        start = place + self.head * self.spec.head_size + lane_index(contraction.start_b)
        width = contraction.width
        return [memory.view_load(view, start + read * width, count=width) for read in range(contraction.reads)]

    def store(self, values: Values, output: Many[Value], inverse: Value, lse: Value) -> None:
        """Write the rows of `out` and `lse` of the queries that exist."""
        view, row = self._rows(self.arguments.out, self.spec.head_size_v)
        first, order = values.columns_of_result()
        index = lane_index(self._places) * row + self.head * self.spec.head_size_v + lane_index(first)
        for offset, everywhere, columns in self._columns(first, order):
            place = index
            if not everywhere:
                exist = lane_index(first) < self.spec.head_size_v - offset
                place = arithmetic.select(exist, index, row * self.spec.atom)  # past the view: such stores vanish
            store_columns(view, place, columns, self.frame.element, output, inverse)

        def write() -> tuple[()]:
            memory.view_store(self._sums(), lane_index(self._places), lse)
            return ()

        control.if_else(lanes.lane_id() < self.spec.atom, write)

    def _columns(self, first: Table, order: Many[Column]) -> Iterator[tuple[int, bool, Many[Column]]]:
        """Yield the columns of the result that lanes have, those together that the same lanes have: how far the first
        is from a lane's own, and whether all have them. Of a last fragment that is wider, lanes have some or none.
        """

        def lanes_with(column: Column) -> tuple[bool, ...]:
            return tuple((first + column[0] < self.spec.head_size_v).tolist())

        for exist, found in itertools.groupby(order, key=lanes_with):
            columns = tuple(found)
            if any(exist):
                yield columns[0][0], all(exist), columns

    def _rows(self, tensor: Value, width: int) -> tuple[Value, Value]:
        """Return the wave's rows [queries, heads, width] of a tensor, and how many elements a query has."""
        row = self.arguments.num_heads * width
        token = self.sequence.first_query() + wide(self._own)
        return memory.bound(memory.offset(tensor, token * wide(row)), self._count * row), row

    def _sums(self) -> Value:
        """Return the wave's part of `lse`."""
        place = self.sequence.first_sum(self.head) + wide(self._own)
        return memory.bound(memory.offset(self.arguments.lse, place), self._count)

    @property
    def _own(self) -> Value:
        """The wave's first query, or where there would be one more."""
        return arithmetic.smin(self.first, self.sequence.queries)

    @property
    def _count(self) -> Value:
        return bounded(self.sequence.queries - self.first, self.spec.atom)
