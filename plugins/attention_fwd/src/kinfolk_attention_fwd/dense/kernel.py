"""Attention over whole rows, a block of one head's queries at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from kinfolk.ir import build_kernel
from kinfolk.ir.ops import control, lanes
from kinfolk.ir.value import Kernel, Value
from kinfolk.tile.attention.rows import Strided
from kinfolk.tile.items import walk_items
from kinfolk_attention_fwd.attention import Arguments, Attention, frame_of
from kinfolk_attention_fwd.dense.feed import RowFeed
from kinfolk_attention_fwd.dense.sequence import RowSequence
from kinfolk_attention_fwd.dense.work import Item
from kinfolk_attention_fwd.queries import Queries, Work

if TYPE_CHECKING:
    from kinfolk.arch import Arch
    from kinfolk_attention_fwd.dense.spec import AttentionDenseSpec


@attrs.frozen(eq=False, kw_only=True)
class DenseArguments(Arguments):
    """The kernel's parameters as values, by name."""

    cu_seqlens_q: Value
    cu_seqlens_k: Value
    varlen: Value
    total_q: Value
    total_k: Value
    max_seqlen_q: Value
    max_seqlen_k: Value
    lse_heads: Value
    lse_row: Value
    num_seqs: Value | None = None
    num_workgroups: Value | None = None
    rounds: Value | None = None


def emit_dense(spec: AttentionDenseSpec, arch: Arch) -> Kernel:
    """Build the kernel of `spec`: a workgroup for a head, a block and a sequence, or some for all."""
    frame = frame_of(spec, arch)
    names = [parameter.name for parameter in spec.parameters()]

    def body(*parameters: Value) -> None:
        arguments = DenseArguments(**dict(zip(names, parameters, strict=True)))
        if not spec.persistent:
            attend(arguments, Item.of_grid(spec, arguments).work(spec, arguments), None)
            return
        num_seqs, workgroups, rounds = arguments.num_seqs, arguments.num_workgroups, arguments.rounds
        assert num_seqs is not None and workgroups is not None and rounds is not None
        step = Item.of(workgroups, arguments)

        def done(item: Item) -> Item:
            attend(arguments, item.work(spec, arguments), item.sequence < num_seqs)
            return item.later(step, spec, arguments)

        walk_items(rounds, Item.of(lanes.block_id(axis=0, below=spec.most_workgroups), arguments), done)

    def attend(arguments: DenseArguments, work: Work, there_is: Value | None) -> None:
        queries = Queries.of(spec, arguments, frame, lambda: RowSequence.of(arguments, work.sequence), work)
        rows = Strided(arguments.num_kv_heads * spec.head_size_v, queries.kv_head * spec.head_size_v)
        attention = Attention.of(spec, queries, rows, lambda values: RowFeed.of(spec, arguments, queries, values))

        def run() -> tuple[()]:
            attention.run()
            return ()

        control.if_else(queries.exist if there_is is None else queries.exist & there_is, run)

    return build_kernel(
        spec.symbol(), spec.parameters(), arch=arch, block=frame.threads, attributes=spec.attributes, body=body
    )
