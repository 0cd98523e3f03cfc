"""What a workgroup works on: rows of queries, and a segment of their sequence's keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from kinfolk.ir.builder import constant
from kinfolk.ir.ops import arithmetic, lanes
from kinfolk.ir.types import I32
from kinfolk.ir.value import Value
from kinfolk_attention_fwd.segmented.arguments import Arguments
from kinfolk_attention_fwd.segmented.division import Division, Sequence

if TYPE_CHECKING:
    from kinfolk_attention_fwd.segmented.spec import AttentionSegmentSpec


@attrs.frozen(eq=False)
class Work:
    """A row is a query head of a token: row r of head of keys h is head h * heads_per_kv + r % heads_per_kv of token
    r // heads_per_kv. The workgroup has those of `kv_head` from `first_row` on, the sequence `rows` of each head.

    Tiles before `first_tile` no query of the sequence sees. Its segment has tiles `begin` to below `end`. All are equal
    on all lanes.
    """

    spec: AttentionSegmentSpec
    arguments: Arguments
    number: Value
    sequence: Sequence
    kv_head: Value
    first_row: Value
    rows: Value
    segment: Value
    first_tile: Value
    begin: Value
    end: Value

    @classmethod
    def of(cls, spec: AttentionSegmentSpec, arguments: Arguments) -> Work:
        """Read the sequence and find the workgroup's part of it."""
        number, segment = lanes.block_id(axis=1), lanes.block_id(axis=2, below=spec.most_segments)
        block = lanes.block_id(axis=0)
        sequence = Sequence.of(
            number,
            arguments.cu_seqlens_q,
            arguments.seqused_k,
            arguments.total_q,
            arguments.max_seqlen_q,
            arguments.max_seqlen_k,
        )
        division = Division.of(
            sequence, arguments.num_segments, arguments.window_left, tile_keys=spec.tile_keys, waves=spec.waves
        )
        begin, end = division.segment(segment)
        rows = sequence.queries * arguments.heads_per_kv
        group = block // arguments.num_kv_heads
        first_row = arithmetic.smin(group, constant(spec.most_rows // spec.columns, I32)) * spec.columns
        return cls(
            spec=spec,
            arguments=arguments,
            number=number,
            sequence=sequence,
            kv_head=block % arguments.num_kv_heads,
            first_row=first_row,
            rows=rows,
            segment=segment,
            first_tile=division.first,
            begin=division.first + begin,
            end=division.first + end,
        )

    @property
    def has_rows(self) -> Value:
        """Whether the workgroup has any."""
        return self.first_row < self.rows

    @property
    def is_split(self) -> Value:
        """Whether there are several segments, so that another kernel has the last word."""
        return self.arguments.num_segments > 1

    @property
    def is_empty(self) -> Value:
        """Whether the segment has no key."""
        return self.begin >= self.end

    @property
    def counts_pages(self) -> Value:
        """Whether this workgroup says how many page ids are refused: of all that walk the segment, one."""
        return lanes.block_id(axis=0).eq(0)

    def token_of(self, row: Value) -> Value:
        """Return the token of a row, from the sequence's first on."""
        return row // self.arguments.heads_per_kv

    def head_of(self, row: Value) -> Value:
        """Return the query head of a row."""
        heads = self.arguments.heads_per_kv
        return self.kv_head * heads + row % heads

    def seen_by_all(self) -> Value:
        """Return how many keys every row sees, but for those before its window."""
        return self.sequence.seen(self.token_of(self.first_row), self.arguments.causal)

    def before_last(self) -> Value:
        """Return how many keys come before the window of the last row, whether the sequence has it or not."""
        last = self.first_row + (self.spec.columns - 1)
        return self.sequence.before(self.token_of(last), self.arguments.window_left)
