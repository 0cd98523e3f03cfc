"""The tensors of a request as a host passes them, from which the fields that they state are read."""

from __future__ import annotations

from typing import Final

from kinfolk.expr import ceil_div, field, not_
from kinfolk.operand import Operand

_TOKENS, _HEADS, _SEQUENCES = field("total_q"), field("num_heads"), field("num_seqs")
_LATENT, _ROPE, _NOPE, _WIDTH = field("kv_lora_rank"), field("rope_dim"), field("nope_dim"), field("v_dim")
_ABSORBED: Final = field("absorbed_query")
_PAGES, _PAGE = field("num_pages"), field("page_size")
_TYPE, _CACHE_TYPE = field("dtype"), field("kv_dtype")

OPERANDS: Final = (
    Operand(name="qa", dtype=_TYPE, shape=(_TOKENS, _HEADS, _LATENT + _ROPE), states={"absorbed_query": True}),
    Operand(name="q", dtype=_TYPE, shape=(_TOKENS, _HEADS, _NOPE + _ROPE), states={"absorbed_query": False}),
    Operand(name="w_ukv", dtype=_TYPE, shape=(_HEADS, _LATENT, _NOPE + _WIDTH)),
    Operand(name="c_kv", dtype=_CACHE_TYPE, shape=(_PAGES, _PAGE, _LATENT)),
    Operand(name="k_rope", dtype=_CACHE_TYPE, shape=(_PAGES, _PAGE, _ROPE)),
    Operand(name="cu_seqlens_q", dtype="i32", shape=(_SEQUENCES + 1,)),
    Operand(name="cu_seqlens_k", dtype="i32", shape=(_SEQUENCES + 1,)),
    Operand(name="block_table", dtype="i32", shape=(_SEQUENCES, ceil_div(field("max_seqlen_k"), _PAGE))),
    Operand(name="out", dtype=_TYPE, shape=(_TOKENS, _HEADS, _LATENT), output=True, when=_ABSORBED),
    Operand(name="out", dtype=_TYPE, shape=(_TOKENS, _HEADS, _WIDTH), output=True, when=not_(_ABSORBED)),
    Operand(name="lse", dtype="f32", shape=(_TOKENS, _HEADS), output=True),
)
