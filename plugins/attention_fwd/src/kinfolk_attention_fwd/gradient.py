"""Which family's request forms the gradients of attention, and of which requests of ours there are none."""

from __future__ import annotations

from typing import Final

from kinfolk.expr import field
from kinfolk.gradient import Gradient, Only

GRADIENT: Final = Gradient(
    family="attention_bwd",
    distribution="kinfolk-attention-bwd",
    reads={"q": "q", "k": "k", "v": "v", "o": "out", "lse": "lse"},
    given={"dout": "out"},
    gives={"q": "dq", "k": "dk", "v": "dv"},
    states={name: field(name) for name in ("causal", "window_left", "scale")} | {"layout": "bshd"},
    keeps={"return_lse": True},
    only={
        "layout": Only(
            "dense",
            "gradients are formed of sequences that are all alike",
            "Pass q, k and v of four axes; sequences of other lengths each by itself.",
        ),
        "kv_dtype": Only(
            field("dtype"), "gradients have one type, that of q, k and v", "Convert q, k and v to one type."
        ),
        "softcap": Only(0.0, "gradients are those of scores without a cap", "Pass 0.0."),
        "sinks": Only(False, "the logit of a sink has no gradient", "Leave out sink."),
        "alibi": Only(False, "gradients are those of scores without slopes", "Leave out alibi_slopes."),
        "k_scale": Only(1.0, "gradients are those of keys as they are", "Multiply scale by it, and pass 1.0."),
        "v_scale": Only(1.0, "gradients are those of values as they are", "Multiply out by it, and pass 1.0."),
    },
)
