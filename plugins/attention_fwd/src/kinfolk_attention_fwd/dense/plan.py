"""What a request over whole rows launches and binds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import attrs

from kinfolk.candidate import Candidate
from kinfolk.expr import ceil_div, const, fact, field, maximum, minimum, select
from kinfolk.plan import Launch, Plan
from kinfolk_attention_fwd.arguments import arguments_of, query_blocks
from kinfolk_attention_fwd.bindings import NO_OFFSETS, VARLEN_CONTENTS, dense_bindings, outputs, varlen_bindings
from kinfolk_attention_fwd.dense.limits import CAPABILITY, CODE, MAX_I32, WIDEST_PERSISTENT
from kinfolk_attention_fwd.dense.spec import AttentionDenseSpec
from kinfolk_attention_fwd.kinds import Kind, kinds
from kinfolk_attention_fwd.schedule import schedule_for, space_of

if TYPE_CHECKING:
    from kinfolk.arch import Arch
    from kinfolk.spec import Spec
    from kinfolk_attention_fwd.request import AttentionFwdRequest


UNITS: Final = select(field("num_cus") > 0, field("num_cus"), fact("compute_units"))
"""How many compute units there are for it."""


def dense_spec(arch: Arch, kind: Kind, *, persistent: bool = False) -> AttentionDenseSpec:
    """Return the spec of a kind, in the arch's default schedule."""
    return AttentionDenseSpec(**attrs.asdict(kind), **attrs.asdict(schedule_for(arch, kind)), persistent=persistent)


def dense_specs(arch: Arch, flavor: str) -> Iterator[Spec]:
    """Yield every spec that a plan can name; those that walk side by side, so that a sample of parts has some."""
    for kind in kinds():
        yield dense_spec(arch, kind)
    for kind in kinds():
        if not kind.windowed and kind.head_size <= WIDEST_PERSISTENT:
            yield dense_spec(arch, kind, persistent=True)


def dense_plan(request: AttentionFwdRequest, arch: Arch) -> Plan:
    """Return the plan of an admitted request: a workgroup for a head, a block of queries and a sequence, or one for a
    compute unit.

    The order is that of `kinfolk_attention_fwd.dense.work`, whose count of tiles is even to a few percent.
    """
    spec = dense_spec(arch, Kind.of(request), persistent=request.persistent)
    axes = (field("num_heads"), query_blocks(spec), field("num_seqs"))
    items = axes[0] * axes[1] * axes[2]
    wanted = maximum(minimum(UNITS * spec.workgroups_per_cu, items), ceil_div(items, MAX_I32))  # rounds fit 32 bits
    workgroups = minimum(maximum(wanted, 1), spec.most_workgroups)
    varlen = request.layout == "varlen"
    numbers = {
        "varlen": const(int(varlen)),
        "total_q": field("total_q"),
        "total_k": field("total_k"),
        "max_seqlen_q": field("max_seqlen_q"),
        "max_seqlen_k": field("max_seqlen_k"),
        "lse_heads": const(1) if varlen else field("num_heads"),
        "lse_row": field("total_q" if varlen else "max_seqlen_q"),
        "num_seqs": field("num_seqs"),
        "num_workgroups": workgroups,
        "rounds": minimum(maximum(ceil_div(items, workgroups), 1), MAX_I32),
    }
    bound: dict[str, str] = {} if varlen else dict.fromkeys(("cu_seqlens_q", "cu_seqlens_k"), NO_OFFSETS)
    return Plan(
        request=request,
        launches=(
            Launch(
                spec=spec,
                grid=(select(items > 0, workgroups, 0), const(1), const(1)) if request.persistent else axes,
                block=spec.waves * arch.wave_size,
                arguments=arguments_of(spec, numbers, request, bound),
            ),
        ),
        bindings=varlen_bindings(request) if varlen else dense_bindings(request),
        outputs=outputs(request),
        contents=VARLEN_CONTENTS if varlen else (),
    )


DENSE: Final = Candidate(
    name=CODE,
    priority=10,
    plugin="kinfolk-attention-fwd",
    capability=CAPABILITY,
    plan=dense_plan,
    specs=dense_specs,
    min_llvm=20,
    schedules=(space_of(AttentionDenseSpec),),
)
