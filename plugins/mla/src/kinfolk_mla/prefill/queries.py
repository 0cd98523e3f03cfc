"""The queries of a wave: which keys they see, their fragments, and where their outputs go."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from kinfolk.ir.builder import constant
from kinfolk.ir.ops import arithmetic, control, lanes, memory
from kinfolk.ir.types import I32
from kinfolk.ir.value import Value
from kinfolk.tile.attention.frame import store_columns
from kinfolk.tile.contraction import Contraction
from kinfolk.tile.lane_index import lane_index
from kinfolk.tile.layout import Table, per_lane
from kinfolk.tile.paging import bounded
from kinfolk_mla.decode.sequence import wide
from kinfolk_mla.prefill.batch import Sequence

if TYPE_CHECKING:
    from collections.abc import Sequence as Many

    from kinfolk.tile.attention.values import Values
    from kinfolk_mla.prefill.attend import Arguments
    from kinfolk_mla.prefill.spec import MlaPrefillSpec


@attrs.frozen(eq=False)
class Queries:
    """A wave's queries of one head, the first of which is query `first` of the sequence; `workgroup_first` is the
    workgroup's. `ahead` is how many keys the sequence has beyond its `count` queries, negative where it has fewer.
    """

    spec: MlaPrefillSpec
    arguments: Arguments
    sequence: Sequence
    workgroup_first: Value
    first: Value
    count: Value
    ahead: Value

    @classmethod
    def of(cls, spec: MlaPrefillSpec, arguments: Arguments, sequence: Sequence) -> Queries:
        """Find the block: the last ones, which see the most keys, come first."""
        block = lanes.block_id(axis=1, below=spec.most_blocks)
        last = arithmetic.smax(arguments.query_blocks - 1 - block, constant(0, I32))
        first = last * spec.block
        count = sequence.queries()
        own = first + lanes.wave_id() * spec.atom
        return cls(spec, arguments, sequence, first, own, count, sequence.length - count)

    @property
    def exist(self) -> Value:
        """Whether the workgroup has a query."""
        return self.workgroup_first < self.count

    def seen_by_workgroup(self) -> Value:
        """Return how many keys the workgroup's last query sees, so that no other sees more."""
        return self._seen_by_last(self.workgroup_first, self.spec.block)

    def seen_by_all(self) -> Value:
        """Return how many keys every query of the workgroup sees."""
        return self._seen(self.workgroup_first + 1)

    def _seen_by_last(self, first: Value, count: int) -> Value:
        return self._seen(arithmetic.smin(first + count, self.count))

    def _seen(self, number: Value) -> Value:
        """Return how many keys a sequence's first `number` queries see."""
        causal = arithmetic.smin(arithmetic.smax(number + self.ahead, constant(0, I32)), self.sequence.length)
        return arithmetic.select(self.arguments.causal.eq(1), causal, self.sequence.length)

    def seen_by_lane(self) -> Value:
        """Return how many keys this lane's query sees, if it exists."""
        return self._seen(self.first + lane_index(self._places) + 1)

    @property
    def _places(self) -> Table:
        return per_lane(self.sequence.geometry.atom.shape.c.columns, "the query of a score")

    def load(self, contraction: Contraction) -> list[Value]:
        """Load this lane's query as operands B; of a query that does not exist, 0."""
        spec, columns = self.spec, self.sequence.geometry.atom.shape.b.columns
        view, row = self._rows(self.arguments.q, spec.key_width)
        place = lane_index(per_lane(columns, "the query of an element")) * row
        start = place + self.sequence.head * spec.key_width + lane_index(contraction.start_b)
        width = contraction.width
        return [memory.view_load(view, start + read * width, count=width) for read in range(contraction.reads)]

    def store(self, operand: Values, output: Many[Value], inverse: Value, lse: Value) -> None:
        """Write the rows of `out` and `lse` of the queries that exist."""
        spec, geometry = self.spec, self.sequence.geometry
        view, row = self._rows(self.arguments.out, spec.head_width)
        first, order = operand.columns_of_result()
        index = lane_index(self._places) * row + self.sequence.head * spec.head_width + lane_index(first)
        store_columns(view, index, order, geometry.element, output, inverse)
        sums, row = self._rows(self.arguments.lse, 1)

        def write() -> tuple[()]:
            memory.view_store(sums, lane_index(self._places) * row + self.sequence.head, lse)
            return ()

        control.if_else(lanes.lane_id() < spec.atom, write)

    def _rows(self, tensor: Value, width: int) -> tuple[Value, Value]:
        """Return the wave's rows [queries, heads, width] of a tensor, and how many elements a query has."""
        row = self.arguments.num_heads * width
        token = wide(self.sequence.token) + wide(self.first)
        count = bounded(self.count - self.first, self.spec.atom)
        return memory.bound(memory.offset(tensor, token * wide(row)), count * row), row
