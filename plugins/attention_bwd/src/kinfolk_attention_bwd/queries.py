"""Gradients of queries: a workgroup has some of one head, and meets the keys and values that they see."""

from __future__ import annotations

from collections.abc import Sequence as Many
from typing import TYPE_CHECKING

import attrs

from kinfolk.ir.builder import constant
from kinfolk.ir.ops import arithmetic, lanes, memory, vector
from kinfolk.ir.types import F32, I32
from kinfolk.ir.value import Kernel, Value
from kinfolk.tile.attention.frame import Frame
from kinfolk.tile.lane_index import lane_index
from kinfolk.tile.layout import per_lane
from kinfolk.tile.runs import Run
from kinfolk.tile.softmax import LOG2_E
from kinfolk.tile.timeline import Job
from kinfolk_attention_bwd.arguments import Arguments
from kinfolk_attention_bwd.frames import gradient_kernel
from kinfolk_attention_bwd.products import RowProducts, store_sums
from kinfolk_attention_bwd.rounds import Rounds, columns_of
from kinfolk_attention_bwd.spec import MOST_HEADS, MOST_ROWS
from kinfolk_attention_bwd.streamed import Rings, Streamed, streamed_of

if TYPE_CHECKING:
    from kinfolk.arch import Arch
    from kinfolk_attention_bwd.spec import QueriesSpec


def emit_queries(spec: QueriesSpec, arch: Arch) -> Kernel:
    """Build the kernel of `spec`: a workgroup for a head, some queries and a sequence."""
    return gradient_kernel(spec, arch, lambda frame, arguments: Queries.of(spec, frame, arguments).run())


@attrs.frozen(eq=False)
class Queries:
    """Queries `first` on of a head are the workgroup's, which read head `kv_head` of keys and values; a lane's rows of
    products bring `terms`, two numbers a block, and see the first `seen` keys.
    """

    spec: QueriesSpec
    frame: Frame
    arguments: Arguments
    head: Value
    kv_head: Value
    first: Value
    wave_first: Value
    tensors: tuple[Streamed, Streamed]
    first_row: Value
    own_terms: list[tuple[Value, Value]]
    seen: list[Value]

    @classmethod
    def of(cls, spec: QueriesSpec, frame: Frame, arguments: Arguments) -> Queries:
        """Find the workgroup's queries, the last ones first, which see the most keys; and reserve workgroup memory."""
        number = lanes.block_id(axis=1, below=MOST_ROWS // spec.rows)
        assert arguments.row_blocks is not None
        first = arithmetic.smax(arguments.row_blocks - 1 - number, constant(0, I32)) * spec.rows
        wave_first = first + lanes.wave_id() * spec.wave_rows
        shape = frame.atom.shape
        assert (shape.c.rows - shape.c.rows[:, :1] == range(shape.c.slots)).all()
        tokens = arguments.of_keys(arguments.k, spec)
        head = lanes.block_id(axis=0, below=MOST_HEADS)
        query = lane_index(per_lane(shape.c.columns, "the query of a score"))
        views = [
            arguments.terms(each).view(wave_first, spec.wave_rows, head)
            for each in (arguments.minus_lse2, arguments.minus_sum)
        ]
        found: list[tuple[Value, Value]] = []
        for own in range(spec.blocks):
            place = query + own * shape.n if own else query
            found.append((memory.view_load(views[0], place), memory.view_load(views[1], place)))
        tensors = (streamed_of(spec, frame, tokens, both=True), streamed_of(spec, frame, tokens, both=False))
        seen = [_seen(arguments, wave_first + query + (own * shape.n + 1)) for own in range(spec.blocks)]
        first_row = lane_index(shape.c.rows[:, 0])
        kv_head = head // arguments.heads_per_kv
        return cls(spec, frame, arguments, head, kv_head, first, wave_first, tensors, first_row, found, seen)

    def run(self) -> None:
        """Walk the tiles of keys that a query of the workgroup sees, store the rows."""
        spec, frame, arguments = self.spec, self.frame, self.arguments
        rows = [RowProducts.of(frame, each.tile, spec.head_size) for each in self.tensors]
        own = [
            products.load_own(tokens.view(self.wave_first, spec.wave_rows, self.head), tokens.pitch, spec.blocks)
            for products, tokens in (
                (rows[0], arguments.of_queries(arguments.q, spec)),
                (rows[1], arguments.of_queries(arguments.dout, spec)),
            )
        ]
        last = arithmetic.smin(self.first + spec.rows, arguments.seqlen_q)
        count = (_seen(arguments, last) + (spec.tile_rows - 1)) // spec.tile_rows
        whole = _seen(arguments, self.first + 1) // spec.tile_rows
        rounds = Rounds(
            spec,
            frame,
            Rings.of(spec, self.tensors),
            self.tensors,
            (rows[0], rows[1]),
            (own[0], own[1]),
            arguments.scale * LOG2_E,
            self,
            second_weighs=False,
        )
        runs = (
            Run(begin=constant(0, I32), end=whole, masked=False, unrolled=True),
            Run(begin=whole, end=count, masked=True),
        )
        [sums] = rounds.walked(constant(0, I32), runs)
        assert arguments.dq is not None
        tokens = arguments.of_queries(arguments.dq, spec)
        view = tokens.view(self.wave_first, spec.wave_rows, self.head)
        store_sums(frame, columns_of(self.tensors[0]), view, tokens.pitch, sums, arguments.scale)

    def after(self, place: Value) -> Value:
        """As `Meets` says."""
        return place + 1

    def loads(self, place: Value, loaded: tuple[list[Value], list[Value]]) -> list[Job]:
        """As `Meets` says."""
        spec, arguments = self.spec, self.arguments
        return [
            job
            for tensor, streamed, found in zip((arguments.k, arguments.v), self.tensors, loaded, strict=True)
            for job in streamed.loads(arguments.of_keys(tensor, spec), place * spec.tile_rows, self.kv_head, found)
        ]

    def term_loads(self, place: Value, terms: list[Value]) -> list[Job]:
        """As `Meets` says: the wave's rows bring them."""
        return []

    def term(self, terms: Many[Value], block: int, own: int, slot: int) -> Value:
        """As `Meets` says."""
        return self.own_terms[own][0]

    def begin(self, terms: Many[Value], block: int, own: int) -> Value:
        """As `Meets` says."""
        return vector.splat(self.own_terms[own][1], count=self.frame.atom.shape.c.slots)

    def masked(self, scores: Many[Value], place: Value, block: int, own: int) -> list[Value]:
        """As `Meets` says: a lane's query sees the first `seen` keys."""
        first = block * self.frame.atom.shape.m
        left = self.seen[own] - (place * self.spec.tile_rows + self.first_row)
        hidden = constant(float("-inf"), F32)
        return [
            arithmetic.select(constant(first + slot, I32) < left, score, hidden) for slot, score in enumerate(scores)
        ]


def _seen(arguments: Arguments, number: Value) -> Value:
    """Return how many keys the first `number` queries see."""
    length = arguments.seqlen_k
    causal = arithmetic.smin(arithmetic.smax(number + arguments.ahead, constant(0, I32)), length)
    return arithmetic.select(arguments.causal.eq(1), causal, length)
