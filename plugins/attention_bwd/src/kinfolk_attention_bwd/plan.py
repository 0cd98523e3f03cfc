"""What a request launches and binds: terms of rows, then gradients of keys and values, and of queries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kinfolk.arguments import named_arguments
from kinfolk.candidate import Candidate
from kinfolk.expr import Expr, ceil_div, field, floor_div, select
from kinfolk.plan import Launch, Plan
from kinfolk_attention_bwd.bindings import OUTPUTS, ROWS_KEPT, bindings
from kinfolk_attention_bwd.kinds import all_specs, keys_spec, queries_spec, row_terms_spec, space_of
from kinfolk_attention_bwd.limits import CAPABILITY, CODE
from kinfolk_attention_bwd.spec import LANES, GradientSpec, KeysSpec, QueriesSpec

if TYPE_CHECKING:
    from kinfolk.arch import Arch
    from kinfolk_attention_bwd.request import AttentionBwdRequest

_NUMBERS: Final[dict[str, Expr]] = {
    "seqlen_q": field("seqlen_q"),
    "seqlen_k": field("seqlen_k"),
    "ahead": select(field("bottom_right"), field("seqlen_k") - field("seqlen_q"), 0),
    "num_heads": field("num_heads"),
    "num_kv_heads": field("num_kv_heads"),
    "heads_per_kv": floor_div(field("num_heads"), field("num_kv_heads")),
    "causal": select(field("causal"), 1, 0),
    "rows_kept": ROWS_KEPT,
}


def split_plan(request: AttentionBwdRequest, arch: Arch) -> Plan:
    """Return the plan of an admitted request."""
    rows = row_terms_spec(request.head_size, request.dtype)
    return Plan(
        request=request,
        launches=(
            Launch(
                spec=rows,
                grid=(ceil_div(ROWS_KEPT, rows.rows), field("num_heads"), field("batch")),
                block=rows.waves * LANES,
                arguments=named_arguments(rows.parameters(), _NUMBERS),
            ),
            _launch(keys_spec(arch, request.head_size, request.dtype), "seqlen_k", "num_kv_heads"),
            _launch(queries_spec(arch, request.head_size, request.dtype), "seqlen_q", "num_heads"),
        ),
        bindings=bindings(request),
        outputs=OUTPUTS,
    )


def _launch(spec: GradientSpec, length: str, heads: str) -> Launch:
    """Return the launch of a kernel: a workgroup for each head, block of rows and sequence."""
    blocks = ceil_div(field(length), spec.rows)
    return Launch(
        spec=spec,
        grid=(field(heads), blocks, field("batch")),
        block=spec.waves * LANES,
        arguments=named_arguments(spec.parameters(), {**_NUMBERS, "row_blocks": blocks}),
    )


SPLIT: Final = Candidate(
    name=CODE,
    priority=10,
    plugin="kinfolk-attention-bwd",
    capability=CAPABILITY,
    plan=split_plan,
    specs=all_specs,
    min_llvm=20,
    schedules=(space_of(KeysSpec), space_of(QueriesSpec)),
)
