"""Attention over whole rows, a block of one head's queries at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from kinfolk.ir import build_kernel
from kinfolk.ir.ops import control
from kinfolk.ir.value import Kernel, Value
from kinfolk.tile.attention.rows import Strided
from kinfolk_attention_fwd.attention import Arguments, Attention, frame_of
from kinfolk_attention_fwd.dense.feed import RowFeed
from kinfolk_attention_fwd.dense.sequence import RowSequence
from kinfolk_attention_fwd.queries import Queries

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


def emit_dense(spec: AttentionDenseSpec, arch: Arch) -> Kernel:
    """Build the kernel of `spec`: a workgroup for a head, a block of queries and a sequence."""
    frame = frame_of(spec, arch)
    names = [parameter.name for parameter in spec.parameters()]

    def body(*parameters: Value) -> None:
        arguments = DenseArguments(**dict(zip(names, parameters, strict=True)))
        queries = Queries.of(spec, arguments, frame, lambda: RowSequence.of(arguments))
        rows = Strided(arguments.num_kv_heads * spec.head_size_v, queries.kv_head * spec.head_size_v)
        attention = Attention.of(spec, queries, rows, lambda values: RowFeed.of(spec, arguments, queries, values))

        def attend() -> tuple[()]:
            attention.run()
            return ()

        control.if_else(queries.exist, attend)

    return build_kernel(
        spec.symbol(), spec.parameters(), arch=arch, block=frame.threads, attributes=spec.attributes, body=body
    )
