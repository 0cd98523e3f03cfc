"""Small requests over pages, in whose scenarios mutants are run."""

from __future__ import annotations

import attrs

from kinfolk_attention_fwd.paged.limits import CODE
from kinfolk_attention_fwd.request import AttentionFwdRequest


def mutation_requests() -> tuple[AttentionFwdRequest, ...]:
    """Return them: more queries than a workgroup has in pages of two parts; few that see all keys, of which scores are
    capped, in pages of one; a window in pages of more than a tile, with slopes and sinks; capped scores in pages of few
    rows, with slopes and without.
    """
    plain = AttentionFwdRequest(
        layout="paged",
        num_seqs=2,
        total_q=290,
        max_seqlen_q=270,
        max_seqlen_k=330,
        num_heads=4,
        num_kv_heads=2,
        head_size=128,
        head_size_v=128,
        page_size=32,
        num_pages=24,
        dtype="bf16",
        kv_dtype="bf16",
        causal=True,
        return_lse=True,
        scale=128**-0.5,
        candidate=CODE,
    )
    few = attrs.evolve(plain, max_seqlen_q=40, total_q=60)
    return (
        plain,
        attrs.evolve(few, causal=False, softcap=20.0, page_size=16, num_pages=44),
        attrs.evolve(
            plain,
            window_left=70,
            alibi=True,
            sinks=True,
            head_size=64,
            head_size_v=64,
            scale=64**-0.5,
            page_size=128,
            num_pages=8,
        ),
        attrs.evolve(few, softcap=20.0, page_size=1, num_pages=800, alibi=True, sinks=True, window_left=40),
        attrs.evolve(few, softcap=20.0, page_size=4, num_pages=200),
    )
