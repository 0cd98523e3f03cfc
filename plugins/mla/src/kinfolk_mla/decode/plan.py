"""What a decode request launches and binds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import attrs

from kinfolk.expr import Expr, ceil_div, field, stride
from kinfolk.matrix import atom_fact
from kinfolk.plan import Argument, Axis, Binding, FloatField, Launch, Offsets, PageIds, Plan
from kinfolk_mla.decode.limits import DTYPE, HEADS, LATENT_WIDTH, PAGE_SIZE, ROPE_WIDTH
from kinfolk_mla.spec import MlaDecodeSpec, MlaNarrowDecodeSpec

if TYPE_CHECKING:
    from kinfolk.arch import Arch
    from kinfolk_mla.request import MlaRequest

ROW_WIDTH: Final = field("kv_lora_rank") + field("rope_dim")
OUTPUTS: Final = ("out", "lse")


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


def schedule_for(arch: Arch) -> Schedule:
    """Return the default schedule on an arch, by what it declares."""
    return next(schedule for role, schedule in SCHEDULES if role is None or role in arch.roles)


def kind_for(arch: Arch) -> type[MlaDecodeSpec]:
    """Return the class of specs for the atoms and waves of an arch; one that has neither is refused the first."""
    narrow = MlaNarrowDecodeSpec
    atom = atom_fact(m=16, n=narrow.heads_per_wave, k=PAGE_SIZE, a=DTYPE)
    return narrow if arch.wave_size == narrow.lanes and arch.facts[atom] else MlaDecodeSpec


def decode_spec(
    num_heads: int, schedule: Schedule = SCHEDULES[-1][1], kind: type[MlaDecodeSpec] = MlaDecodeSpec
) -> MlaDecodeSpec:
    """Return the spec of a schedule for a number of heads."""
    return kind(
        num_heads=num_heads,
        latent_width=LATENT_WIDTH,
        rope_width=ROPE_WIDTH,
        page_size=PAGE_SIZE,
        dtype=DTYPE,
        **attrs.asdict(schedule),
    )


def decode_specs(arch: Arch, flavor: str) -> Iterator[MlaDecodeSpec]:
    """Yield every spec that a plan can name: one per number of heads, in the arch's schedule."""
    schedule, kind = schedule_for(arch), kind_for(arch)
    return (decode_spec(heads, schedule, kind) for heads in HEADS)


def decode_plan(request: MlaRequest, arch: Arch) -> Plan:
    """Return the plan of an admitted request: one launch, a workgroup per sequence and up to 64 heads."""
    spec = decode_spec(request.num_heads, schedule_for(arch), kind_for(arch))
    return Plan(
        request=request,
        launches=(
            Launch(
                spec=spec,
                grid=(ceil_div(field("num_heads"), spec.waves * spec.heads_per_wave), field("num_seqs"), 1),
                block=spec.waves * arch.wave_size,
                arguments=ARGUMENTS,
            ),
        ),
        bindings=BINDINGS,
        outputs=OUTPUTS,
        contents=CONTENTS,
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

ARGUMENTS: Final = (
    *(Argument(binding.name, "pointer", binding.name) for binding in BINDINGS),
    Argument("scale", "f32", FloatField("scale")),
    Argument("block_table_stride", "i32", stride("block_table", 0)),
    Argument("num_pages", "i32", field("num_pages")),
    Argument("total_q", "i32", field("total_q")),
    Argument("max_seqlen_k", "i32", field("max_seqlen_k")),
)

CONTENTS: Final = (
    Offsets(tensor="cu_seqlens_q", count=field("num_seqs"), max_step=field("max_seqlen_q"), last=field("total_q")),
    Offsets(tensor="cu_seqlens_k", count=field("num_seqs"), max_step=field("max_seqlen_k")),
    PageIds(table="block_table", offsets="cu_seqlens_k", page_size=field("page_size"), bound=field("num_pages")),
)
