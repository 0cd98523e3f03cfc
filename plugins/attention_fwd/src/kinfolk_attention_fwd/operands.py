"""The tensors of a request as a host passes them, from which the fields that they state are read."""

from __future__ import annotations

from typing import Final

from kinfolk.expr import all_of, ceil_div, eq, field, ne
from kinfolk.operand import Operand

_SEQUENCES, _QUERIES, _KEYS = field("num_seqs"), field("max_seqlen_q"), field("max_seqlen_k")
_TOKENS, _TOTAL_KEYS = field("total_q"), field("total_k")
_PAGES, _ROWS = field("num_pages"), field("page_size")
_HEADS, _KV_HEADS = field("num_heads"), field("num_kv_heads")
_WIDTH, _VALUE_WIDTH = field("head_size"), field("head_size_v")
_TYPE, _CACHE_TYPE, _LSE = field("dtype"), field("kv_dtype"), field("return_lse")
_DENSE, _VARLEN, _PAGED = (eq(field("layout"), layout) for layout in ("dense", "varlen", "paged"))
_PACKED = ne(field("layout"), "dense")
_NO_PAGES: Final = {"page_size": 0, "num_pages": 0}
_STATES_DENSE: Final = {"layout": "dense", "total_q": _SEQUENCES * _QUERIES, "total_k": 0, **_NO_PAGES}
_STATES_VARLEN: Final = {"layout": "varlen", **_NO_PAGES}
_STATES_PAGED: Final = {"layout": "paged", "total_k": 0}

OPERANDS: Final = (
    Operand(name="q", dtype=_TYPE, shape=(_SEQUENCES, _QUERIES, _HEADS, _WIDTH), states=_STATES_DENSE),
    Operand(name="q", dtype=_TYPE, shape=(_TOKENS, _HEADS, _WIDTH)),
    Operand(name="k", dtype=_CACHE_TYPE, shape=(_SEQUENCES, _KEYS, _KV_HEADS, _WIDTH), when=_DENSE),
    Operand(name="k", dtype=_CACHE_TYPE, shape=(_TOTAL_KEYS, _KV_HEADS, _WIDTH), states=_STATES_VARLEN, when=_VARLEN),
    Operand(name="k", dtype=_CACHE_TYPE, shape=(_PAGES, _ROWS, _KV_HEADS, _WIDTH), when=_PAGED),
    Operand(name="v", dtype=_CACHE_TYPE, shape=(_SEQUENCES, _KEYS, _KV_HEADS, _VALUE_WIDTH), when=_DENSE),
    Operand(
        name="v", dtype=_CACHE_TYPE, shape=(_TOTAL_KEYS, _KV_HEADS, _VALUE_WIDTH), states=_STATES_VARLEN, when=_VARLEN
    ),
    Operand(name="v", dtype=_CACHE_TYPE, shape=(_PAGES, _ROWS, _KV_HEADS, _VALUE_WIDTH), when=_PAGED),
    Operand(name="cu_seqlens_q", dtype="i32", shape=(_SEQUENCES + 1,)),
    Operand(name="cu_seqlens_k", dtype="i32", shape=(_SEQUENCES + 1,), states=_STATES_VARLEN),
    Operand(name="seqused_k", dtype="i32", shape=(_SEQUENCES,), states=_STATES_PAGED),
    Operand(name="block_table", dtype="i32", shape=(_SEQUENCES, ceil_div(_KEYS, _ROWS)), states=_STATES_PAGED),
    Operand(name="alibi_slopes", dtype="f32", shape=(_HEADS,), states={"alibi": True}),
    Operand(name="sink", dtype=_TYPE, shape=(_HEADS,), states={"sinks": True}),
    Operand(name="out", dtype=_TYPE, shape=(_SEQUENCES, _QUERIES, _HEADS, _VALUE_WIDTH), output=True, when=_DENSE),
    Operand(name="out", dtype=_TYPE, shape=(_TOKENS, _HEADS, _VALUE_WIDTH), output=True, when=_PACKED),
    Operand(name="lse", dtype="f32", shape=(_SEQUENCES, _HEADS, _QUERIES), output=True, when=all_of(_DENSE, _LSE)),
    Operand(name="lse", dtype="f32", shape=(_HEADS, _TOKENS), output=True, when=all_of(_PACKED, _LSE)),
)
