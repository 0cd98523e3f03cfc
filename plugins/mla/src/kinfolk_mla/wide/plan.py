"""What a decode request launches on the kernels with 32 rows a wave."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

import attrs

from kinfolk.candidate import Candidate, Note
from kinfolk.expr import all_of, ceil_div, ne
from kinfolk.refusal import Limit
from kinfolk.schedule import ScheduleSpace
from kinfolk_mla.cache import cache_types
from kinfolk_mla.combine.plan import combine_spec
from kinfolk_mla.decode.candidate import CAUSAL_NOTE, NARROW_NOTE
from kinfolk_mla.decode.limits import DTYPE, LATENT_WIDTH, PAGE_SIZE, PAGE_SIZES, ROPE_WIDTH
from kinfolk_mla.decode.plan import ROWS, plan_of
from kinfolk_mla.decode.segments import Segments
from kinfolk_mla.schedules import SCHEDULES
from kinfolk_mla.wide import limits
from kinfolk_mla.wide.spec import STAGINGS, MlaGroupedSpec, MlaPipelinedSpec, MlaWideSpec

if TYPE_CHECKING:
    from kinfolk.arch import Arch
    from kinfolk.plan import Plan
    from kinfolk.spec import Spec
    from kinfolk_mla.request import MlaRequest


@attrs.frozen(kw_only=True)
class Schedule:
    """The fields of a spec that say how, not what."""

    staging: str
    key_read_ahead: int
    value_read_ahead: int
    fence_every: int = 1
    units_after_barrier: int


PIPELINED_REGISTERS: Final = Schedule(staging="registers", key_read_ahead=4, value_read_ahead=2, units_after_barrier=1)
PIPELINED_DIRECT: Final = Schedule(staging="direct", key_read_ahead=5, value_read_ahead=5, units_after_barrier=32)
GROUPED_REGISTERS: Final = Schedule(staging="registers", key_read_ahead=4, value_read_ahead=2, units_after_barrier=1)
GROUPED_DIRECT: Final = Schedule(staging="direct", key_read_ahead=6, value_read_ahead=6, units_after_barrier=4)


SEARCHED: Final = {
    "key_read_ahead": tuple(range(1, 9)),
    "value_read_ahead": tuple(range(1, 9)),
    "fence_every": (0, 1, 2, 4),
    "units_after_barrier": (0, 1, 2, 4, 8, 16, 32),
}
"""The schedule fields, staging apart, which goes by what the arch has, with the values that a search tries."""


def brings_tiles_directly(arch: Arch) -> bool:
    """Whether an arch has ops for what the direct staging does."""
    return all(role in arch.roles for role in limits.DIRECT_ROLES)


def pipelined_schedule(arch: Arch, kv_dtype: str = DTYPE) -> Schedule:
    """Return the default schedule of the pipelined kernel on an arch, by what it declares, for a type of the cache."""
    return PIPELINED_DIRECT if _comes_directly(arch, kv_dtype) else PIPELINED_REGISTERS


def grouped_schedule(arch: Arch, kv_dtype: str = DTYPE) -> Schedule:
    """Return the default schedule of the grouped kernel on an arch, by what it declares, for a type of the cache."""
    return GROUPED_DIRECT if _comes_directly(arch, kv_dtype) else GROUPED_REGISTERS


def _comes_directly(arch: Arch, kv_dtype: str) -> bool:
    """Whether tiles come directly: what is widened passes through registers."""
    return kv_dtype == DTYPE and brings_tiles_directly(arch)


def wide_spec(
    kind: type[MlaWideSpec], schedule: Schedule, page_size: int = PAGE_SIZE, kv_dtype: str = DTYPE
) -> MlaWideSpec:
    """Return the spec of a schedule for pages of so many keys, or for tiles where pages are larger, and a type of the
    cache.
    """
    return kind(
        latent_width=LATENT_WIDTH,
        rope_width=ROPE_WIDTH,
        page_size=min(page_size, STAGINGS[schedule.staging].tile_keys),
        dtype=DTYPE,
        kv_dtype=kv_dtype,
        **attrs.asdict(schedule),
    )


def _candidate(
    code: str,
    kind: type[MlaWideSpec],
    priority: int,
    capability: tuple[Limit, ...],
    schedule_for: Callable[[Arch, str], Schedule],
    slower: Note,
) -> Candidate:
    def specs(arch: Arch, flavor: str) -> Iterator[Spec]:
        """Yield the specs that a plan can name, by type of the cache and size of pages, and the combine kernel's."""
        for cache in cache_types(arch, DTYPE):
            schedule = schedule_for(arch, cache)
            yield from dict.fromkeys(wide_spec(kind, schedule, size, cache) for size in PAGE_SIZES)
        yield combine_spec()

    def plan(request: MlaRequest, arch: Arch) -> Plan:
        """Return the plan of an admitted request: a workgroup per segment and sequence, then the combine."""
        cache = request.kv_dtype
        spec = wide_spec(kind, schedule_for(arch, cache), request.page_size, cache)
        return plan_of(request, spec, Segments.of(spec, spec.workgroups_per_cu), arch)

    return Candidate(
        name=code,
        priority=priority,
        plugin="kinfolk-mla",
        capability=capability,
        plan=plan,
        specs=specs,
        min_llvm=22,
        schedules=(ScheduleSpace(spec=kind, values=SEARCHED, table=SCHEDULES),),
        notes=(CAUSAL_NOTE, NARROW_NOTE, slower),
    )


_HALVES: Final = ceil_div(ROWS, limits.rows_of(MlaGroupedSpec))
"""How many workgroups of half the pipelined kernel's rows a sequence takes."""
MANY_HALVES: Final = 15
"""From so many on, one workgroup of which half is idle costs less than what each of the others saves."""

PIPELINED: Final = _candidate(
    limits.PIPELINED,
    MlaPipelinedSpec,
    3,
    limits.PIPELINED_CAPABILITY,
    pipelined_schedule,
    Note(
        f"slower here: of the last {limits.rows_of(MlaPipelinedSpec)} rows (heads of query tokens) that a workgroup "
        "computes at once, half or more are not there",
        when=all_of(ne(_HALVES // 2 * 2, _HALVES), _HALVES < MANY_HALVES),
        slower=True,
    ),
)
GROUPED: Final = _candidate(
    limits.GROUPED,
    MlaGroupedSpec,
    4,
    limits.GROUPED_CAPABILITY,
    grouped_schedule,
    Note(
        f"slower here: of {limits.rows_of(MlaGroupedSpec)} rows (heads of query tokens) that a workgroup computes at "
        "once, half or more are not there, and one workgroup has a compute unit to itself",
        when=limits.rows_of(MlaGroupedSpec) >= ROWS * 2,
        slower=True,
    ),
)
