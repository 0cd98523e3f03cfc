"""Which tiles of a sequence each segment has: as many each, of those that some query sees, counted by its own length.

A segment that has none comes behind all that have some, so that what joins segments knows how many there are.
"""

from __future__ import annotations

import attrs

from kinfolk.ir.builder import constant
from kinfolk.ir.ops import arithmetic, convert, memory
from kinfolk.ir.types import I32, I64
from kinfolk.ir.value import Value


@attrs.frozen(eq=False)
class Sequence:
    """Its first query token and how many it has; its keys, `length` of them. All equal on all lanes.

    Offsets that fall or name rows that the query does not have make a sequence without queries. No sequence has more
    than `max_seqlen_q` queries or `max_seqlen_k` keys, whatever is said.
    """

    token: Value
    queries: Value
    length: Value

    @classmethod
    def of(
        cls, number: Value, offsets: Value, lengths: Value, total_q: Value, max_seqlen_q: Value, max_seqlen_k: Value
    ) -> Sequence:
        """Read where sequence `number` begins, and its length."""
        zero = constant(0, I32)
        begin = memory.load(memory.offset(offsets, number), invariant=True)
        end = memory.load(memory.offset(offsets, number + 1), invariant=True)
        said = memory.load(memory.offset(lengths, number), invariant=True)
        exist = (begin >= 0) & (end <= total_q) & (end > begin)
        first = arithmetic.smin(arithmetic.smax(begin, zero), total_q)
        last = arithmetic.smin(arithmetic.smax(end, first), total_q)
        count = arithmetic.smax(arithmetic.smin(last - first, max_seqlen_q), zero)
        queries = arithmetic.select(exist, count, zero)
        return cls(first, queries, arithmetic.smin(arithmetic.smax(said, zero), max_seqlen_k))

    def seen(self, query: Value, causal: Value) -> Value:
        """Return how many keys a query sees, those before its window included."""
        so_far = arithmetic.smin(
            arithmetic.smax(query + (self.length - self.queries + 1), constant(0, I32)), self.length
        )
        return arithmetic.select(causal.eq(1), so_far, self.length)

    def before(self, query: Value, window_left: Value) -> Value:
        """Return how many keys come before the window of a query."""
        first = query + (self.length - self.queries) - window_left
        return arithmetic.smin(arithmetic.smax(first, constant(0, I32)), self.length)


@attrs.frozen(eq=False)
class Division:
    """`tiles` tiles from tile `first` of the sequence on, `each` of them a segment."""

    first: Value
    tiles: Value
    each: Value

    @classmethod
    def of(cls, sequence: Sequence, num_segments: Value, window_left: Value, *, tile_keys: int, waves: int) -> Division:
        """Divide what the sequence's queries see: segments in which all waves have as many tiles, but for the last."""
        zero = constant(0, I32)
        first = sequence.before(zero, window_left) // tile_keys
        tiles = arithmetic.smax((sequence.length + (tile_keys - 1)) // tile_keys - first, zero)
        turns = (tiles + (waves * num_segments - 1)) // (waves * num_segments)
        return cls(first, tiles, turns * waves)

    def segment(self, number: Value) -> tuple[Value, Value]:
        """Return the first tile of a segment and the one behind its last, counted from `first`."""
        begin = convert.trunc(arithmetic.smin(wide(number) * wide(self.each), wide(self.tiles)), to=I32)
        return begin, arithmetic.smin(begin + self.each, self.tiles)

    def used(self) -> Value:
        """Return how many segments have tiles."""
        each = arithmetic.smax(self.each, constant(1, I32))
        return (self.tiles + (each - 1)) // each


def wide(number: Value) -> Value:
    """Return a number in 64 bits."""
    return convert.sext(number, to=I64)
