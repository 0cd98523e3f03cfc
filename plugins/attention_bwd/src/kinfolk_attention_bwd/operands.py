"""The tensors of a request as a host passes them, from which the fields that they state are read."""

from __future__ import annotations

from typing import Final

from kinfolk.expr import field
from kinfolk.operand import Operand

_BATCH, _QUERIES, _KEYS = field("batch"), field("seqlen_q"), field("seqlen_k")
_HEADS, _KV_HEADS, _V_HEADS = field("num_heads"), field("num_kv_heads"), field("num_v_heads")
_WIDTH, _VALUE_WIDTH, _TYPE = field("head_size"), field("head_size_v"), field("dtype")
_OF_QUERIES, _OF_KEYS = (_BATCH, _QUERIES, _HEADS, _WIDTH), (_BATCH, _KEYS, _KV_HEADS, _WIDTH)
_OF_VALUES, _OF_OUTPUTS = (_BATCH, _KEYS, _V_HEADS, _VALUE_WIDTH), (_BATCH, _QUERIES, _HEADS, _VALUE_WIDTH)

OPERANDS: Final = (
    Operand(name="q", dtype=_TYPE, shape=_OF_QUERIES),
    Operand(name="k", dtype=_TYPE, shape=_OF_KEYS),
    Operand(name="v", dtype=_TYPE, shape=_OF_VALUES),
    Operand(name="o", dtype=_TYPE, shape=_OF_OUTPUTS),
    Operand(name="lse", dtype="f32", shape=(_BATCH, _HEADS, _QUERIES)),
    Operand(name="dout", dtype=_TYPE, shape=_OF_OUTPUTS),
    Operand(name="dq", dtype=_TYPE, shape=_OF_QUERIES, output=True),
    Operand(name="dk", dtype=_TYPE, shape=_OF_KEYS, output=True),
    Operand(name="dv", dtype=_TYPE, shape=_OF_VALUES, output=True),
)
