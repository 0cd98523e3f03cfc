"""A lane's row of queries: loaded, and stored with what it gives."""

from __future__ import annotations

from collections.abc import Sequence as Many

import attrs

from kinfolk.ir.ops import control, convert, memory, vector
from kinfolk.ir.types import I32, ScalarType, VectorType
from kinfolk.ir.value import Value
from kinfolk.tile.lane_index import lane_index
from kinfolk.tile.layout import per_lane
from kinfolk.tile.paging import bounded
from kinfolk_attention_fwd.segmented.division import wide
from kinfolk_attention_fwd.segmented.frame import Frame
from kinfolk_attention_fwd.segmented.work import Work


@attrs.frozen(eq=False)
class Row:
    """A row, by its number among those of the sequence and head of keys, its token and its query head."""

    work: Work
    number: Value
    token: Value
    head: Value

    @classmethod
    def of(cls, work: Work, column: Value) -> Row:
        """Return row `column` of the workgroup."""
        number = work.first_row + column
        token = work.token_of(number)
        return cls(work, number, token, work.head_of(number))

    @property
    def exists(self) -> Value:
        """Whether the sequence has it."""
        return self.number < self.work.rows

    def place(self) -> Value:
        """Return the number (i64) of a row that exists among those of [tokens, heads]."""
        token = wide(self.work.sequence.token) + wide(self.token)
        return token * wide(self.work.arguments.num_heads) + wide(self.head)

    def place_in_lse(self) -> Value:
        """Return the number (i64) of a row that exists among those of [heads, tokens]."""
        token = wide(self.work.sequence.token) + wide(self.token)
        return wide(self.head) * wide(self.work.arguments.total_q) + token

    def segment(self) -> Value:
        """Return the number (i64) of a row that exists among those of [tokens, heads, segments]."""
        return self.place() * wide(self.work.arguments.num_segments) + wide(self.work.segment)


def load_queries(work: Work, frame: Frame) -> list[Value]:
    """Load a lane's row of queries as operands B; of a row that does not exist, 0.

    They are made opaque: they come before any key does, and nothing that is waited for later is among them.
    """
    spec, arguments = work.spec, work.arguments
    row = Row.of(work, lane_index(per_lane(frame.score.shape.b.columns, "the query of an element")))
    token = work.token_of(work.first_row)
    elements = arguments.num_heads * spec.head_size
    most = spec.columns  # tokens that rows of a workgroup are of
    left = bounded(work.sequence.queries - token, most)
    first = wide(work.sequence.token) + wide(token)
    view = memory.bound(memory.offset(arguments.q, first * wide(elements)), left * elements)
    within = bounded(row.token - token, most)
    first = lane_index(frame.first_read(frame.contraction.start_b))
    start, width = within * elements + row.head * spec.head_size + first, frame.contraction.width
    columns = [read * frame.read_step for read in range(frame.contraction.reads)]
    return [memory.view_load(view, start + column if column else start, count=width) for column in columns]


def kept(vectors: Many[Value]) -> list[Value]:
    """Return vectors in registers of their own from here on: they have come."""
    return [_kept(each) for each in vectors]


def _kept(value: Value) -> Value:
    words = words_of(value)
    assert isinstance(value.type, VectorType) and isinstance(words.type, VectorType)
    count = words.type.count
    return convert.bitcast(
        vector.pack(*(control.opaque(vector.extract(words, index=index)) for index in range(count))), to=value.type
    )


def words_of(value: Value) -> Value:
    """Return a vector as one of 32-bit words, of which registers are."""
    assert isinstance(value.type, VectorType)
    return convert.bitcast(value, to=VectorType(I32, value.type.bytes // I32.bytes))


def codes_of(words: Value, element: ScalarType) -> Value:
    """Return what a vector of words holds, as elements of a type."""
    assert isinstance(words.type, VectorType)
    return convert.bitcast(words, to=VectorType(element, words.type.bytes // element.bytes))
