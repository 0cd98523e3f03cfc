"""What kernels of `AttentionSpec` are passed, by the names of their parameters."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from kinfolk.arguments import named_arguments
from kinfolk.expr import Expr, ceil_div, const, field, floor_div, select
from kinfolk_attention_fwd.kinds import window_argument

if TYPE_CHECKING:
    from kinfolk.plan import Argument
    from kinfolk_attention_fwd.request import AttentionFwdRequest
    from kinfolk_attention_fwd.spec import AttentionSpec


WITH_SINKS: Final = select(field("sinks"), 1, 0)
NUM_SLOPES: Final = select(field("alibi"), field("num_heads"), 0)


def bound_of_heads(request: AttentionFwdRequest) -> dict[str, str]:
    """Return what is bound in place of sinks that are not asked for: of it nothing is read as such."""
    return {} if request.sinks else {"sink": "q"}


def query_blocks(spec: AttentionSpec) -> Expr:
    """Return how many blocks of queries the longest sequence has."""
    return ceil_div(field("max_seqlen_q"), spec.block)


def arguments_of(
    spec: AttentionSpec,
    numbers: Mapping[str, Expr],
    request: AttentionFwdRequest,
    bound: Mapping[str, str] = MappingProxyType({}),
) -> tuple[Argument, ...]:
    """Return the arguments: bindings and fields of the request, of the same names or as `bound` says, `numbers`, and
    those of heads.
    """
    bound = {**bound_of_heads(request), **bound}
    integers = {
        **numbers,
        "num_heads": field("num_heads"),
        "num_kv_heads": field("num_kv_heads"),
        "heads_per_kv": floor_div(field("num_heads"), field("num_kv_heads")),
        "causal": select(field("causal"), 1, 0),
        "window_left": window_argument(spec.most_rows),
        "sinks": WITH_SINKS,
        # With slopes as many as the grid has heads, said so that it is known of the kernel.
        "num_slopes": field("num_heads") if request.alibi else const(0),
        "query_blocks": query_blocks(spec),
    }
    return named_arguments(spec.parameters(), integers, bound)
