"""The page table of a sequence, and whether all of its ids name a page."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from kinfolk.ir.builder import constant
from kinfolk.ir.ops import arithmetic, control, convert, lanes, memory
from kinfolk.ir.types import I32
from kinfolk.ir.value import Value
from kinfolk.tile.paging import PageTable, Parts
from kinfolk.tile.reduction import in_lane

if TYPE_CHECKING:
    from kinfolk_attention_fwd.paged.kernel import PagedArguments
    from kinfolk_attention_fwd.paged.spec import AttentionPagedSpec
    from kinfolk_attention_fwd.queries import Queries

AT_ONCE = 4
"""Loads of page ids that a thread has on their way when it looks through a table."""


def table_of(spec: AttentionPagedSpec, arguments: PagedArguments, queries: Queries, number: Value) -> PageTable:
    """Return the page table of sequence `number`, from the first tile on that is walked."""
    origin = queries.origin
    return PageTable.of_sequence(
        arguments.block_table,
        arguments.block_table_stride,
        number,
        length=queries.length,
        page_size=spec.part,
        num_pages=arguments.num_pages,
        parts=Parts(arguments.page_shift, None if origin is None else origin // spec.part),
    )


@attrs.frozen(eq=False)
class Census:
    """Looks through the ids of a sequence before its tiles are walked: those of the keys to come, on all threads.

    The first workgroup of a sequence, to which all come that some query sees, says how many ids name no page. `found`
    has a word a wave.
    """

    spec: AttentionPagedSpec
    arguments: PagedArguments
    queries: Queries
    table: PageTable
    found: Value

    @classmethod
    def of(cls, spec: AttentionPagedSpec, arguments: PagedArguments, queries: Queries, table: PageTable) -> Census:
        """Reserve workgroup memory in which waves tell each other what they found."""
        return cls(spec, arguments, queries, table, memory.allocate(I32, spec.waves))

    def all_there(self) -> Value:
        """Return whether every id names a page (i1, the same in the workgroup), for which the waves meet."""
        tells = self.queries.head.eq(0) & self.queries.workgroup_first.eq(0)
        missing = self._missing()

        def tell() -> tuple[()]:
            memory.atomic_add(self.arguments.status, missing)
            return ()

        control.if_else(tells & (missing > 0), tell, cold=True)
        some = convert.zext(lanes.any_lane(missing > 0), to=I32)

        def note() -> tuple[()]:
            memory.workgroup_store(self.found, lanes.wave_id(), some)
            return ()

        control.if_else(lanes.lane_id().eq(0), note)
        control.barrier()
        words = [memory.workgroup_load(self.found, constant(wave, I32)) for wave in range(self.spec.waves)]
        return in_lane(words, lambda one, other: one | other).eq(0)

    def _missing(self) -> Value:
        """Return how many of the ids that this thread looked at name no page."""
        parts, zero = self.table.parts, constant(0, I32)
        assert parts is not None
        end = parts.slots(self.table.tiles)
        before = self.queries.before_all()
        begin = arithmetic.umin(parts.slot(zero if before is None else before // self.spec.part), end)
        threads = self.spec.waves * self.spec.lanes

        def look(first: Value, found: tuple[Value, ...]) -> list[Value]:
            slots = [first + lanes.thread_id() + number * threads for number in range(AT_ONCE)]
            ids = [memory.view_load(self.table.view, slot) for slot in slots]
            count = found[0]
            for slot, identifier in zip(slots, ids, strict=True):
                outside = arithmetic.icmp(identifier, self.arguments.num_pages, predicate="uge")
                count = count + convert.zext(outside & (slot < end), to=I32)
            return [count]

        (count,) = control.for_range(begin, end, AT_ONCE * threads, [zero], look)
        return count
