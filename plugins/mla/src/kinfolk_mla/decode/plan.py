"""What a decode request launches and binds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

import attrs

from kinfolk.contents import Offsets, PageIds
from kinfolk.expr import Expr, Scope, all_of, ceil_div, const, eq, field, select, stride
from kinfolk.matrix import atom_fact
from kinfolk.plan import Argument, Axis, Binding, FloatField, Launch, Plan
from kinfolk_mla.cache import cache_types
from kinfolk_mla.combine.plan import combine_spec
from kinfolk_mla.decode.limits import DTYPE, LATENT_WIDTH, PAGE_SIZE, PAGE_SIZES, ROPE_WIDTH, SMALL_PAGES
from kinfolk_mla.decode.segments import Segments
from kinfolk_mla.spec import INVERSE_BITS, MlaDecodeSpec, MlaNarrowDecodeSpec, MlaSpec

if TYPE_CHECKING:
    from kinfolk.arch import Arch
    from kinfolk.spec import Spec
    from kinfolk_mla.request import MlaRequest

ROW_WIDTH: Final = field("kv_lora_rank") + field("rope_dim")
OUTPUTS: Final = ("out", "lse")
ROWS: Final = field("max_seqlen_q") * field("num_heads")
"""Of the sequence with the most query tokens; a row is a head of a token."""


@attrs.frozen(kw_only=True)
class Schedule:
    """The fields of a spec that say how, not what."""

    key_read_ahead: int
    query_read_ahead: int
    value_read_ahead: int
    fence_every: int
    parked_query_reads: int
    workgroups_per_cu: int


# By the role that an arch must have an op in; the last holds everywhere. Chosen among points around it by the registers
# and the waits of the compiled loop, one step from any point that spills. Values read transposed come one fragment a
# read, a quarter of what a read and a transpose in registers give, so they are read four times as far ahead.
SCHEDULES: Final[tuple[tuple[str | None, Schedule], ...]] = (
    (
        "transpose_read_16",
        Schedule(
            key_read_ahead=5,
            query_read_ahead=2,
            value_read_ahead=8,
            fence_every=1,
            parked_query_reads=4,
            workgroups_per_cu=2,
        ),
    ),
    (
        None,
        Schedule(
            key_read_ahead=5,
            query_read_ahead=2,
            value_read_ahead=2,
            fence_every=2,
            parked_query_reads=3,
            workgroups_per_cu=2,
        ),
    ),
)


ONE_IDLE_OF: Final = 8
"""Waves without rows are let pass where they are one of so many or more."""


def schedule_for(arch: Arch) -> Schedule:
    """Return the default schedule on an arch, by what it declares."""
    return next(schedule for role, schedule in SCHEDULES if role is None or role in arch.roles)


def kind_for(arch: Arch) -> type[MlaDecodeSpec]:
    """Return the class of specs for the atoms and waves of an arch; one that has neither is refused the first."""
    narrow = MlaNarrowDecodeSpec
    atom = atom_fact(m=16, n=narrow.rows_per_wave, k=PAGE_SIZE, a=DTYPE)
    return narrow if arch.wave_size == narrow.lanes and arch.facts[atom] else MlaDecodeSpec


def decode_spec(
    idle_waves: bool = False,
    schedule: Schedule = SCHEDULES[-1][1],
    kind: type[MlaDecodeSpec] = MlaDecodeSpec,
    kv_dtype: str = DTYPE,
    unit: int = PAGE_SIZE,
) -> MlaDecodeSpec:
    """Return the spec of a schedule for a type of the cache, and pages counted as ones of `unit` keys, with waves that
    have no rows or without.
    """
    return kind(
        idle_waves=idle_waves,
        latent_width=LATENT_WIDTH,
        rope_width=ROPE_WIDTH,
        page_size=unit,
        dtype=DTYPE,
        kv_dtype=kv_dtype,
        **attrs.asdict(schedule),
    )


def decode_specs(arch: Arch, flavor: str) -> Iterator[Spec]:
    """Yield every spec that a plan can name: two per type of the cache and unit of pages in the arch's schedule, and
    the combine's.
    """
    schedule, kind = schedule_for(arch), kind_for(arch)
    yield from (
        decode_spec(idle_waves, schedule, kind, cache, unit)
        for cache in cache_types(arch, DTYPE)
        for unit in (PAGE_SIZE, 1)
        for idle_waves in (False, True)
    )
    yield combine_spec()


def decode_plan(request: MlaRequest, arch: Arch) -> Plan:
    """Return the plan of an admitted request: a workgroup per segment, sequence and up to 64 rows; the combine."""
    kind, unit = kind_for(arch), 1 if request.page_size in SMALL_PAGES else PAGE_SIZE
    idle_waves = has_idle_waves(kind).holds(Scope(request=request, arch=arch))
    spec = decode_spec(idle_waves, schedule_for(arch), kind, request.kv_dtype, unit)
    return plan_of(request, spec, Segments.of(spec, spec.workgroups_per_cu), arch)


def has_idle_waves(kind: type[MlaDecodeSpec]) -> Expr:
    """Return whether of the waves for a sequence's rows so many have none that letting them pass is worth a branch.

    The branch costs up to 2 % of the loop's clocks (docs/generated/quality.md); waves that compute with zeros take what
    others could use.
    """
    waves = ceil_div(ROWS, kind.waves * kind.rows_per_wave) * kind.waves
    idle = waves - ceil_div(ROWS, kind.rows_per_wave)
    return all_of(idle > 0, idle * ONE_IDLE_OF >= waves)


def plan_of(request: MlaRequest, spec: MlaSpec, segments: Segments, arch: Arch) -> Plan:
    """Return the plan that launches a decode kernel and, where there are several segments, the combine kernel."""
    last = combine_spec()
    return Plan(
        request=request,
        launches=(
            Launch(
                spec=spec,
                grid=(ceil_div(ROWS, spec.rows), field("num_seqs"), segments.count),
                block=spec.waves * arch.wave_size,
                arguments=(*ARGUMENTS, *_split_arguments(segments), *_shift_arguments(spec)),
            ),
            Launch(
                spec=last,
                grid=(ROWS, field("num_seqs"), 1),
                block=last.threads,
                arguments=_combine_arguments(segments),
                condition=segments.are_several,
            ),
        ),
        bindings=(*with_cache(BINDINGS, request.kv_dtype), *_workspace(segments)),
        outputs=OUTPUTS,
        contents=CONTENTS,
        remarks=segments.remarks(),
    )


def _workspace(segments: Segments) -> tuple[Binding, ...]:
    """Return what the segments leave to the combine kernel; nothing where there is one."""

    def binding(name: str, alignment: int, width: Expr | int, means: str) -> Binding:
        return Binding(
            name=name,
            role="workspace",
            dtype="f32",
            shape=(Axis(segments.kept, called="segments"), _TOKENS, _HEADS, Axis(width)),
            alignment=alignment,
            access="readwrite",
            means=means,
        )

    return (
        binding("part_out", 16, field("kv_lora_rank"), "sums of weighted latent rows of each segment's keys"),
        binding("part_ml", 8, 2, "largest score and sum of weights of each segment's keys"),
    )


def _split_arguments(segments: Segments) -> tuple[Argument, ...]:
    return (
        Argument("part_out", "pointer", "part_out"),
        Argument("part_ml", "pointer", "part_ml"),
        Argument("num_segments", "i32", segments.count),
        Argument("segment_pages", "i32", segments.pages),
    )


def _shift_arguments(spec: MlaSpec) -> tuple[Argument, ...]:
    return (Argument("page_shift", "i32", page_shift(spec.page_size)),) if spec.most_shift else ()


def _combine_arguments(segments: Segments) -> tuple[Argument, ...]:
    pointers = ("cu_seqlens_q", "part_out", "part_ml", "out", "lse")
    return (
        *(Argument(name, "pointer", name) for name in pointers),
        Argument("scale", "f32", FloatField("scale")),
        Argument("k_scale", "f32", FloatField("k_scale")),
        Argument("total_q", "i32", field("total_q")),
        Argument("max_seqlen_q", "i32", field("max_seqlen_q")),
        Argument("num_heads", "i32", field("num_heads")),
        Argument("num_segments", "i32", segments.count),
    )


def _input(name: str, dtype: str, *shape: Axis | Expr | int, means: str, alignment: int = 16) -> Binding:
    axes = tuple(axis if isinstance(axis, Axis) else Axis(axis) for axis in shape)
    return Binding(name=name, role="input", dtype=dtype, shape=axes, alignment=alignment, access="read", means=means)


def _output(name: str, dtype: str, *shape: Axis, means: str, alignment: int) -> Binding:
    return Binding(name=name, role="output", dtype=dtype, shape=shape, alignment=alignment, access="write", means=means)


_PAGES: Final = Axis(ceil_div(field("max_seqlen_k"), field("page_size")), at_least=True)
_TOKENS, _HEADS = Axis(field("total_q")), Axis(field("num_heads"))

BINDINGS: Final = (
    _input("qa", DTYPE, _TOKENS, _HEADS, ROW_WIDTH, means="absorbed queries, latent part then rotated part"),
    _input(
        "c_kv",
        DTYPE,
        field("num_pages"),
        field("page_size"),
        field("kv_lora_rank"),
        means="latent part of the cache: keys, and all of the values",
    ),
    _input(
        "k_rope",
        DTYPE,
        field("num_pages"),
        field("page_size"),
        field("rope_dim"),
        means="rotated part of the cache's keys",
    ),
    _input(
        "cu_seqlens_q",
        "i32",
        field("num_seqs") + 1,
        alignment=4,
        means="where each sequence's queries begin, from 0 to total_q",
    ),
    _input(
        "cu_seqlens_k",
        "i32",
        field("num_seqs") + 1,
        alignment=4,
        means="where each sequence's keys would begin end to end, from 0",
    ),
    _input(
        "block_table",
        "i32",
        Axis(field("num_seqs"), stride=None),
        _PAGES,
        alignment=4,
        means="page ids in order; slots past a sequence's last page are never read",
    ),
    Binding(
        name="status",
        role="status",
        dtype="i32",
        shape=(Axis(1),),
        alignment=4,
        access="readwrite",
        means="how many page ids in use were outside the cache; those contributed nothing",
    ),
    _output(
        "out",
        DTYPE,
        _TOKENS,
        _HEADS,
        Axis(field("kv_lora_rank")),
        alignment=16,
        means="softmax(scale q.k) times the latent rows; 0 where a sequence has no keys",
    ),
    _output(
        "lse",
        "f32",
        _TOKENS,
        _HEADS,
        alignment=4,
        means="natural logarithm of the sum of exp(scale q.k); -inf where there are no keys",
    ),
)

CACHE: Final = ("c_kv", "k_rope")


def with_cache(bindings: Iterable[Binding], kv_dtype: str) -> tuple[Binding, ...]:
    """Return bindings with a cache of another type."""
    return tuple(attrs.evolve(each, dtype=kv_dtype) if each.name in CACHE else each for each in bindings)


ARGUMENTS: Final = (
    *(Argument(binding.name, "pointer", binding.name) for binding in BINDINGS),
    Argument("scale", "f32", FloatField("scale")),
    Argument("k_scale", "f32", FloatField("k_scale")),
    Argument("block_table_stride", "i32", stride("block_table", 0)),
    Argument("num_pages", "i32", field("num_pages")),
    Argument("total_q", "i32", field("total_q")),
    Argument("max_seqlen_q", "i32", field("max_seqlen_q")),
    Argument("max_seqlen_k", "i32", field("max_seqlen_k")),
    Argument("num_heads", "i32", field("num_heads")),
    Argument("heads_inverse", "i32", select(field("causal"), ceil_div(2**INVERSE_BITS, field("num_heads")), 0)),
)


def page_shift(unit: int) -> Expr:
    """Return the power of two that a page of a request has pages of `unit` keys, as which a kernel counts them."""
    found: Expr = const(0)
    for size in (*SMALL_PAGES, *PAGE_SIZES):
        if size > unit:
            found = select(eq(field("page_size"), size), (size // unit).bit_length() - 1, found)
    return found


CONTENTS: Final = (
    Offsets(tensor="cu_seqlens_q", count=field("num_seqs"), max_step=field("max_seqlen_q"), last=field("total_q")),
    Offsets(tensor="cu_seqlens_k", count=field("num_seqs"), max_step=field("max_seqlen_k")),
    PageIds(table="block_table", offsets="cu_seqlens_k", page_size=field("page_size"), bound=field("num_pages")),
)
