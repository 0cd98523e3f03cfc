"""The tensors that projected queries bind, whatever serves them: those of decode, but for queries and outputs."""

from __future__ import annotations

from typing import Final

import attrs

from kinfolk.expr import field
from kinfolk.plan import Axis, Binding
from kinfolk_mla.decode.limits import DTYPE
from kinfolk_mla.decode.plan import BINDINGS

_KNOWN: Final = {binding.name: binding for binding in BINDINGS}
_TOKENS, _HEADS, WIDTH = Axis(field("total_q")), Axis(field("num_heads")), Axis(field("v_dim"))


def _input(name: str, shape: tuple[Axis, ...], means: str) -> Binding:
    return Binding(name=name, role="input", dtype=DTYPE, shape=shape, alignment=16, access="read", means=means)


Q: Final = _input(
    "q",
    (_TOKENS, _HEADS, Axis(field("nope_dim") + field("rope_dim"))),
    "projected queries, the part that is not rotated first",
)
W_UKV: Final = _input(
    "w_ukv",
    (_HEADS, Axis(field("kv_lora_rank")), Axis(field("nope_dim") + field("v_dim"))),
    "up-projection of latent rows to a head's keys, then to its values",
)
OUT: Final = attrs.evolve(
    _KNOWN["out"],
    shape=(_TOKENS, _HEADS, WIDTH),
    means="softmax(scale q.k) times a head's values; 0 where a query sees no keys",
)
PROJECTED: Final = (
    Q,
    W_UKV,
    *(_KNOWN[name] for name in ("c_kv", "k_rope", "cu_seqlens_q", "cu_seqlens_k", "block_table", "status")),
    OUT,
    _KNOWN["lse"],
)
