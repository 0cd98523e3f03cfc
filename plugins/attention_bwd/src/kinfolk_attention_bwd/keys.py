"""Gradients of keys and values: a workgroup has some of one head, and meets the queries of all heads that read them.

So a gradient is summed by one workgroup, in one order.
"""

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
    from kinfolk_attention_bwd.spec import KeysSpec


def emit_keys(spec: KeysSpec, arch: Arch) -> Kernel:
    """Build the kernel of `spec`: a workgroup for a head of keys, some keys and a sequence."""
    return gradient_kernel(spec, arch, lambda frame, arguments: Keys.of(spec, frame, arguments).run())


@attrs.frozen(eq=False)
class Place:
    """A tile of queries, and a head, counted from the first that reads the workgroup's keys (i32)."""

    tile: Value
    head: Value


@attrs.frozen(eq=False)
class Keys:
    """Keys `first` on of head `kv_head` are the workgroup's; `rows` is the first row of a lane's products."""

    spec: KeysSpec
    frame: Frame
    arguments: Arguments
    kv_head: Value
    first: Value
    wave_first: Value
    tensors: tuple[Streamed, Streamed]
    first_row: Value
    key: Value

    @classmethod
    def of(cls, spec: KeysSpec, frame: Frame, arguments: Arguments) -> Keys:
        """Find the workgroup's keys, and reserve workgroup memory."""
        first = lanes.block_id(axis=1, below=MOST_ROWS // spec.rows) * spec.rows
        wave_first = first + lanes.wave_id() * spec.wave_rows
        shape = frame.atom.shape
        assert (shape.c.rows - shape.c.rows[:, :1] == range(shape.c.slots)).all()
        tokens = arguments.of_queries(arguments.q, spec)
        return cls(
            spec,
            frame,
            arguments,
            lanes.block_id(axis=0, below=MOST_HEADS),
            first,
            wave_first,
            (streamed_of(spec, frame, tokens, both=True), streamed_of(spec, frame, tokens, both=True)),
            lane_index(shape.c.rows[:, 0]),
            wave_first + lane_index(per_lane(shape.c.columns, "the key of a score")),
        )

    def run(self) -> None:
        """Walk the tiles of queries that see a key of the workgroup, store the rows."""
        spec, frame, arguments = self.spec, self.frame, self.arguments
        rows = [RowProducts.of(frame, each.tile, spec.head_size) for each in self.tensors]
        own = [
            products.load_own(tokens.view(self.wave_first, spec.wave_rows, self.kv_head), tokens.pitch, spec.blocks)
            for products, tokens in (
                (rows[0], arguments.of_keys(arguments.k, spec)),
                (rows[1], arguments.of_keys(arguments.v, spec)),
            )
        ]
        begin, whole, end = self._tiles()
        heads = arguments.heads_per_kv
        unmasked, count = (end - whole) * heads, (end - begin) * heads
        rounds = Rounds(
            spec,
            frame,
            Rings.of(spec, self.tensors),
            self.tensors,
            (rows[0], rows[1]),
            (own[0], own[1]),
            arguments.scale * LOG2_E,
            self,
            second_weighs=True,
        )
        runs = (
            Run(begin=constant(0, I32), end=unmasked, masked=False, unrolled=True),
            Run(begin=unmasked, end=count, masked=True),
        )
        values, keys = rounds.walked(Place(arithmetic.smax(end - 1, constant(0, I32)), constant(0, I32)), runs)
        assert arguments.dk is not None and arguments.dv is not None
        for tensor, columns, sums, factor in (
            (arguments.dv, self.tensors[1], values, None),
            (arguments.dk, self.tensors[0], keys, arguments.scale),
        ):
            tokens = arguments.of_keys(tensor, spec)
            view = tokens.view(self.wave_first, spec.wave_rows, self.kv_head)
            store_sums(frame, columns_of(columns), view, tokens.pitch, sums, factor)

    def _tiles(self) -> tuple[Value, Value, Value]:
        """Return the first tile in which a query sees a key of the workgroup, the first in which all see all of them,
        and the number of tiles.
        """
        arguments, size = self.arguments, self.spec.tile_rows
        count = (arguments.seqlen_q + (size - 1)) // size
        zero = constant(0, I32)
        last = arithmetic.smin(self.first + self.spec.rows, arguments.seqlen_k) - 1
        first_query = arithmetic.smax(self.first - arguments.ahead, zero)
        all_from = arithmetic.smax(last - arguments.ahead, zero)
        causal = arguments.causal.eq(1)
        begin = arithmetic.smin(arithmetic.select(causal, first_query, zero) // size, count)
        whole = (arithmetic.select(causal, all_from, zero) + (size - 1)) // size
        return begin, arithmetic.smin(arithmetic.smax(whole, begin), count), count

    def _head(self, place: Place) -> Value:
        return self.kv_head * self.arguments.heads_per_kv + place.head

    def after(self, place: Place) -> Place:
        """As `Meets` says: the heads take turns at a tile; the last tiles, which see all keys, come first."""
        zero, head = constant(0, I32), place.head + 1
        more = head < self.arguments.heads_per_kv
        tile = arithmetic.select(more, place.tile, arithmetic.smax(place.tile - 1, zero))
        return Place(lanes.uniform(tile), lanes.uniform(arithmetic.select(more, head, zero)))

    def loads(self, place: Place, loaded: tuple[list[Value], list[Value]]) -> list[Job]:
        """As `Meets` says."""
        spec, arguments = self.spec, self.arguments
        return [
            job
            for tensor, streamed, found in zip((arguments.q, arguments.dout), self.tensors, loaded, strict=True)
            for job in streamed.loads(
                arguments.of_queries(tensor, spec), place.tile * spec.tile_rows, self._head(place), found
            )
        ]

    def term_loads(self, place: Place, terms: list[Value]) -> list[Job]:
        """As `Meets` says: of each block two vectors, LSE and sum."""
        size, width = self.frame.atom.shape.m, self.frame.atom.shape.c.slots
        views: list[Value] = []

        def load(block: int, of: int) -> Job:
            def job() -> None:
                if not views:
                    arguments, first = self.arguments, place.tile * self.spec.tile_rows
                    for tensor in (arguments.minus_lse2, arguments.minus_sum):
                        views.append(arguments.terms(tensor).view(first, self.spec.tile_rows, self._head(place)))
                index = self.first_row + block * size if block else self.first_row
                terms.append(memory.view_load(views[of], index, count=width))

            return job

        return [load(block, of) for block in range(self.spec.tile_rows // size) for of in (0, 1)]

    def term(self, terms: Many[Value], block: int, own: int, slot: int) -> Value:
        """As `Meets` says."""
        return vector.extract(terms[2 * block], index=slot)

    def begin(self, terms: Many[Value], block: int, own: int) -> Value:
        """As `Meets` says."""
        return terms[2 * block + 1]

    def masked(self, scores: Many[Value], place: Place, block: int, own: int) -> list[Value]:
        """As `Meets` says: of a lane's key the queries before its own do not see it."""
        size = self.frame.atom.shape.m
        before = self.key - self.arguments.ahead - (place.tile * self.spec.tile_rows + self.first_row)
        before = before + own * size if own else before
        hidden = constant(float("-inf"), F32)
        return [
            arithmetic.select(constant(block * size + slot, I32) < before, hidden, score)
            for slot, score in enumerate(scores)
        ]
