"""gfx942 as core sees it: the arch, and what its compiled kernels may take."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING, Final

from kinfolk.arch import Arch
from kinfolk.hooks import hookimpl
from kinfolk.ir.ops import CORE_OPS
from kinfolk_amdgcn import legality, ops, resources
from kinfolk_amdgcn.lowering import lower_kernel
from kinfolk_gfx942.banks import BANKS
from kinfolk_gfx942.facts import FACTS
from kinfolk_gfx942.matrix import matrix_catalog

if TYPE_CHECKING:
    from kinfolk.refusal import Refusal
    from kinfolk.spec import Spec
    from kinfolk.usage import Usage

PLUGIN: Final = "kinfolk-gfx942"


@cache
def arch() -> Arch:
    """Return the one Arch of this distribution."""
    return Arch(
        name="gfx942",
        target_ids=("gfx942",),
        wave_size=64,
        facts=FACTS,
        matrix=matrix_catalog(),
        ops=ops.OPS,
        lacking=legality.lacking("gfx942", (op.name for op in (*CORE_OPS, *ops.OPS))),
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
