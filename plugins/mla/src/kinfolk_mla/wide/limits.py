"""What the decode kernels with 32 heads a wave take: of a request, and of a spec on an arch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kinfolk.expr import Expr, all_of, any_of, ceil_div, const, eq, fact, field, ne, select
from kinfolk.refusal import Limit
from kinfolk.roles import role_fact
from kinfolk_mla.decode.limits import ROW_BYTES, at_most_the_reads, budget_limits, capability, shape_limits
from kinfolk_mla.wide.spec import GROUPED_SLOTS, STAGINGS, MlaGroupedSpec, MlaPipelinedSpec, MlaWideSpec

PIPELINED, GROUPED = "mla.pipelined", "mla.grouped"
TILES_AHEAD: Final = 4 * max(staging.tile_pages for staging in STAGINGS.values()) + 1
"""How far past a sequence's last page the loops count, in pages."""
DIRECT_ROLES: Final = (f"stage_view_{MlaWideSpec.vector_bytes}", "wait_staged", "transpose_read_16")
"""What an arch must have ops for if tiles are to come directly."""
REGISTERS: Final = 512


def heads_of(kind: type[MlaWideSpec]) -> int:
    """Return how many heads a workgroup serves."""
    return kind.waves // kind.key_groups * kind.heads_per_wave


def _capability(code: str, kind: type[MlaWideSpec]) -> tuple[Limit, ...]:
    heads = heads_of(kind)
    return capability(
        code,
        Limit(
            f"{code}.num_heads",
            "not_implemented",
            "num_heads",
            eq(field("num_heads"), heads),
            because=f"{kind.waves // kind.key_groups} waves compute {kind.heads_per_wave} heads each",
            remedy=f"Pad the query to {heads} heads, or let another candidate serve it.",
        ),
        TILES_AHEAD,
    )


def _by_staging(values: Mapping[str, int]) -> Expr:
    """Return what goes with the spec's staging."""
    (_, last), *others = values.items()
    found: Expr = const(last)
    for name, value in others:
        found = select(eq(field("staging"), name), value, found)
    return found


def _workgroup_bytes(slots: Mapping[str, int]) -> Expr:
    """Return the workgroup memory of a spec in bytes: tiles of key rows, whose latent part is padded."""
    pages = {name: count * STAGINGS[name].tile_pages for name, count in slots.items()}
    return _by_staging(pages) * field("page_size") * (ROW_BYTES + MlaWideSpec.row_padding_bytes)


def _spec_limits(code: str, slots: Mapping[str, int]) -> tuple[Limit, ...]:
    return (
        *shape_limits(code),
        at_most_the_reads(code, "key_read_ahead", "the first product has that many units, one a read of a key row"),
        at_most_the_reads(code, "fence_every", "the first product has that many units, one a read of a key row"),
        Limit(
            f"{code}.spec.staging",
            "cannot",
            "staging",
            any_of(ne(field("staging"), "direct"), all_of(*(fact(role_fact(role)) for role in DIRECT_ROLES))),
            because="tiles come to workgroup memory without passing through registers, and are read transposed",
            remedy="Choose an arch that has ops for that, or let another candidate serve the request.",
        ),
        Limit(
            f"{code}.spec.workgroup_memory",
            "cannot",
            "staging",
            _workgroup_bytes(slots) <= fact("lds_bytes"),
            because="the tiles lie in workgroup memory",
            remedy="Choose an arch with more of it, or let another candidate serve the request.",
        ),
        Limit(
            f"{code}.spec.registers",
            "cannot",
            "heads_per_wave",
            fact("vgprs_per_simd") // ceil_div(MlaWideSpec.waves, fact("simds_per_cu")) >= REGISTERS,
            because="accumulators, query and tiles on their way take that many registers of a lane",
            remedy="Choose an arch that has them, or let another candidate serve the request.",
        ),
    )


PIPELINED_CAPABILITY: Final = _capability(PIPELINED, MlaPipelinedSpec)
GROUPED_CAPABILITY: Final = _capability(GROUPED, MlaGroupedSpec)
"""What a request must meet."""

_PIPELINED_SLOTS: Final = {name: staging.slots for name, staging in STAGINGS.items()}
_CODES: Final[Mapping[type[MlaWideSpec], str]] = {MlaPipelinedSpec: PIPELINED, MlaGroupedSpec: GROUPED}
SPEC_LIMITS: Final[Mapping[type[MlaWideSpec], tuple[Limit, ...]]] = {
    MlaPipelinedSpec: _spec_limits(PIPELINED, _PIPELINED_SLOTS),
    MlaGroupedSpec: _spec_limits(GROUPED, GROUPED_SLOTS),
}
"""What a spec must meet on an arch, by its class."""


def resource_limits(spec: MlaWideSpec) -> tuple[Limit, ...]:
    """Return what a compiled kernel of a spec must meet, in the figures an arch may declare."""
    remedy = "Read less far ahead, or meet earlier in the second product."
    return budget_limits(_CODES[type(spec)], spec.workgroups_per_cu, spec.waves, remedy)
