"""What a caller asks of attention's gradients, with nothing about how they are computed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar, Final

import attrs

from kinfolk.fields import ExactBool, ExactFloat, ExactInt, ExactStr, OneOf, Optional, launch_field, means
from kinfolk.ir.types import FLOAT_TYPES
from kinfolk.operand import Operand
from kinfolk.request import Relation, Request, heads_divide
from kinfolk_attention_bwd.operands import OPERANDS

LAYOUTS: Final = ("bshd", "bhsd", "thd", "paged")
SCALE: Final = ExactFloat(minimum=2.0**-93, maximum=2.0**10)
"""Of larger ones an LSE that is rounded to f32 is off by more than an exponential takes, whatever the rows."""
WINDOW: Final = ExactInt(minimum=-1, maximum=2**31 - 1)


@attrs.frozen(kw_only=True)
class AttentionBwdRequest(Request):
    """The gradients dq, dk and dv of sum(o * dout), where o = softmax(scale q.k) v for each query head.

    Head h reads keys of head h // (num_heads / num_kv_heads), and values likewise; their gradients are sums over the
    heads that read them. Of the forward pass `o` and `lse`, the natural logarithm of each row's sum of exp(score),
    are given, and taken as they are: a probability is exp(score - lse), and a row whose `lse` is not finite has none.
    With `ahead` = seqlen_k - seqlen_q if `bottom_right`, else 0, query i sees key j where j <= i + ahead, if `causal`,
    j >= i + ahead - window_left, if that is not -1, and j <= i + ahead + window_right, if that is not -1.
    `deterministic`: equal inputs give equal bits, whatever runs beside. Layout bshd: [batch, tokens, heads, columns].
    Source: FlashAttention-2, arXiv:2307.08691, algorithm 2; oracle: `kinfolk_attention_bwd.reference`.
    """

    family: ClassVar[str] = "attention_bwd"
    relations: ClassVar[tuple[Relation, ...]] = (
        heads_divide("num_heads", "num_kv_heads", "keys"),
        heads_divide("num_heads", "num_v_heads", "values"),
    )
    operands: ClassVar[tuple[Operand, ...]] = OPERANDS

    layout: str = attrs.field(
        validator=OneOf(LAYOUTS), metadata=means("axes of the tensors: b batch, s or t tokens, h heads, d columns")
    )
    batch: int = launch_field(validator=ExactInt(), metadata=means("sequences"))
    seqlen_q: int = launch_field(validator=ExactInt(minimum=0), metadata=means("query tokens of each sequence"))
    seqlen_k: int = launch_field(validator=ExactInt(minimum=0), metadata=means("keys of each sequence"))
    num_heads: int = attrs.field(validator=ExactInt(), metadata=means("query heads"))
    num_kv_heads: int = attrs.field(validator=ExactInt(), metadata=means("heads of keys"))
    num_v_heads: int = attrs.field(validator=ExactInt(), metadata=means("heads of values"))
    head_size: int = attrs.field(validator=ExactInt(), metadata=means("width of a query and of a key"))
    head_size_v: int = attrs.field(validator=ExactInt(), metadata=means("width of a value and of an output row"))
    dtype: str = attrs.field(validator=OneOf(FLOAT_TYPES), metadata=means("element type of all tensors but lse"))
    causal: bool = attrs.field(validator=ExactBool(), metadata=means("a query sees no later key"))
    window_left: int = attrs.field(
        default=-1, validator=WINDOW, metadata=means("how many keys before its own a query sees; -1: all")
    )
    window_right: int = attrs.field(
        default=-1, validator=WINDOW, metadata=means("how many keys behind its own a query sees; -1: all")
    )
    bottom_right: bool = attrs.field(
        default=True,
        validator=ExactBool(),
        metadata=means("the last query's own key is the last key; else the first one's is the first"),
    )
    deterministic: bool = attrs.field(
        default=False, validator=ExactBool(), metadata=means("equal inputs must give equal bits")
    )
    scale: float = launch_field(validator=SCALE, metadata=means("multiplies q.k: 1/sqrt(head_size)"))
    candidate: str | None = attrs.field(
        default=None, validator=Optional(ExactStr()), metadata=means("pins a candidate by name: that one or a refusal")
    )

    @classmethod
    def cli_defaults(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return bshd, bf16, causal, heads of 128 with keys and values of their own, and the scale of their width."""
        found: dict[str, Any] = {"layout": "bshd", "batch": 1, "head_size": 128, "dtype": "bf16", "causal": True}
        known = {**found, **given}
        found["head_size_v"] = known["head_size"]
        found["scale"] = 1.0 / math.sqrt(known["head_size"])
        if "num_heads" in known:
            found["num_kv_heads"] = known["num_heads"]
        if "num_kv_heads" in (known := {**found, **given}):
            found["num_v_heads"] = known["num_kv_heads"]
        if "seqlen_q" in given:
            found["seqlen_k"] = given["seqlen_q"]
        return {name: value for name, value in found.items() if name not in given}
