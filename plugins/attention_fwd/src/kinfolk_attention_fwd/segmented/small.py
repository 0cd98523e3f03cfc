"""Small requests in whose scenarios mutants of the kernels over segments are run."""

from __future__ import annotations

import attrs

from kinfolk_attention_fwd.request import AttentionFwdRequest
from kinfolk_attention_fwd.segmented.limits import CODE


def mutation_requests() -> tuple[AttentionFwdRequest, ...]:
    """Return them: several segments and one, pages of one tile, of several and of few rows."""
    plain = AttentionFwdRequest(
        layout="paged",
        num_seqs=2,
        total_q=10,
        max_seqlen_q=5,
        max_seqlen_k=330,
        num_heads=8,
        num_kv_heads=2,
        head_size=128,
        head_size_v=128,
        page_size=64,
        num_pages=20,
        dtype="bf16",
        kv_dtype="bf16",
        causal=True,
        return_lse=True,
        scale=128**-0.5,
        num_seg=2,
        candidate=CODE,
    )
    capped = attrs.evolve(plain, causal=False, softcap=20.0, num_heads=6, alibi=True, sinks=True)
    one = attrs.evolve(plain, window_left=70, sinks=True, page_size=16, num_seg=1)
    small = attrs.evolve(one, head_size=64, head_size_v=64, scale=64**-0.5)
    rows = attrs.evolve(plain, page_size=2, num_pages=400)
    return (plain, capped, small, rows)
