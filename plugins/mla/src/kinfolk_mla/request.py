"""What a caller asks of multi-head latent attention, with nothing about how it is computed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar, Final

import attrs

from kinfolk.expr import all_of, ceil_div, eq, field, select
from kinfolk.fields import (
    ExactBool,
    ExactFloat,
    ExactInt,
    ExactStr,
    OneOf,
    Optional,
    launch_field,
    means,
)
from kinfolk.ir.types import FLOAT_TYPES
from kinfolk.narrow import SPELLINGS, is_narrow
from kinfolk.operand import Operand
from kinfolk.request import Relation, Request
from kinfolk_mla.operands import OPERANDS

MODEL: Final[Mapping[str, int]] = {"kv_lora_rank": 512, "rope_dim": 64, "nope_dim": 128, "v_dim": 128}
"""The widths of DeepSeek-V2, V3 and Kimi-K2."""

K_SCALE: Final = ExactFloat(minimum=2.0**-32, maximum=2.0**32)
"""Factors of a cache: far from what any quantisation chooses on both sides."""
SCALE: Final = ExactFloat(minimum=2.0**-93, maximum=2.0**94)
"""Scales that, multiplied by any `K_SCALE` and log2 e, are normal as f32 and finite, and take the lowest f32 more than
8 from any score near 0: a running maximum that starts there is left at the first key, whatever a rescale waits for.
"""


_LEAST, _MOST = field("max_seqlen_q"), field("num_seqs") * field("max_seqlen_q")
QUERIES_FIT: Final = Relation(
    field="total_q",
    # Divided, not multiplied, so that no batch is too large to be judged.
    condition=all_of(
        field("total_q") >= _LEAST,
        select(_LEAST > 0, ceil_div(field("total_q"), _LEAST) <= field("num_seqs"), eq(field("total_q"), 0)),
    ),
    rule="from max_seqlen_q = {least} to num_seqs * max_seqlen_q = {most}",
    remedy="Pass {nearest}.",
    numbers={"least": _LEAST, "most": _MOST, "nearest": select(field("total_q") < _LEAST, _LEAST, _MOST)},
)
"""No batch has other counts: each sequence has at most `max_seqlen_q` queries, and one of them has that many."""


@attrs.frozen(kw_only=True)
class MlaRequest(Request):
    """Attention of each sequence's queries over its latent cache, one latent row per key shared by all heads.

    A key row is `kv_lora_rank` latent elements and `rope_dim` rotated ones; keys lie in pages of `page_size` rows, of
    which the cache has `num_pages`. `total_q` queries belong to `num_seqs` sequences, at most `max_seqlen_q` to one;
    no sequence has more than `max_seqlen_k` keys. With `absorbed_query` the caller passes the query already multiplied
    by the key up-projection, as wide as a key row, and gets the latent output; else per-head queries of nope_dim +
    rope_dim and outputs of `v_dim`. `scale` multiplies q.k before softmax: 1/sqrt(nope_dim + rope_dim), the width
    before absorption. An element of the cache stands for itself times `k_scale`, one number for latent and rotated
    parts of all rows: that by which they were divided before they were rounded to an 8-bit `kv_dtype`. `num_seg` and
    `num_cus` say how the work is spread, and change no result beyond its last bits. With `causal`, the last query of a
    sequence sees all keys, each one before it a key less.
    Source: DeepSeek-V2, arXiv:2405.04434, section 2.1.
    """

    family: ClassVar[str] = "mla"
    relations: ClassVar[tuple[Relation, ...]] = (QUERIES_FIT,)
    operands: ClassVar[tuple[Operand, ...]] = OPERANDS

    num_heads: int = attrs.field(validator=ExactInt(), metadata=means("query heads"))
    num_seqs: int = launch_field(validator=ExactInt(), metadata=means("sequences in the batch"))
    total_q: int = launch_field(validator=ExactInt(minimum=0), metadata=means("query tokens of all sequences"))
    max_seqlen_q: int = attrs.field(
        validator=ExactInt(minimum=0), metadata=means("the most query tokens of one sequence")
    )
    max_seqlen_k: int = launch_field(validator=ExactInt(minimum=0), metadata=means("the most keys of one sequence"))
    absorbed_query: bool = attrs.field(
        validator=ExactBool(), metadata=means("the query is multiplied by the key up-projection already")
    )
    kv_lora_rank: int = attrs.field(
        default=MODEL["kv_lora_rank"],
        validator=ExactInt(),
        metadata=means("latent width of a key row, and of an output row"),
    )
    rope_dim: int = attrs.field(
        default=MODEL["rope_dim"], validator=ExactInt(), metadata=means("rotated width of a key row")
    )
    nope_dim: int = attrs.field(
        default=MODEL["nope_dim"],
        validator=ExactInt(),
        metadata=means("width of a head before absorption, not rotated"),
    )
    v_dim: int = attrs.field(
        default=MODEL["v_dim"], validator=ExactInt(), metadata=means("width of a head's values after the up-projection")
    )
    page_size: int = attrs.field(validator=ExactInt(), metadata=means("rows of a cache page"))
    num_pages: int = launch_field(validator=ExactInt(minimum=0), metadata=means("pages of the cache"))
    dtype: str = attrs.field(validator=OneOf(FLOAT_TYPES), metadata=means("element type of query and output"))
    kv_dtype: str = attrs.field(
        validator=OneOf(FLOAT_TYPES, instead=SPELLINGS), metadata=means("element type of the cache")
    )
    causal: bool = attrs.field(validator=ExactBool(), metadata=means("a query sees no later key"))
    scale: float = launch_field(
        validator=SCALE, metadata=means("multiplies q.k before softmax: 1/sqrt(nope_dim + rope_dim)")
    )
    k_scale: float = launch_field(
        default=1.0,
        validator=K_SCALE,
        metadata=means("what an element of the cache stands for, latent and rotated: itself times this"),
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
    candidate: str | None = attrs.field(
        default=None, validator=Optional(ExactStr()), metadata=means("pins a candidate by name: that one or a refusal")
    )

    @classmethod
    def cli_defaults(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the model's widths and their scale, bf16, and pages of 16, as many as the sequences can fill.

        What elements of 8 bits stand for is said to be themselves, so that it is printed.
        """
        found: dict[str, Any] = {**MODEL, "page_size": 16, "dtype": "bf16", "causal": True}
        known = {**found, **given}
        found["kv_dtype"] = known["dtype"]
        found["scale"] = 1.0 / math.sqrt(known["nope_dim"] + known["rope_dim"])
        if is_narrow(known.get("kv_dtype", known["dtype"])):
            found["k_scale"] = 1.0
        if "num_seqs" in known and "max_seqlen_k" in known:
            found["num_pages"] = known["num_seqs"] * -(-known["max_seqlen_k"] // known["page_size"])
        return {name: value for name, value in found.items() if name not in given}
