"""Attention over whole rows, a block of one head's queries at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from kinfolk.ir import build_kernel
from kinfolk.ir.builder import constant
from kinfolk.ir.ops import arithmetic, control
from kinfolk.ir.types import F32, SCALARS
from kinfolk.ir.value import Kernel, Value
from kinfolk.tile.attention.ahead import ScoresAhead
from kinfolk.tile.attention.frame import Frame
from kinfolk.tile.attention.rows import Strided
from kinfolk.tile.attention.scores import TileScores, key_steps
from kinfolk.tile.attention.values import values_of
from kinfolk.tile.fused_softmax import FusedSoftmax
from kinfolk.tile.layout import lanes_sharing, per_lane
from kinfolk.tile.softmax import LOWEST
from kinfolk_attention_fwd.dense.feed import RowFeed
from kinfolk_attention_fwd.dense.queries import Queries
from kinfolk_attention_fwd.dense.scores import Cap, SeenKeys, unit_scale

if TYPE_CHECKING:
    from kinfolk.arch import Arch
    from kinfolk_attention_fwd.dense.spec import AttentionDenseSpec


@attrs.frozen(eq=False, kw_only=True)
class Arguments:
    """The kernel's parameters as values, by name."""

    q: Value
    k: Value
    v: Value
    out: Value
    lse: Value
    scale: Value
    k_scale: Value
    v_scale: Value
    seqlen_q: Value
    seqlen_k: Value
    num_heads: Value
    num_kv_heads: Value
    heads_per_kv: Value
    causal: Value
    query_blocks: Value
    softcap: Value | None = None
    window_left: Value | None = None


def frame_of(spec: AttentionDenseSpec, arch: Arch) -> Frame:
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


def emit_dense(spec: AttentionDenseSpec, arch: Arch) -> Kernel:
    """Build the kernel of `spec`: a workgroup for a head, a block of queries and a sequence."""
    frame = frame_of(spec, arch)
    names = [parameter.name for parameter in spec.parameters()]

    def body(*parameters: Value) -> None:
        arguments = Arguments(**dict(zip(names, parameters, strict=True)))
        attention = Attention.of(spec, arguments, Queries.of(spec, arguments, frame))

        def attend() -> tuple[()]:
            attention.run()
            return ()

        control.if_else(attention.queries.exist, attend)

    attributes = {"workgroups_per_cu": spec.workgroups_per_cu, "accumulators": "vgpr"}
    return build_kernel(
        spec.symbol(), spec.parameters(), arch=arch, block=frame.threads, attributes=attributes, body=body
    )


@attrs.frozen(eq=False)
class Attention:
    """The stages of the kernel and the values they share."""

    spec: AttentionDenseSpec
    queries: Queries
    feed: RowFeed
    scores: TileScores
    softmax: FusedSoftmax
    bend: Cap | None

    @classmethod
    def of(cls, spec: AttentionDenseSpec, arguments: Arguments, queries: Queries) -> Attention:
        """Reserve workgroup memory and lay both products out."""
        frame = queries.frame
        values = values_of(
            frame,
            key_steps(frame, spec.tile_keys),
            tile_keys=spec.tile_keys,
            columns=spec.head_size_v,
            slots=spec.value_slots,
            rows=Strided(arguments.num_kv_heads * spec.head_size_v, queries.kv_head * spec.head_size_v),
        )
        feed = RowFeed.of(spec, queries, frame, values)
        masks = lanes_sharing(per_lane(frame.atom.shape.c.columns, "the query of a score"))
        scale, cap = arguments.scale * arguments.k_scale, arguments.softcap
        softmax = FusedSoftmax.of(scale if cap is None else unit_scale(), masks)
        scores = TileScores.of(spec, frame, softmax, feed.keys, spec.head_size)
        return cls(spec, queries, feed, scores, softmax, None if cap is None else Cap.of(scores, scale, cap))

    def run(self) -> None:
        """Walk the tiles that a query of the workgroup sees, store the rows."""
        spec, queries, values = self.spec, self.queries, self.feed.values
        query = queries.load(self.scores.contraction)
        mask = SeenKeys(spec, self.scores, queries.seen_by_lane(), queries.before_lane())
        count = (queries.seen_by_workgroup() + (spec.tile_keys - 1)) // spec.tile_keys
        rounds = ScoresAhead(spec, self.feed, values, self.scores, self.softmax, mask, query, self.bend)
        before = queries.before_workgroup()
        whole_begin = None if before is None else (before + (spec.tile_keys - 1)) // spec.tile_keys
        last = rounds.walked(queries.seen_by_all() // spec.tile_keys, count, whole_begin)
        inverse, lse = self.softmax.finish(last.row)
        # Of a row without keys the inverse is the largest finite number already.
        unit = arithmetic.fmin(inverse * queries.arguments.v_scale, constant(-LOWEST, F32))
        queries.store(values, last.output, unit, lse)
