"""What kernels of `AttentionSpec` are passed, by the names of their parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kinfolk.expr import Expr, ceil_div, field, floor_div, select
from kinfolk.plan import Argument, FloatField
from kinfolk_attention_fwd.kinds import window_argument

if TYPE_CHECKING:
    from kinfolk_attention_fwd.spec import AttentionSpec


def query_blocks(spec: AttentionSpec) -> Expr:
    """Return how many blocks of queries the longest sequence has."""
    return ceil_div(field("max_seqlen_q"), spec.block)


def arguments_of(spec: AttentionSpec, numbers: Mapping[str, Expr]) -> tuple[Argument, ...]:
    """Return the arguments: bindings and fields of the same names, `numbers`, and those of heads."""
    of_heads = {
        "num_heads": field("num_heads"),
        "num_kv_heads": field("num_kv_heads"),
        "heads_per_kv": floor_div(field("num_heads"), field("num_kv_heads")),
        "causal": select(field("causal"), 1, 0),
        **({"window_left": window_argument(spec.most_rows)} if spec.windowed else {}),
        "query_blocks": query_blocks(spec),
    }
    return (
        *(Argument(each.name, "pointer", each.name) for each in spec.parameters() if each.is_pointer),
        *(Argument(each.name, "f32", FloatField(each.name)) for each in spec.parameters() if each.kind == "f32"),
        *(Argument(name, "i32", number) for name, number in {**numbers, **of_heads}.items()),
    )
