"""The parameters of both kernels of gradients as values."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from kinfolk.ir.ops import lanes
from kinfolk.ir.value import Value
from kinfolk_attention_bwd.rows import Terms, Tokens

if TYPE_CHECKING:
    from kinfolk_attention_bwd.spec import GradientSpec


@attrs.frozen(eq=False, kw_only=True)
class Arguments:
    """By name; of `KeysSpec` without `dq`, of `QueriesSpec` without `dk` and `dv`."""

    q: Value
    k: Value
    v: Value
    dout: Value
    minus_lse2: Value
    minus_sum: Value
    scale: Value
    seqlen_q: Value
    seqlen_k: Value
    ahead: Value
    num_heads: Value
    num_kv_heads: Value
    heads_per_kv: Value
    causal: Value
    rows_kept: Value
    dq: Value | None = None
    row_blocks: Value | None = None
    dk: Value | None = None
    dv: Value | None = None

    def of_queries(self, tensor: Value, spec: GradientSpec) -> Tokens:
        """Return the rows of a tensor of the workgroup's queries."""
        return Tokens(tensor, lanes.block_id(axis=2), self.seqlen_q, self.num_heads, spec.head_size)

    def of_keys(self, tensor: Value, spec: GradientSpec) -> Tokens:
        """Return the rows of a tensor of the workgroup's keys."""
        return Tokens(tensor, lanes.block_id(axis=2), self.seqlen_k, self.num_kv_heads, spec.head_size)

    def terms(self, tensor: Value) -> Terms:
        """Return what is kept of the workgroup's queries."""
        return Terms(tensor, lanes.block_id(axis=2), self.num_heads, self.rows_kept)
