"""gfx950 as core sees it: the arch, and what its compiled kernels may take."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING, Final

from kinfolk.arch import Arch
from kinfolk.hooks import hookimpl
from kinfolk.ir.ops import CORE_OPS
from kinfolk_amdgcn import legality, resources
from kinfolk_amdgcn.lowering import lower_kernel
from kinfolk_gfx950 import ops
from kinfolk_gfx950.banks import BANKS
from kinfolk_gfx950.facts import FACTS
from kinfolk_gfx950.matrix import matrix_catalog

if TYPE_CHECKING:
    from kinfolk.refusal import Refusal
    from kinfolk.spec import Spec
    from kinfolk.usage import Usage

PLUGIN: Final = "kinfolk-gfx950"


@cache
def arch() -> Arch:
    """Return the one Arch of this distribution."""
    return Arch(
        name="gfx950",
        target_ids=("gfx950",),
        wave_size=64,
        facts=FACTS,
        matrix=matrix_catalog(),
        ops=ops.OPS,
        roles=ops.ROLES,
        lacking=legality.lacking("gfx950", (op.name for op in (*CORE_OPS, *ops.OPS))),
        bounds={"workgroup_threads": "max_workgroup_size", "workgroup_bytes": "lds_bytes"},
        banks=BANKS,
        lower_kernel=lower_kernel,
        read_usage=resources.read_usage,
    )


@hookimpl
def kinfolk_arch() -> Arch:
    """Return the arch."""
    return arch()


@hookimpl
def kinfolk_gate_resources(usage: Usage, spec: Spec, arch: Arch) -> Iterable[Refusal]:
    """Refuse what the compute unit cannot hold; scratch is refused by core, a candidate's own budget by its family."""
    return tuple(resources.gate(usage, spec, arch, PLUGIN))
