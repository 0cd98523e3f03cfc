"""What a request over pages launches and binds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import attrs

from kinfolk.candidate import Candidate, Note
from kinfolk.expr import Expr, const, eq, field, select, stride
from kinfolk.narrow import is_narrow, own_narrow
from kinfolk.plan import Launch, Plan
from kinfolk_attention_fwd import preference
from kinfolk_attention_fwd.arguments import arguments_of, query_blocks
from kinfolk_attention_fwd.bindings import PAGED_CONTENTS, outputs, paged_bindings
from kinfolk_attention_fwd.kinds import Kind, holds, kinds
from kinfolk_attention_fwd.narrow import NARROW_WIDTHS
from kinfolk_attention_fwd.paged.limits import CAPABILITY, CODE, PAGE_SIZES, SMALL_PAGES
from kinfolk_attention_fwd.paged.spec import AttentionGatheredSpec, AttentionPagedSpec
from kinfolk_attention_fwd.schedule import schedule_of_pages, schedule_of_rows, space_of

if TYPE_CHECKING:
    from kinfolk.arch import Arch
    from kinfolk.spec import Spec
    from kinfolk_attention_fwd.request import AttentionFwdRequest


def paged_spec(arch: Arch, kind: Kind, kv_dtype: str | None = None) -> AttentionPagedSpec:
    """Return the spec of a kind, in the arch's default schedule; keys and values are of its type, or of `kv_dtype`."""
    schedule = attrs.asdict(schedule_of_pages(arch, kind))
    return AttentionPagedSpec(**attrs.asdict(kind), kv_dtype=kv_dtype or kind.dtype, **schedule)


def gathered_spec(arch: Arch, kind: Kind) -> AttentionGatheredSpec:
    """Return the spec of a kind over small pages: one that has a window, as long as any sequence where none is asked
    for, and where scores are capped also slopes, of none.
    """
    widest = attrs.evolve(kind, windowed=True, sloped=kind.sloped or kind.capped)
    schedule = attrs.asdict(schedule_of_rows(arch, widest))
    return AttentionGatheredSpec(**attrs.asdict(widest), kv_dtype=kind.dtype, **schedule)


def paged_specs(arch: Arch, flavor: str) -> Iterator[Spec]:
    """Yield every spec that a plan can name."""
    for kind in kinds():
        yield paged_spec(arch, kind)
        if kind.head_size in NARROW_WIDTHS and (narrow := own_narrow(arch)):
            yield paged_spec(arch, kind, narrow)
        if kind.windowed and kind.sloped >= kind.capped:
            yield gathered_spec(arch, kind)


def page_shift(part: int) -> Expr:
    """Return the power of two that a page of a request has parts of `part` rows."""
    found: Expr = const(0)
    for size in PAGE_SIZES:
        if size > part:
            found = select(eq(field("page_size"), size), (size // part).bit_length() - 1, found)
    return found


def paged_plan(request: AttentionFwdRequest, arch: Arch) -> Plan:
    """Return the plan of an admitted request: a workgroup for a head, a block of queries and a sequence."""
    kind, narrow = Kind.of(request), is_narrow(request.kv_dtype)
    is_small = not narrow and holds(field("page_size").one_of(SMALL_PAGES), request)
    spec = gathered_spec(arch, kind) if is_small else paged_spec(arch, kind, request.kv_dtype)
    numbers = {
        "total_q": field("total_q"),
        "max_seqlen_q": field("max_seqlen_q"),
        "max_seqlen_k": field("max_seqlen_k"),
        "block_table_stride": stride("block_table", 0),
        "num_pages": field("num_pages"),
        "page_shift": page_shift(spec.part),
    }
    return Plan(
        request=request,
        launches=(
            Launch(
                spec=spec,
                grid=(field("num_heads"), query_blocks(spec), field("num_seqs")),
                block=spec.waves * arch.wave_size,
                arguments=arguments_of(spec, numbers, request),
            ),
        ),
        bindings=paged_bindings(request, sloped=spec.sloped),
        outputs=outputs(request),
        contents=PAGED_CONTENTS,
    )


SLOWER: Final = Note(
    "slower than by segments, where a candidate serves it so", when=preference.by_segments(), slower=True
)

PAGED: Final = Candidate(
    name=CODE,
    priority=10,
    plugin="kinfolk-attention-fwd",
    capability=CAPABILITY,
    plan=paged_plan,
    specs=paged_specs,
    min_llvm=20,
    schedules=(space_of(AttentionPagedSpec), space_of(AttentionGatheredSpec)),
    notes=(SLOWER,),
)
