"""The tensors of a request, by its layout."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kinfolk.contents import ContentCheck, Lengths, Offsets, PageIds
from kinfolk.expr import ceil_div, field
from kinfolk.plan import Axis, Binding

if TYPE_CHECKING:
    from kinfolk_attention_fwd.request import AttentionFwdRequest

_SEQUENCES, _QUERIES, _KEYS = (Axis(field(name)) for name in ("num_seqs", "max_seqlen_q", "max_seqlen_k"))
_TOKENS, _TOTAL_KEYS = Axis(field("total_q")), Axis(field("total_k"))
_PAGES, _ROWS = Axis(field("num_pages")), Axis(field("page_size"))
_HEADS, _KV_HEADS = Axis(field("num_heads")), Axis(field("num_kv_heads"))
_WIDTH, _VALUE_WIDTH = Axis(field("head_size")), Axis(field("head_size_v"))
NO_OFFSETS: Final = "no_offsets"
OUT_MEANS: Final = "weighted values of each query and head; 0 where it sees no keys"
LSE_MEANS: Final = "natural logarithm of the sum of exp(score); -inf where no key is seen and there is no sink"


def dense_bindings(request: AttentionFwdRequest) -> tuple[Binding, ...]:
    """Return the tensors of whole rows, all sequences alike. What the kernel can have beyond what is asked for is a
    workspace: LSE, and offsets, of which there are none.
    """
    return (
        _given("q", request.dtype, (_SEQUENCES, _QUERIES, _HEADS, _WIDTH), "queries"),
        _given("k", request.kv_dtype, (_SEQUENCES, _KEYS, _KV_HEADS, _WIDTH), "keys"),
        _given("v", request.kv_dtype, (_SEQUENCES, _KEYS, _KV_HEADS, _VALUE_WIDTH), "values"),
        *_of_heads(request),
        Binding(
            name=NO_OFFSETS,
            role="workspace",
            dtype="i32",
            shape=(Axis(0),),
            alignment=4,
            access="readwrite",
            means="nothing: where a sequence begins follows from its number",
        ),
        *_results(request, (_SEQUENCES, _QUERIES), (_SEQUENCES, _HEADS, _QUERIES)),
    )


def varlen_bindings(request: AttentionFwdRequest) -> tuple[Binding, ...]:
    """Return the tensors of whole rows, one sequence after the other, each from its offsets on; LSE likewise."""
    return (
        _given("q", request.dtype, (_TOKENS, _HEADS, _WIDTH), "queries"),
        _given("k", request.kv_dtype, (_TOTAL_KEYS, _KV_HEADS, _WIDTH), "keys"),
        _given("v", request.kv_dtype, (_TOTAL_KEYS, _KV_HEADS, _VALUE_WIDTH), "values"),
        _offsets("q", "queries"),
        _offsets("k", "keys"),
        *_of_heads(request),
        *_results(request, (_TOKENS,), (_HEADS, _TOKENS)),
    )


def paged_bindings(request: AttentionFwdRequest, *, sloped: bool) -> tuple[Binding, ...]:
    """Return the tensors of keys and values in pages, and of queries one sequence after the other; LSE likewise.
    `sloped`: the kernel takes slopes, of which there is a workspace of none where none are asked for.

    Keys are counted by `seqused_k`, a length a sequence, as servers keep them beside their page tables: offsets would
    be sums that each step makes anew and no kernel needs.
    """
    return (
        _given("q", request.dtype, (_TOKENS, _HEADS, _WIDTH), "queries"),
        _given("k", request.kv_dtype, (_PAGES, _ROWS, _KV_HEADS, _WIDTH), "keys of each page"),
        _given("v", request.kv_dtype, (_PAGES, _ROWS, _KV_HEADS, _VALUE_WIDTH), "values of each page"),
        _offsets("q", "queries"),
        _given("seqused_k", "i32", (_SEQUENCES,), "how many keys each sequence has, those of its queries included", 4),
        _given(
            "block_table",
            "i32",
            (
                Axis(field("num_seqs"), stride=None),
                Axis(ceil_div(field("max_seqlen_k"), field("page_size")), at_least=True),
            ),
            "page ids in order; slots past a sequence's last page are never read",
            4,
        ),
        *_of_heads(request),
        *([_NO_SLOPES] if sloped and not request.alibi else []),
        Binding(
            name="status",
            role="status",
            dtype="i32",
            shape=(Axis(1),),
            alignment=4,
            access="readwrite",
            means="how many page ids that are looked at were outside the cache; those contributed nothing",
        ),
        *_results(request, (_TOKENS,), (_HEADS, _TOKENS)),
    )


def _offsets_hold(rows: str) -> Offsets:
    """Return what offsets of queries or keys hold."""
    return Offsets(
        tensor=f"cu_seqlens_{rows}",
        count=field("num_seqs"),
        max_step=field(f"max_seqlen_{rows}"),
        last=field(f"total_{rows}"),
    )


VARLEN_CONTENTS: Final[tuple[ContentCheck, ...]] = (_offsets_hold("q"), _offsets_hold("k"))
"""What the index tensors of rows hold."""
PAGED_CONTENTS: Final[tuple[ContentCheck, ...]] = (
    _offsets_hold("q"),
    Lengths(tensor="seqused_k", count=field("num_seqs"), most=field("max_seqlen_k")),
    PageIds(table="block_table", lengths="seqused_k", page_size=field("page_size"), bound=field("num_pages")),
)
"""What the index tensors of pages hold."""


def _given(name: str, dtype: str, shape: tuple[Axis, ...], means: str, alignment: int = 16) -> Binding:
    return Binding(name=name, role="input", dtype=dtype, shape=shape, alignment=alignment, access="read", means=means)


def _offsets(rows: str, what: str) -> Binding:
    means = f"where each sequence's {what} begin, from 0 to total_{rows}"
    return _given(f"cu_seqlens_{rows}", "i32", (Axis(field("num_seqs") + 1),), means, 4)


def _of_heads(request: AttentionFwdRequest) -> tuple[Binding, ...]:
    """Return what each head has of its own, where it is asked for."""
    slopes = _given("alibi_slopes", "f32", (_HEADS,), "by how much a later key scores more, a head", 4)
    sinks = _given("sink", request.dtype, (_HEADS,), "a logit a head that adds no value", 2)
    return ((slopes,) if request.alibi else ()) + ((sinks,) if request.sinks else ())


_NO_SLOPES: Final = Binding(
    name="alibi_slopes",
    role="workspace",
    dtype="f32",
    shape=(Axis(0),),
    alignment=4,
    access="readwrite",
    means="no slopes",
)


def _results(
    request: AttentionFwdRequest, queries: tuple[Axis, ...], sums: tuple[Axis, ...]
) -> tuple[Binding, Binding]:
    """Return `out`, with heads and columns behind `queries`, and `lse`."""
    return (
        Binding(
            name="out",
            role="output",
            dtype=request.dtype,
            shape=(*queries, _HEADS, _VALUE_WIDTH),
            alignment=16,
            access="write",
            means=OUT_MEANS,
        ),
        Binding(
            name="lse",
            role="output" if request.return_lse else "workspace",
            dtype="f32",
            shape=sums,
            alignment=4,
            access="write",
            means=LSE_MEANS,
        ),
    )


def outputs(request: AttentionFwdRequest) -> tuple[str, ...]:
    """Return the names of the outputs that are asked for."""
    return ("out", "lse") if request.return_lse else ("out",)
