"""What the combine kernel takes: of a spec on an arch, and of what the compiler made of it."""

from __future__ import annotations

from typing import Final

from kinfolk.expr import eq, fact, field
from kinfolk.refusal import Limit
from kinfolk_mla.combine.spec import MlaCombineSpec
from kinfolk_mla.decode.limits import ATOM_TYPES, DTYPE

_LANES: Final = field("latent_width") // MlaCombineSpec.columns_per_lane
_COLUMNS: Final = fact("wave_size") * MlaCombineSpec.columns_per_lane
REGISTERS: Final = 64

SPEC_LIMITS: Final = (
    Limit(
        "mla.combine.spec.latent_width",
        "not_implemented",
        "latent_width",
        eq(_LANES // fact("wave_size") * _COLUMNS, field("latent_width")),
        because=f"whole waves of lanes have {MlaCombineSpec.columns_per_lane} columns each",
        remedy="Pad the latent rows to a width that is.",
        takes=f"multiples of {MlaCombineSpec.columns_per_lane} times the arch's wave_size",
    ),
    Limit(
        "mla.combine.spec.workgroup",
        "cannot",
        "latent_width",
        fact("max_workgroup_size") >= _LANES,
        because="a workgroup has the columns of one row",
        remedy="Use a cache with narrower latent rows.",
        takes=f"at most {MlaCombineSpec.columns_per_lane} times the arch's max_workgroup_size",
    ),
    Limit(
        "mla.combine.spec.dtype",
        "not_implemented",
        "dtype",
        field("dtype").one_of(ATOM_TYPES),
        because="outputs are rounded as pairs of 16 bits",
        remedy=f"Evolve the spec to dtype={DTYPE}.",
    ),
)
"""What a spec must meet on an arch."""

RESOURCE_LIMITS: Final = (
    Limit(
        "mla.combine.resources.vgpr",
        "cannot",
        "vgpr",
        field("vgpr") + field("agpr") < REGISTERS,
        because="its waves wait for memory most of the time, and other waves hide that",
        remedy="Ask for fewer segments ahead.",
        takes=f"less than {REGISTERS} with the agpr added",
    ),
    Limit(
        "mla.combine.resources.waves_per_simd",
        "cannot",
        "waves_per_simd",
        field("waves_per_simd") >= MlaCombineSpec.waves_per_simd,
        because="its waves wait for memory most of the time, and other waves hide that",
        remedy="Ask for fewer segments ahead.",
    ),
)
"""What a compiled kernel must meet, in the figures an arch may declare."""
