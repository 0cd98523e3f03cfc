"""What the decode kernels with 32 rows a wave take: of a request, and of a spec on an arch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kinfolk.budget import budget_limits
from kinfolk.expr import ceil_div, fact, field
from kinfolk.fields import listing
from kinfolk.ir.types import SCALARS
from kinfolk.refusal import Limit
from kinfolk.roles import ROLES, role_fact
from kinfolk.tile.rotation import PAST
from kinfolk.tile.timeline import most_units_after
from kinfolk_mla.cache import plain_spec, widened_cache, widened_spec
from kinfolk_mla.decode.limits import (
    DTYPE,
    LATENT_WIDTH,
    PAGE_SIZE,
    ROPE_WIDTH,
    capability,
    shape_limits,
)
from kinfolk_mla.wide.spec import STAGINGS, MlaGroupedSpec, MlaPipelinedSpec, MlaWideSpec

PIPELINED, GROUPED = "mla.pipelined", "mla.grouped"
DIRECT_ROLES: Final = (f"stage_view_{MlaWideSpec.vector_bytes}", "wait_staged", "transpose_read_16")
"""What an arch must have ops for if tiles are to come directly."""
REGISTERS: Final = 512
ROW_BYTES: Final = (LATENT_WIDTH + ROPE_WIDTH) * SCALARS[DTYPE].bytes
CODES: Final[Mapping[type[MlaWideSpec], str]] = {MlaPipelinedSpec: PIPELINED, MlaGroupedSpec: GROUPED}

ELSEWHERE: Final = "Choose an arch that has it, or let another candidate serve the request."


def rows_of(kind: type[MlaWideSpec]) -> int:
    """Return how many rows a workgroup serves."""
    return kind.waves // kind.key_groups * kind.rows_per_wave


def tiles_held(kind: type[MlaWideSpec], staging: str) -> int:
    """Return how many tiles lie in workgroup memory; where they come directly, each group of waves has a ring."""
    rotation = kind.rotations[staging]
    return rotation.slots * (kind.key_groups if rotation.direct else 1)


def _spec_limits(kind: type[MlaWideSpec], staging: str) -> tuple[Limit, ...]:
    """Return what a spec with a staging must meet on an arch."""
    code, atom_heads = CODES[kind], STAGINGS[staging].atom_heads
    cache = plain_spec(code) if staging == "direct" else widened_spec(code)
    pages = tuple(sorted({PAGE_SIZE, STAGINGS[staging].tile_keys}))
    tiles = tiles_held(kind, staging)
    tile_bytes = STAGINGS[staging].tile_keys * (ROW_BYTES + MlaWideSpec.row_padding_bytes)
    return (
        *shape_limits(code, atom_heads, atom_heads, kind.lanes, cache),
        Limit(
            f"{code}.spec.page_size",
            "not_validated",
            "page_size",
            field("page_size").one_of(pages),
            because="layouts and registers are proved for these alone",
            remedy=f"Evolve the spec to page_size={listing(pages)}.",
        ),
        *(_role_limit(code, role) for role in DIRECT_ROLES if staging == "direct"),
        *_meeting_limits(code, kind, staging),
        Limit(
            f"{code}.spec.workgroup_memory",
            "cannot",
            "staging",
            fact("lds_bytes") >= tiles * tile_bytes,
            because=f"{tiles} tiles of {tile_bytes} bytes lie in workgroup memory",
            remedy=ELSEWHERE,
        ),
        Limit(
            f"{code}.spec.registers",
            "cannot",
            "rows_per_wave",
            fact("vgprs_per_simd") // ceil_div(MlaWideSpec.waves, fact("simds_per_cu")) >= REGISTERS,
            because="accumulators, query and tiles on their way take that many registers of a lane",
            remedy=ELSEWHERE,
            takes=f"an arch whose vgprs_per_simd give each wave at least {REGISTERS}",
        ),
    )


def _meeting_limits(code: str, kind: type[MlaWideSpec], staging: str) -> tuple[Limit, ...]:
    """Return the limit of where the waves meet, if values must be read before they do."""
    parts, pipelined = STAGINGS[staging], kind is MlaPipelinedSpec
    values = min(kind.rotations[staging].reads)
    if kind.rotations[staging].reads_may_stand(values, PAST):
        return ()
    units = parts.value_units + pipelined * parts.score_units
    most = most_units_after(field("value_read_ahead"), units)
    return (
        Limit(
            f"{code}.spec.units_after_barrier",
            "cannot",
            "units_after_barrier",
            field("units_after_barrier") <= most,
            because="past the barrier a tile's slot is written again, and its last values are read so far ahead",
            remedy="Leave at most {most} units when the waves meet, or read values further ahead.",
            suggestions={"most": most},
            takes=f"at most value_read_ahead, and at most {units - 1}",
        ),
    )


def _role_limit(code: str, role: str) -> Limit:
    """Return the limit of a staging that needs an op in a role."""
    return Limit(
        f"{code}.spec.{role}",
        "cannot",
        "staging",
        fact(role_fact(role)),
        because=f"it needs an op for this: {ROLES[role].promise}",
        remedy=ELSEWHERE,
    )


PIPELINED_CAPABILITY: Final = capability(PIPELINED, widened_cache(PIPELINED, DTYPE), MlaPipelinedSpec.keys_ahead)
GROUPED_CAPABILITY: Final = capability(GROUPED, widened_cache(GROUPED, DTYPE), MlaGroupedSpec.keys_ahead)
"""What a request must meet."""

_SPEC_LIMITS: Final = {(kind, staging): _spec_limits(kind, staging) for kind in CODES for staging in STAGINGS}


def spec_limits(spec: MlaWideSpec) -> tuple[Limit, ...]:
    """Return what a spec must meet on an arch: the kernels of another staging are made of other atoms and tiles."""
    return _SPEC_LIMITS[type(spec), spec.staging]


def resource_limits(spec: MlaWideSpec) -> tuple[Limit, ...]:
    """Return what a compiled kernel of a spec must meet, in the figures an arch may declare."""
    remedy = "Read less far ahead, or meet earlier in the second product."
    return budget_limits(CODES[type(spec)], spec.workgroups_per_cu, spec.waves, remedy)
