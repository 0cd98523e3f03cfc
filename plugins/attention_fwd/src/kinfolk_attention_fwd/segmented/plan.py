"""What a request over segments of paged keys launches and binds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

import attrs

from kinfolk.arguments import named_arguments
from kinfolk.candidate import Candidate, Note
from kinfolk.expr import Expr, const, eq, field, minimum, not_, select, stride
from kinfolk.narrow import is_narrow, own_narrow
from kinfolk.plan import Axis, Binding, Launch, Plan
from kinfolk_attention_fwd import preference
from kinfolk_attention_fwd.arguments import NUM_SLOPES, WITH_SINKS, bound_of_heads
from kinfolk_attention_fwd.bindings import PAGED_CONTENTS, outputs, paged_bindings
from kinfolk_attention_fwd.kinds import CAPPED, DTYPES, holds
from kinfolk_attention_fwd.narrow import NARROW_WIDTHS
from kinfolk_attention_fwd.segmented.limits import (
    CAPABILITY,
    CODE,
    HEAD_SIZES,
    PAGE_SIZES,
    SMALL_PAGE_SIZES,
)
from kinfolk_attention_fwd.segmented.reduce.spec import AttentionReduceSpec
from kinfolk_attention_fwd.segmented.segments import GROUPS, HEADS_PER_KV, Segments
from kinfolk_attention_fwd.segmented.spec import AttentionSegmentSpec

if TYPE_CHECKING:
    from kinfolk.arch import Arch
    from kinfolk.spec import Spec
    from kinfolk_attention_fwd.request import AttentionFwdRequest


@attrs.frozen(kw_only=True)
class Schedule:
    """The fields of a spec that say how, not what."""

    ring: int
    workgroups_per_cu: int


UNIT: Final = AttentionSegmentSpec.tile_keys
_SMALL_PAGES: Final[Mapping[int, Schedule]] = dict.fromkeys((64, 128, 192), Schedule(ring=2, workgroups_per_cu=2))
_NARROW: Final[Mapping[int, Schedule]] = {
    64: Schedule(ring=4, workgroups_per_cu=3),
    128: Schedule(ring=4, workgroups_per_cu=2),
}
_LONG, _SHORT = Schedule(ring=4, workgroups_per_cu=2), Schedule(ring=2, workgroups_per_cu=3)
_SCHEDULES: Final[tuple[tuple[str | None, Mapping[int, Schedule]], ...]] = (
    (
        "transpose_read_16",
        {
            64: Schedule(ring=4, workgroups_per_cu=3),
            128: _LONG,
            192: Schedule(ring=2, workgroups_per_cu=2),
            256: Schedule(ring=1, workgroups_per_cu=2),
        },
    ),
    (
        None,
        {
            64: Schedule(ring=4, workgroups_per_cu=3),
            128: _SHORT,
            192: Schedule(ring=2, workgroups_per_cu=2),
            256: Schedule(ring=1, workgroups_per_cu=1),
        },
    ),
)
"""By the role that an arch must have an op in, the last holds everywhere, and by the widest heads that it is for. As
many tiles on their way as hide memory's latency at the rate at which a compute unit has its share of the bandwidth,
with room to spare, and as registers and workgroup memory hold.
"""


def segment_spec(
    arch: Arch, head_size: int, dtype: str, *, kv_dtype: str | None = None, capped: bool = False, unit: int = UNIT
) -> AttentionSegmentSpec:
    """Return the spec for heads of a width and pages of so many rows or more, in the arch's default schedule; keys and
    values are of the type of queries, or `kv_dtype`.
    """
    schedules = next(known for role, known in _SCHEDULES if role is None or role in arch.roles)
    width = min(each for each in schedules if each >= head_size)
    known = schedules if unit == UNIT else _SMALL_PAGES
    schedule = known.get(width, schedules[width])
    if kv_dtype not in (None, dtype):
        schedule = _NARROW.get(width, schedule)
    return AttentionSegmentSpec(
        head_size=head_size,
        dtype=dtype,
        kv_dtype=kv_dtype or dtype,
        capped=capped,
        unit=unit,
        **attrs.asdict(schedule),
    )


def segmented_specs(arch: Arch, flavor: str) -> Iterator[Spec]:
    """Yield every spec that a plan can name."""
    for head_size in HEAD_SIZES:
        for dtype in DTYPES:
            for capped in (False, True):
                yield segment_spec(arch, head_size, dtype, capped=capped)
                yield segment_spec(arch, head_size, dtype, capped=capped, unit=1)
                if head_size in NARROW_WIDTHS and (narrow := own_narrow(arch)):
                    yield segment_spec(arch, head_size, dtype, kv_dtype=narrow, capped=capped)
            yield AttentionReduceSpec(head_size=head_size, dtype=dtype)


def _page_shift() -> Expr:
    found: Expr = const(0)
    for sizes in (SMALL_PAGE_SIZES, PAGE_SIZES):
        for shift, size in enumerate(sizes):
            found = select(eq(field("page_size"), size), shift, found) if shift else found
    return found


def segmented_plan(request: AttentionFwdRequest, arch: Arch) -> Plan:
    """Return the plan of an admitted request: a workgroup for a head of keys and rows that read it, a sequence and a
    segment; where there are several segments, then one for a row.
    """
    capped, kv_dtype = holds(CAPPED, request), request.kv_dtype
    small = not is_narrow(kv_dtype) and holds(field("page_size").one_of(SMALL_PAGE_SIZES), request)
    unit = 1 if small else UNIT
    spec = segment_spec(arch, request.head_size, request.dtype, kv_dtype=kv_dtype, capped=capped, unit=unit)
    last = AttentionReduceSpec(head_size=request.head_size, dtype=request.dtype)
    segments = Segments.of(spec)
    window = minimum(field("window_left"), spec.most_rows)
    numbers = {
        "block_table_stride": stride("block_table", 0),
        "num_pages": field("num_pages"),
        "page_shift": _page_shift(),
        "total_q": field("total_q"),
        "max_seqlen_q": field("max_seqlen_q"),
        "max_seqlen_k": field("max_seqlen_k"),
        "num_kv_heads": field("num_kv_heads"),
        "heads_per_kv": HEADS_PER_KV,
        "num_heads": field("num_heads"),
        "causal": select(field("causal"), 1, 0),
        "window_left": select(field("window_left") < 0, spec.most_rows, window),
        "num_segments": segments.count,
        "sinks": WITH_SINKS,
        "num_slopes": NUM_SLOPES,
    }
    bound = bound_of_heads(request)
    return Plan(
        request=request,
        launches=(
            Launch(
                spec=spec,
                grid=(GROUPS * field("num_kv_heads"), field("num_seqs"), segments.count),
                block=spec.waves * arch.wave_size,
                arguments=named_arguments(spec.parameters(), numbers, bound),
            ),
            Launch(
                spec=last,
                grid=(field("max_seqlen_q") * field("num_heads"), field("num_seqs"), 1),
                block=last.waves * arch.wave_size,
                arguments=named_arguments(last.parameters(), numbers, bound),
                condition=segments.are_several,
            ),
        ),
        bindings=(*paged_bindings(request, sloped=True), *_workspace(segments)),
        outputs=outputs(request),
        contents=PAGED_CONTENTS,
        remarks=(*segments.remarks(), preference.remark()),
    )


def _workspace(segments: Segments) -> tuple[Binding, ...]:
    """Return what the segments leave to the second kernel; nothing where there is one."""

    def binding(name: str, alignment: int, width: Expr | int, means: str) -> Binding:
        return Binding(
            name=name,
            role="workspace",
            dtype="f32",
            shape=(
                Axis(field("total_q")),
                Axis(field("num_heads")),
                Axis(segments.kept, called="segments"),
                Axis(width),
            ),
            alignment=alignment,
            access="readwrite",
            means=means,
        )

    return (
        binding("part_out", 16, field("head_size_v"), "sums of weighted values of each segment's keys"),
        binding("part_ml", 8, 2, "largest score and sum of weights of each segment's keys"),
    )


SEGMENTED: Final = Candidate(
    name=CODE,
    priority=20,
    plugin="kinfolk-attention-fwd",
    capability=CAPABILITY,
    plan=segmented_plan,
    specs=segmented_specs,
    min_llvm=20,
    notes=(
        Note(
            "slower than by blocks of queries, where a candidate serves it so",
            when=not_(preference.by_segments()),
            slower=True,
        ),
    ),
)
