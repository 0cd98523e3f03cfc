"""The parameters of the segment kernel as values."""

from __future__ import annotations

import attrs

from kinfolk.ir.value import Value


@attrs.frozen(eq=False, kw_only=True)
class Arguments:
    """By name."""

    q: Value
    k: Value
    v: Value
    block_table: Value
    cu_seqlens_q: Value
    seqused_k: Value
    status: Value
    out: Value
    lse: Value
    sink: Value
    alibi_slopes: Value
    part_out: Value
    part_ml: Value
    scale: Value
    k_scale: Value
    v_scale: Value
    block_table_stride: Value
    num_pages: Value
    page_shift: Value
    total_q: Value
    max_seqlen_q: Value
    max_seqlen_k: Value
    num_kv_heads: Value
    heads_per_kv: Value
    num_heads: Value
    causal: Value
    num_segments: Value
    window_left: Value
    sinks: Value
    num_slopes: Value
    softcap: Value | None = None
