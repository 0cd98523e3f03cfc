"""What a caller asks of forward attention, with nothing about how it is computed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar, Final

import attrs

from kinfolk.expr import Expr, all_of, ceil_div, eq, field, ne, select
from kinfolk.fields import ExactBool, ExactFloat, ExactInt, ExactStr, OneOf, Optional, launch_field, means
from kinfolk.gradient import Gradient
from kinfolk.ir.types import FLOAT_TYPES
from kinfolk.narrow import SPELLINGS
from kinfolk.operand import Operand
from kinfolk.request import Relation, Request, heads_divide
from kinfolk_attention_fwd.gradient import GRADIENT
from kinfolk_attention_fwd.operands import OPERANDS

LAYOUTS: Final = ("dense", "varlen", "paged")
CACHE_SCALE: Final = ExactFloat(minimum=2.0**-32, maximum=2.0**32)
"""Factors of a cache: far from what any quantisation chooses on both sides."""
SCALE: Final = ExactFloat(minimum=2.0**-93, maximum=2.0**10)
"""Smaller ones, multiplied by any `CACHE_SCALE` and log2 e, are not normal as f32. Scores are scaled before anything is
added to them, and kept as f32: with none larger, and any `CACHE_SCALE`, scores of products up to 2^85 are finite, as
all of f16 are.
"""
SOFTCAP: Final = ExactFloat(minimum=0.0, maximum=2.0**20)

_LEAST, _MOST = field("max_seqlen_q"), field("num_seqs") * field("max_seqlen_q")
_LEAST_KEYS, _MOST_KEYS = field("max_seqlen_k"), field("num_seqs") * field("max_seqlen_k")
_DENSE: Final = eq(field("layout"), "dense")
_VARLEN: Final = eq(field("layout"), "varlen")
_PAGED: Final = eq(field("layout"), "paged")


def _total_fits(total: Expr, most_of_one: Expr) -> Expr:
    """Return whether sequences can have so many rows, one of them the most; divided, so that no batch is too large."""
    several = ceil_div(total, most_of_one) <= field("num_seqs")
    return all_of(total >= most_of_one, select(most_of_one > 0, several, eq(total, 0)))


HEADS_FIT: Final = heads_divide("num_heads", "num_kv_heads", "keys and values")
QUERIES_FIT: Final = Relation(
    field="total_q",
    condition=all_of(
        _total_fits(field("total_q"), _LEAST),
        select(all_of(_DENSE, field("total_q") >= _LEAST), eq(field("total_q"), _MOST), True),
    ),
    rule="from max_seqlen_q = {least} to num_seqs * max_seqlen_q = {most}, which it is where layout is dense",
    remedy="Pass {nearest}.",
    numbers={
        "least": _LEAST,
        "most": _MOST,
        "nearest": select(all_of(ne(field("layout"), "dense"), field("total_q") < _LEAST), _LEAST, _MOST),
    },
)
"""No batch has other counts: each sequence has at most `max_seqlen_q` queries, and one of them has that many."""
KEYS_FIT: Final = Relation(
    field="total_k",
    condition=select(_VARLEN, _total_fits(field("total_k"), _LEAST_KEYS), eq(field("total_k"), 0)),
    rule="from max_seqlen_k = {least} to num_seqs * max_seqlen_k = {most} where layout is varlen, else 0",
    remedy="Pass {nearest}.",
    numbers={
        "least": _LEAST_KEYS,
        "most": _MOST_KEYS,
        "nearest": select(_VARLEN, select(field("total_k") < _LEAST_KEYS, _LEAST_KEYS, _MOST_KEYS), 0),
    },
)
"""Keys in rows are counted as queries are; those in pages by page, and of sequences that are all alike by sequence."""
PAGES_FIT: Final = Relation(
    field="page_size",
    condition=select(_PAGED, field("page_size") > 0, eq(field("page_size"), 0)),
    rule="at least 1 where layout is paged, else 0",
    remedy="Pass {nearest}.",
    numbers={"nearest": select(_PAGED, 16, 0)},
)
NO_PAGES: Final = Relation(
    field="num_pages",
    condition=select(_PAGED, True, eq(field("num_pages"), 0)),
    rule="0 where layout is not paged",
    remedy="Pass 0.",
)


@attrs.frozen(kw_only=True)
class AttentionFwdRequest(Request):
    """softmax(scores) V for each query head; head h reads the keys and values of head h // (num_heads / num_kv_heads).

    *dense*: `num_seqs` sequences of `max_seqlen_q` queries and `max_seqlen_k` keys each. *varlen*: sequences with up to
    so many, `total_q` queries and `total_k` keys of all, one sequence after the other. *paged*: queries likewise, keys
    and values in `num_pages` pages of `page_size` rows.

    A score is, in this order: scale q.k; capped to softcap tanh(score / softcap), where `softcap` is not 0; with
    `alibi`, plus slope * (key - ahead), a slope a head, where a sequence has `ahead` more keys than queries. Query i
    sees key j where j <= i + ahead, if `causal`, and j >= i + ahead - window_left, if `window_left` is not -1. With
    `sinks` every head has a learned logit that takes weight and adds no value: it is in the sum that `out` is divided
    by, and in `lse`. Elements of keys and values stand for themselves times `k_scale` and `v_scale`: those by which
    they were divided before they were rounded to an 8-bit `kv_dtype`. `num_seg`, `num_cus` and `persistent` say how
    the work is spread, and change no result beyond its last bits.
    """

    family: ClassVar[str] = "attention_fwd"
    relations: ClassVar[tuple[Relation, ...]] = (HEADS_FIT, QUERIES_FIT, KEYS_FIT, PAGES_FIT, NO_PAGES)
    operands: ClassVar[tuple[Operand, ...]] = OPERANDS
    gradient: ClassVar[Gradient | None] = GRADIENT

    layout: str = attrs.field(
        validator=OneOf(LAYOUTS),
        metadata=means(
            "dense: keys in rows, all sequences alike; varlen: in rows by offsets; paged: in pages by a table"
        ),
    )
    num_seqs: int = launch_field(validator=ExactInt(), metadata=means("sequences in the batch"))
    total_q: int = launch_field(validator=ExactInt(minimum=0), metadata=means("query tokens of all sequences"))
    max_seqlen_q: int = launch_field(
        validator=ExactInt(minimum=0), metadata=means("the most query tokens of one sequence; of each, if dense")
    )
    max_seqlen_k: int = launch_field(
        validator=ExactInt(minimum=0), metadata=means("the most keys of one sequence; of each, if dense")
    )
    total_k: int = launch_field(
        default=0, validator=ExactInt(minimum=0), metadata=means("keys of all sequences; 0 if not varlen")
    )
    num_heads: int = attrs.field(validator=ExactInt(), metadata=means("query heads"))
    num_kv_heads: int = attrs.field(validator=ExactInt(), metadata=means("heads of keys and values"))
    head_size: int = attrs.field(validator=ExactInt(), metadata=means("width of a query and of a key"))
    head_size_v: int = attrs.field(validator=ExactInt(), metadata=means("width of a value and of an output row"))
    page_size: int = attrs.field(
        default=0, validator=ExactInt(minimum=0), metadata=means("rows of a cache page; 0 if not paged")
    )
    num_pages: int = launch_field(
        default=0, validator=ExactInt(minimum=0), metadata=means("pages of the cache; 0 if not paged")
    )
    dtype: str = attrs.field(validator=OneOf(FLOAT_TYPES), metadata=means("element type of query and output"))
    kv_dtype: str = attrs.field(
        validator=OneOf(FLOAT_TYPES, instead=SPELLINGS), metadata=means("element type of keys and values")
    )
    causal: bool = attrs.field(validator=ExactBool(), metadata=means("a query sees no later key"))
    window_left: int = attrs.field(
        default=-1,
        validator=ExactInt(minimum=-1, maximum=2**31 - 1),
        metadata=means("how many keys before its own a query sees; -1: all"),
    )
    softcap: float = attrs.field(
        default=0.0, validator=SOFTCAP, metadata=means("scores are capped to softcap tanh(score / softcap); 0: are not")
    )
    sinks: bool = attrs.field(
        default=False, validator=ExactBool(), metadata=means("each head has a learned logit that adds no value")
    )
    alibi: bool = attrs.field(
        default=False, validator=ExactBool(), metadata=means("each head has a slope by which nearer keys score more")
    )
    return_lse: bool = attrs.field(validator=ExactBool(), metadata=means("lse is an output"))
    scale: float = launch_field(validator=SCALE, metadata=means("multiplies q.k: 1/sqrt(head_size)"))
    k_scale: float = launch_field(
        default=1.0, validator=CACHE_SCALE, metadata=means("what an element of a key stands for: itself times this")
    )
    v_scale: float = launch_field(
        default=1.0, validator=CACHE_SCALE, metadata=means("what an element of a value stands for: itself times this")
    )
    num_seg: int = launch_field(
        default=0,
        validator=ExactInt(minimum=0),
        metadata=means("segments that the keys of a sequence are divided into; 0: as many as fill the compute units"),
    )
    num_cus: int = launch_field(
        default=0,
        validator=ExactInt(minimum=0, maximum=2**16),
        metadata=means("compute units that there are for it; 0: as many as the arch has"),
    )
    persistent: bool = attrs.field(
        default=False,
        validator=ExactBool(),
        metadata=means("workgroups, as many as compute units, walk over blocks of queries; false: one for each block"),
    )
    candidate: str | None = attrs.field(
        default=None, validator=Optional(ExactStr()), metadata=means("pins a candidate by name: that one or a refusal")
    )

    @classmethod
    def cli_defaults(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return bf16, causal with LSE, heads of 128 with keys of their own, the scale of their width, and as many
        queries, keys in rows, or pages of 16, as the sequences can fill.
        """
        found: dict[str, Any] = {"head_size": 128, "dtype": "bf16", "causal": True, "return_lse": True}
        known = {**found, **given}
        found |= {"head_size_v": known["head_size"], "kv_dtype": known["dtype"]}
        found["scale"] = 1.0 / math.sqrt(known["head_size"])
        if "num_heads" in known:
            found["num_kv_heads"] = known["num_heads"]
        totals = {"dense": ("q",), "varlen": ("q", "k")}.get(known.get("layout", ""), ())
        for rows in totals:
            if "num_seqs" in known and f"max_seqlen_{rows}" in known:
                found[f"total_{rows}"] = known["num_seqs"] * known[f"max_seqlen_{rows}"]
        if known.get("layout") == "paged":
            found["page_size"] = 16
            page = known.get("page_size", 16)
            if page and "num_seqs" in known and "max_seqlen_k" in known:
                found["num_pages"] = known["num_seqs"] * -(-known["max_seqlen_k"] // page)
        return {name: value for name, value in found.items() if name not in given}
