"""What a request over whole rows launches and binds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import attrs

from kinfolk.candidate import Candidate
from kinfolk.expr import const, field
from kinfolk.plan import Launch, Plan
from kinfolk_attention_fwd.arguments import arguments_of, query_blocks
from kinfolk_attention_fwd.bindings import NO_OFFSETS, VARLEN_CONTENTS, dense_bindings, outputs, varlen_bindings
from kinfolk_attention_fwd.dense.limits import CAPABILITY, CODE
from kinfolk_attention_fwd.dense.spec import AttentionDenseSpec
from kinfolk_attention_fwd.kinds import Kind, kinds
from kinfolk_attention_fwd.schedule import schedule_for, space_of

if TYPE_CHECKING:
    from kinfolk.arch import Arch
    from kinfolk.spec import Spec
    from kinfolk_attention_fwd.request import AttentionFwdRequest


def dense_spec(arch: Arch, kind: Kind) -> AttentionDenseSpec:
    """Return the spec of a kind, in the arch's default schedule."""
    return AttentionDenseSpec(**attrs.asdict(kind), **attrs.asdict(schedule_for(arch, kind)))


def dense_specs(arch: Arch, flavor: str) -> Iterator[Spec]:
    """Yield every spec that a plan can name."""
    return (dense_spec(arch, kind) for kind in kinds())


def dense_plan(request: AttentionFwdRequest, arch: Arch) -> Plan:
    """Return the plan of an admitted request: a workgroup for a head, a block of queries and a sequence."""
    spec = dense_spec(arch, Kind.of(request))
    varlen = request.layout == "varlen"
    numbers = {
        "varlen": const(int(varlen)),
        "total_q": field("total_q"),
        "total_k": field("total_k"),
        "max_seqlen_q": field("max_seqlen_q"),
        "max_seqlen_k": field("max_seqlen_k"),
        "lse_heads": const(1) if varlen else field("num_heads"),
        "lse_row": field("total_q" if varlen else "max_seqlen_q"),
    }
    bound: dict[str, str] = {} if varlen else dict.fromkeys(("cu_seqlens_q", "cu_seqlens_k"), NO_OFFSETS)
    return Plan(
        request=request,
        launches=(
            Launch(
                spec=spec,
                grid=(field("num_heads"), query_blocks(spec), field("num_seqs")),
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
