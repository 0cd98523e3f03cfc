"""The tensors of a request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kinfolk.expr import ceil_div, field
from kinfolk.plan import Axis, Binding
from kinfolk_attention_bwd.spec import ROW_GROUP

if TYPE_CHECKING:
    from kinfolk_attention_bwd.request import AttentionBwdRequest

ROWS_KEPT: Final = ceil_div(field("seqlen_q"), ROW_GROUP) * ROW_GROUP
_BATCH, _QUERIES, _KEYS = (Axis(field(name)) for name in ("batch", "seqlen_q", "seqlen_k"))
_HEADS, _KV_HEADS, _V_HEADS = (Axis(field(name)) for name in ("num_heads", "num_kv_heads", "num_v_heads"))
_WIDTH, _VALUE_WIDTH = Axis(field("head_size")), Axis(field("head_size_v"))
OUTPUTS: Final = ("dq", "dk", "dv")


def bindings(request: AttentionBwdRequest) -> tuple[Binding, ...]:
    """Return what is read, what is written, and what the first kernel leaves to the others."""
    of_queries, of_outputs = (_BATCH, _QUERIES, _HEADS, _WIDTH), (_BATCH, _QUERIES, _HEADS, _VALUE_WIDTH)
    of_keys, of_values = (_BATCH, _KEYS, _KV_HEADS, _WIDTH), (_BATCH, _KEYS, _V_HEADS, _VALUE_WIDTH)
    dtype = request.dtype
    return (
        _given("q", dtype, of_queries, "queries"),
        _given("k", dtype, of_keys, "keys"),
        _given("v", dtype, of_values, "values"),
        _given("o", dtype, of_outputs, "what the forward pass gave"),
        _given("lse", "f32", (_BATCH, _HEADS, _QUERIES), "natural logarithm of each row's sum of exp(score)", 4),
        _given("dout", dtype, of_outputs, "gradient by o"),
        _found("dq", dtype, of_queries, "gradient by queries; 0 where a query sees no keys"),
        _found("dk", dtype, of_keys, "gradient by keys, summed over the heads that read them; 0 where none sees one"),
        _found("dv", dtype, of_values, "gradient by values, likewise"),
        _kept("minus_lse2", "minus LSE in powers of 2; -inf of a row that sees nothing"),
        _kept("minus_sum", "minus the sum of o * dout"),
    )


def _given(name: str, dtype: str, shape: tuple[Axis, ...], means: str, alignment: int = 16) -> Binding:
    return Binding(name=name, role="input", dtype=dtype, shape=shape, alignment=alignment, access="read", means=means)


def _found(name: str, dtype: str, shape: tuple[Axis, ...], means: str) -> Binding:
    return Binding(name=name, role="output", dtype=dtype, shape=shape, alignment=16, access="write", means=means)


def _kept(name: str, means: str) -> Binding:
    shape = (_BATCH, _HEADS, Axis(ROWS_KEPT, called="rows kept"))
    return Binding(name=name, role="workspace", dtype="f32", shape=shape, alignment=16, access="readwrite", means=means)
