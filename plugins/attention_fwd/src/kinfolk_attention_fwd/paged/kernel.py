"""Attention over pages, a block of one head's queries at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from kinfolk.ir import build_kernel
from kinfolk.ir.ops import control
from kinfolk.ir.value import Kernel, Value
from kinfolk_attention_fwd.attention import Arguments, Attention, frame_of
from kinfolk_attention_fwd.paged.feed import PageFeed, rows_of
from kinfolk_attention_fwd.paged.gathered import RowFeed
from kinfolk_attention_fwd.paged.sequence import PackedSequence
from kinfolk_attention_fwd.paged.spec import AttentionGatheredSpec
from kinfolk_attention_fwd.paged.table import Census, table_of
from kinfolk_attention_fwd.queries import Queries

if TYPE_CHECKING:
    from kinfolk.arch import Arch
    from kinfolk_attention_fwd.paged.spec import AttentionPagedSpec


@attrs.frozen(eq=False, kw_only=True)
class PagedArguments(Arguments):
    """The kernel's parameters as values, by name."""

    cu_seqlens_q: Value
    seqused_k: Value
    block_table: Value
    status: Value
    total_q: Value
    max_seqlen_q: Value
    max_seqlen_k: Value
    block_table_stride: Value
    num_pages: Value
    page_shift: Value


def emit_paged(spec: AttentionPagedSpec, arch: Arch) -> Kernel:
    """Build the kernel of `spec`: a workgroup for a head, a block of queries and a sequence."""
    frame = frame_of(spec, arch)
    names = [parameter.name for parameter in spec.parameters()]

    def body(*parameters: Value) -> None:
        arguments = PagedArguments(**dict(zip(names, parameters, strict=True)))
        sequence = PackedSequence.of(arguments)
        queries = Queries.of(spec, arguments, frame, lambda: sequence)
        table = table_of(spec, arguments, queries, sequence.number)
        census = Census.of(spec, arguments, queries, table)
        if isinstance(spec, AttentionGatheredSpec):
            gathered = spec
            attention = Attention.of(
                spec, queries, None, lambda values: RowFeed.of(gathered, arguments, queries, table, census, values)
            )
        else:
            rows = rows_of(spec, arguments, queries, spec.head_size_v)
            attention = Attention.of(
                spec, queries, rows, lambda values: PageFeed.of(spec, arguments, queries, table, census, values)
            )

        def attend() -> tuple[()]:
            attention.run()
            return ()

        control.if_else(queries.exist, attend)

    return build_kernel(
        spec.symbol(), spec.parameters(), arch=arch, block=frame.threads, attributes=spec.attributes, body=body
    )
