"""What a request of projected queries launches and binds: heads in groups, whose keys and values have the workspace in
turn.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import attrs

from kinfolk.arguments import named_arguments
from kinfolk.candidate import Candidate, Note
from kinfolk.expr import Expr, ceil_div, const, field, maximum, minimum, select, stride
from kinfolk.plan import Axis, Binding, Launch, Plan
from kinfolk.remark import Remark
from kinfolk_mla.cache import cache_types
from kinfolk_mla.decode.candidate import NARROW_NOTE
from kinfolk_mla.decode.limits import DTYPE, LATENT_WIDTH, ROPE_WIDTH, SMALL_PAGES
from kinfolk_mla.decode.plan import CONTENTS, OUTPUTS, page_shift, with_cache
from kinfolk_mla.prefill.bindings import PROJECTED, WIDTH
from kinfolk_mla.prefill.limits import CAPABILITY, HEAD_WIDTH
from kinfolk_mla.prefill.preference import BY_THE_FASTEST, over_latent_rows
from kinfolk_mla.prefill.spec import (
    MlaExpandSpec,
    MlaGatheredExpandSpec,
    MlaGatheredPrefillSpec,
    MlaPrefillSpec,
)

if TYPE_CHECKING:
    from kinfolk.arch import Arch
    from kinfolk.spec import Spec
    from kinfolk_mla.request import MlaRequest

WORKSPACE_BYTES: Final = 64 * 2**20
"""What groups of heads are made for to fit: it stays in the last caches of the archs there are."""
GROUPS: Final = (1, 2, 4, 8)
"""Of how many groups there may be, the first that fits is taken, else the last."""


def expand_spec(kv_dtype: str = DTYPE) -> MlaExpandSpec:
    """Return the spec of the kernel that forms keys and values."""
    return MlaExpandSpec(
        latent_width=LATENT_WIDTH,
        head_width=HEAD_WIDTH,
        dtype=DTYPE,
        kv_dtype=kv_dtype,
        weight_rows=64,
        read_ahead=4,
    )


def gathered_expand_spec(kv_dtype: str = DTYPE) -> MlaGatheredExpandSpec:
    """Return the spec of the kernel that forms them out of small pages."""
    plain = attrs.asdict(expand_spec(kv_dtype))
    return MlaGatheredExpandSpec(**plain, rope_width=ROPE_WIDTH)


@attrs.frozen(kw_only=True)
class Schedule:
    """The fields of the attention kernel's spec that say how, not what."""

    tile_keys: int
    key_slots: int
    reads_together: int
    key_read_ahead: int
    value_read_ahead: int
    fence_every: int
    weights_after: int
    units_after_barrier: int


SCHEDULES: Final[tuple[tuple[str | None, Schedule], ...]] = (
    (
        "transpose_read_16",
        Schedule(
            tile_keys=64,
            key_slots=2,
            reads_together=2,
            key_read_ahead=2,
            value_read_ahead=4,
            fence_every=1,
            weights_after=3,
            units_after_barrier=4,
        ),
    ),
    (
        None,
        Schedule(
            tile_keys=64,
            key_slots=1,
            reads_together=1,
            key_read_ahead=3,
            value_read_ahead=3,
            fence_every=1,
            weights_after=4,
            units_after_barrier=3,
        ),
    ),
)
"""By the role that an arch must have an op in; the last holds everywhere."""


def prefill_spec(schedule: Schedule = SCHEDULES[-1][1], kv_dtype: str = DTYPE) -> MlaPrefillSpec:
    """Return the spec of a schedule, for a type of the cache."""
    return MlaPrefillSpec(
        head_width=HEAD_WIDTH, rope_width=ROPE_WIDTH, dtype=DTYPE, kv_dtype=kv_dtype, **attrs.asdict(schedule)
    )


def gathered_prefill_spec(schedule: Schedule = SCHEDULES[-1][1]) -> MlaGatheredPrefillSpec:
    """Return the spec of a schedule over what is left of small pages."""
    return MlaGatheredPrefillSpec(**attrs.asdict(prefill_spec(schedule)))


def schedule_for(arch: Arch) -> Schedule:
    """Return the default schedule on an arch, by what it declares."""
    return next(schedule for role, schedule in SCHEDULES if role is None or role in arch.roles)


def prefill_specs(arch: Arch, flavor: str) -> Iterator[Spec]:
    """Yield every spec that a plan can name."""
    for cache in cache_types(arch, DTYPE):
        yield expand_spec(cache)
        yield prefill_spec(schedule_for(arch), cache)
        yield gathered_expand_spec(cache)
    yield gathered_prefill_spec(schedule_for(arch))


HEAD_BYTES: Final = 2 * HEAD_WIDTH * 2
"""Bytes of a head's key and value in the workspace."""
_ALL_KEYS: Final = field("num_seqs") * field("max_seqlen_k")


