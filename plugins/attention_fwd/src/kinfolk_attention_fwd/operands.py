"""The tensors of a request as a host passes them, from which the fields that they state are read."""

from __future__ import annotations

from typing import Final

from kinfolk.expr import all_of, eq, field
from kinfolk.operand import Operand

_SEQUENCES, _QUERIES, _KEYS = field("num_seqs"), field("max_seqlen_q"), field("max_seqlen_k")
_HEADS, _KV_HEADS = field("num_heads"), field("num_kv_heads")
_WIDTH, _VALUE_WIDTH = field("head_size"), field("head_size_v")
_DENSE: Final = eq(field("layout"), "dense")
_STATES_DENSE: Final = {"layout": "dense", "total_q": _SEQUENCES * _QUERIES, "page_size": 0, "num_pages": 0}

OPERANDS: Final = (
    Operand(name="q", dtype=field("dtype"), shape=(_SEQUENCES, _QUERIES, _HEADS, _WIDTH), states=_STATES_DENSE),
    Operand(name="k", dtype=field("kv_dtype"), shape=(_SEQUENCES, _KEYS, _KV_HEADS, _WIDTH)),
    Operand(name="v", dtype=field("kv_dtype"), shape=(_SEQUENCES, _KEYS, _KV_HEADS, _VALUE_WIDTH)),
    Operand(name="sink", dtype="f32", shape=(_HEADS,), states={"sinks": True}),
    Operand(name="alibi_slopes", dtype="f32", shape=(_HEADS,), states={"alibi": True}),
    Operand(
        name="out",
        dtype=field("dtype"),
        shape=(_SEQUENCES, _QUERIES, _HEADS, _VALUE_WIDTH),
        output=True,
        when=_DENSE,
    ),
    Operand(
        name="lse",
        dtype="f32",
        shape=(_SEQUENCES, _HEADS, _QUERIES),
        output=True,
        when=all_of(_DENSE, field("return_lse")),
    ),
)
