"""The tensors of a request, by its layout."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kinfolk.expr import field
from kinfolk.plan import Axis, Binding

if TYPE_CHECKING:
    from kinfolk_attention_fwd.request import AttentionFwdRequest

_SEQUENCES, _QUERIES, _KEYS = (Axis(field(name)) for name in ("num_seqs", "max_seqlen_q", "max_seqlen_k"))
_HEADS, _KV_HEADS = Axis(field("num_heads")), Axis(field("num_kv_heads"))
_WIDTH, _VALUE_WIDTH = Axis(field("head_size")), Axis(field("head_size_v"))
OUT_MEANS: Final = "weighted values of each query and head; 0 where it sees no keys"
LSE_MEANS: Final = "natural logarithm of the sum of exp(score); -inf where no key is seen and there is no sink"


def dense_bindings(request: AttentionFwdRequest) -> tuple[Binding, ...]:
    """Return the tensors of whole rows. LSE that is not asked for is a workspace: the kernel is the same."""

    def given(name: str, dtype: str, shape: tuple[Axis, ...], means: str) -> Binding:
        return Binding(name=name, role="input", dtype=dtype, shape=shape, alignment=16, access="read", means=means)

    asked = request.return_lse
    return (
        given("q", request.dtype, (_SEQUENCES, _QUERIES, _HEADS, _WIDTH), "queries"),
        given("k", request.kv_dtype, (_SEQUENCES, _KEYS, _KV_HEADS, _WIDTH), "keys"),
        given("v", request.kv_dtype, (_SEQUENCES, _KEYS, _KV_HEADS, _VALUE_WIDTH), "values"),
        Binding(
            name="out",
            role="output",
            dtype=request.dtype,
            shape=(_SEQUENCES, _QUERIES, _HEADS, _VALUE_WIDTH),
            alignment=16,
            access="write",
            means=OUT_MEANS,
        ),
        Binding(
            name="lse",
            role="output" if asked else "workspace",
            dtype="f32",
            shape=(_SEQUENCES, _HEADS, _QUERIES),
            alignment=4,
            access="write",
            means=LSE_MEANS,
        ),
    )


def outputs(request: AttentionFwdRequest) -> tuple[str, ...]:
    """Return the names of the outputs that are asked for."""
    return ("out", "lse") if request.return_lse else ("out",)