def _group_count() -> Expr:
    """Return in how many groups the heads are: the fewest that fit."""
    *fewer, last = GROUPS
    found: Expr = const(last)
    for count in reversed(fewer):
        found = select(ceil_div(field("num_heads"), count) * (_ALL_KEYS * HEAD_BYTES) <= WORKSPACE_BYTES, count, found)
    return found


GROUP_COUNT: Final = _group_count()
GROUP_HEADS: Final = ceil_div(field("num_heads"), GROUP_COUNT)


def prefill_plan(request: MlaRequest, arch: Arch) -> Plan:
    """Return the plan of an admitted request: for each group of heads, expansion and then attention."""
    cache, schedule = request.kv_dtype, schedule_for(arch)
    if gathers := request.page_size in SMALL_PAGES:
        expand, attend = gathered_expand_spec(cache), gathered_prefill_spec(schedule)
    else:
        expand, attend = expand_spec(cache), prefill_spec(schedule, cache)
    launches = (launch for number in range(GROUPS[-1]) for launch in _group(number, expand, attend, arch.wave_size))
    return Plan(
        request=request,
        launches=tuple(launches),
        bindings=with_cache((*_BINDINGS, *_OF_ROWS) if gathers else _BINDINGS, cache),
        outputs=OUTPUTS,
        contents=CONTENTS,
        remarks=REMARKS,
    )


REMARKS: Final = (
    Remark(
        "{groups} groups of {heads} heads have the workspace for keys and values in turn",
        GROUP_COUNT > 1,
        {"groups": GROUP_COUNT, "heads": GROUP_HEADS},
    ),
)


def _group(number: int, expand: MlaExpandSpec, attend: MlaPrefillSpec, wave_size: int) -> tuple[Launch, Launch]:
    """Return the launches of a group of heads; nothing is launched for one past the last."""
    first = GROUP_HEADS * number
    heads = maximum(minimum(GROUP_HEADS, field("num_heads") - first), 0)
    query_blocks = ceil_div(field("max_seqlen_q"), MlaPrefillSpec.block)
    numbers = {
        "block_table_stride": stride("block_table", 0),
        "num_pages": field("num_pages"),
        "page_shift": page_shift(expand.part),
        "total_q": field("total_q"),
        "max_seqlen_k": field("max_seqlen_k"),
        "first_head": minimum(first, field("num_heads")),
        "group_heads": GROUP_HEADS,
        "num_heads": field("num_heads"),
        "causal": select(field("causal"), 1, 0),
        "query_blocks": query_blocks,
    }
    return (
        Launch(
            spec=expand,
            grid=(heads, ceil_div(field("max_seqlen_k"), MlaExpandSpec.block), field("num_seqs")),
            block=expand.waves * wave_size,
            arguments=named_arguments(expand.parameters(), numbers),
            condition=heads > 0,
        ),
        Launch(
            spec=attend,
            grid=(heads, query_blocks, field("num_seqs")),
            block=attend.waves * wave_size,
            arguments=named_arguments(attend.parameters(), numbers),
            condition=heads > 0,
        ),
    )


_BINDINGS: Final = (
    *PROJECTED,
    Binding(
        name="expanded",
        role="workspace",
        dtype=DTYPE,
        shape=(
            Axis(field("num_seqs")),
            Axis(GROUP_HEADS, called="heads of a group"),
            Axis(2),
            Axis(field("max_seqlen_k")),
            WIDTH,
        ),
        alignment=16,
        access="readwrite",
        means="keys without their rotated part, then values, of each sequence and head of a group",
    ),
)


def _of_rows(name: str, dtype: str, alignment: int, width: Axis, last: tuple[Axis, ...], means: str) -> Binding:
    return Binding(
        name=name,
        role="workspace",
        dtype=dtype,
        shape=(Axis(field("num_seqs")), width, *last),
        alignment=alignment,
        access="readwrite",
        means=means,
    )


_OF_ROWS: Final = (
    _of_rows(
        "rotated",
        DTYPE,
        16,
        Axis(field("max_seqlen_k")),
        (Axis(field("rope_dim")),),
        "rotated parts of each sequence's keys, one after the other",
    ),
    _of_rows(
        "present",
        "i32",
        4,
        Axis(ceil_div(field("max_seqlen_k"), MlaGatheredPrefillSpec.word_keys), called="words"),
        (),
        "which of each sequence's keys are there, a bit a key",
    ),
)

SLOWER: Final = Note(
    "slower than over latent rows, where a candidate serves them so: few queries a sequence behind many keys",
    when=over_latent_rows(BY_THE_FASTEST),
    slower=True,
)

PREFILL: Final = Candidate(
    name="mla.prefill",
    priority=10,
    plugin="kinfolk-mla",
    capability=CAPABILITY,
    plan=prefill_plan,
    specs=prefill_specs,
    min_llvm=20,
    notes=(SLOWER, NARROW_NOTE),
)
