"""Attention of a block of one head's queries to tiles of keys, wherever these come from."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import attrs

from kinfolk.ir.builder import constant
from kinfolk.ir.ops import arithmetic
from kinfolk.ir.types import F32, SCALARS
from kinfolk.ir.value import Value
from kinfolk.tile.attention.ahead import ScoresAhead
from kinfolk.tile.attention.frame import Frame
from kinfolk.tile.attention.rows import Strided
from kinfolk.tile.attention.scores import TileScores, key_steps
from kinfolk.tile.attention.values import Values, values_of
from kinfolk.tile.fused_softmax import FusedSoftmax
from kinfolk.tile.layout import lanes_sharing, per_lane
from kinfolk.tile.softmax import LOWEST
from kinfolk_attention_fwd.bending import Bend, Slope, unit_scale
from kinfolk_attention_fwd.queries import Queries
from kinfolk_attention_fwd.scores import SeenKeys
from kinfolk_attention_fwd.sinks import with_sink

if TYPE_CHECKING:
    from kinfolk.arch import Arch
    from kinfolk_attention_fwd.spec import AttentionSpec
    from kinfolk_attention_fwd.tiles import TileFeed


@attrs.frozen(eq=False, kw_only=True)
class Arguments:
    """The parameters that every kernel has, as values, by name: those of `AttentionSpec`."""

    q: Value
    k: Value
    v: Value
    out: Value
    lse: Value
    scale: Value
    k_scale: Value
    v_scale: Value
    num_heads: Value
    num_kv_heads: Value
    heads_per_kv: Value
    causal: Value
    query_blocks: Value
    sink: Value
    sinks: Value
    softcap: Value | None = None
    alibi_slopes: Value | None = None
    num_slopes: Value | None = None
    window_left: Value | None = None


def frame_of(spec: AttentionSpec, arch: Arch) -> Frame:
    """Return the frame of a spec: the atom that contracts the most at once."""
    element = SCALARS[spec.dtype]
    return Frame(
        element,
        arch.matrix.find(m=spec.atom, n=spec.atom, a=spec.dtype),
        spec.vector_bytes // element.bytes,
        arch.wave_size,
        spec.waves * arch.wave_size,
        spec.row_padding_bytes // element.bytes,
    )


@attrs.frozen(eq=False)
class Attention:
    """The stages of a kernel and the values they share."""

    spec: AttentionSpec
    queries: Queries
    feed: TileFeed[Any]
    values: Values
    scores: TileScores
    softmax: FusedSoftmax
    bend: Bend | None

    @classmethod
    def of(
        cls, spec: AttentionSpec, queries: Queries, rows: Strided | None, feed_of: Callable[[Values], TileFeed[Any]]
    ) -> Attention:
        """Reserve workgroup memory and lay both products out; `rows` are those of values in global memory."""
        frame, arguments = queries.frame, queries.arguments
        values = values_of(
            frame,
            key_steps(frame, spec.tile_keys),
            tile_keys=spec.tile_keys,
            columns=spec.head_size_v,
            slots=spec.value_slots,
            rows=rows,
        )
        feed = feed_of(values)
        masks = lanes_sharing(per_lane(frame.atom.shape.c.columns, "the query of a score"))
        scale = arguments.scale * arguments.k_scale
        bent = arguments.softcap is not None or arguments.alibi_slopes is not None
        softmax = FusedSoftmax.of(unit_scale() if bent else scale, masks)
        scores = TileScores.of(spec, frame, softmax, feed.keys, spec.head_size)
        bend = Bend.of(scores, scale, arguments.softcap, Slope.of(spec, scores, queries))
        return cls(spec, queries, feed, values, scores, softmax, bend)

    def run(self) -> None:
        """Walk the tiles that a query of the workgroup sees, store the rows."""
        spec, queries = self.spec, self.queries
        query = queries.load(self.scores.contraction)
        seen = SeenKeys(spec, self.scores, queries.seen_by_lane(), queries.before_lane())
        count = (queries.seen_by_workgroup() + (spec.tile_keys - 1)) // spec.tile_keys
        mask = self.feed.mask(seen)
        rounds = ScoresAhead(spec, self.feed, self.values, self.scores, self.softmax, mask, query, self.bend)
        before = queries.before_workgroup()
        whole_begin = None if before is None else (before + (spec.tile_keys - 1)) // spec.tile_keys
        whole = self.feed.whole(queries.seen_by_all() // spec.tile_keys)
        last = rounds.walked(whole, count, whole_begin)
        inverse, lse = with_sink(queries.arguments, queries.head, *self.softmax.finish(last.row))
        # Of a row without keys the inverse is the largest finite number already.
        unit = arithmetic.fmin(inverse * queries.arguments.v_scale, constant(-LOWEST, F32))
        queries.store(self.values, last.output, unit, lse)
