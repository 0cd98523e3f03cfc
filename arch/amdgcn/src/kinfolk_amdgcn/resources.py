"""What compiled kernels may take of an AMD arch: figures from the code object, and the limits every kernel keeps."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Final

from kinfolk.expr import eq, fact, field
from kinfolk.refusal import Limit, Refusal, unmet
from kinfolk_amdgcn.codeobject import WaveLimits, usage_from_object
from kinfolk_amdgcn.instructions import FORMATS
from kinfolk_amdgcn.target import TargetIdError, parse_target_id, resolve_target_id

if TYPE_CHECKING:
    from kinfolk.arch import Arch
    from kinfolk.spec import Spec
    from kinfolk.usage import Usage

_FEWER: Final = "Choose a schedule with fewer live values: a smaller tile, less read-ahead."

PARKED: Final = Limit(
    "amdgcn.resources.parked",
    "cannot",
    "parked",
    eq(field("parked"), 0),
    because="the compiler ran out of registers, and moves that many values to others and back where they are needed",
    remedy="Choose a schedule with fewer live values; or say why it does not matter, in the spec's `reason_for`.",
)
"""What a spec may exceed that declares a reason."""

LIMITS: Final = (
    PARKED,
    Limit(
        "amdgcn.resources.lds_bytes",
        "cannot",
        "lds_bytes",
        field("lds_bytes") <= fact("lds_bytes"),
        because="one workgroup has at most the workgroup memory of one compute unit",
        remedy="Choose a schedule with smaller tiles or fewer of them.",
    ),
    Limit(
        "amdgcn.resources.vgpr",
        "cannot",
        "vgpr",
        field("vgpr") + field("agpr") <= fact("vgprs_per_wave"),
        because="a wave addresses no more vector and accumulation registers together",
        remedy=_FEWER,
    ),
    Limit(
        "amdgcn.resources.waves_per_simd",
        "cannot",
        "waves_per_simd",
        field("waves_per_simd") >= 1,
        because="not even one wave's registers fit the file of a SIMD",
        remedy=_FEWER,
    ),
    Limit(
        "amdgcn.resources.workgroups_per_cu",
        "cannot",
        "workgroups_per_cu",
        field("workgroups_per_cu") >= 1,
        because="the waves of one workgroup do not fit a compute unit at the same time, and a barrier would never open",
        remedy="Choose a smaller block, or a schedule with fewer live values.",
    ),
    Limit(
        "amdgcn.resources.block",
        "cannot",
        "max_flat_workgroup_size",
        field("max_flat_workgroup_size") <= fact("max_workgroup_size"),
        because="the hardware launches no larger workgroup",
        remedy="Choose a smaller block.",
    ),
    Limit(
        "amdgcn.resources.hidden_arguments",
        "cannot",
        "hidden_arguments",
        eq(field("hidden_arguments"), 0),
        because="a launch passes the declared arguments and nothing the compiler asks for besides",
        remedy="Report it: an op was lowered to something that reads the runtime's own arguments.",
    ),
)
"""What no compiled kernel may exceed, in figures of its code object."""


def wave_limits(arch: Arch) -> WaveLimits:
    """Return what bounds the waves on a compute unit, from the arch's facts."""
    return WaveLimits(
        vgprs_per_simd=arch.vgprs_per_simd,
        vgpr_granule=arch.vgpr_granule,
        accum_granule=arch.accum_granule,
        max_waves_per_simd=arch.max_waves_per_simd,
        simds_per_cu=arch.simds_per_cu,
        lds_bytes_per_cu=arch.lds_bytes,
        lds_granule=arch.lds_granule,
    )


def read_usage(code: bytes, symbol: str, arch: Arch) -> Usage:
    """Return the figures of kernel `symbol` in a code object; CodeObjectError as `usage_from_object` says."""
    walked = arch.fact("microcode_formats") == FORMATS
    processors = [parse_target_id(target).processor for target in arch.target_ids] if walked else []
    return usage_from_object(code, symbol, wave_limits(arch), processors)


def gate(usage: Usage, spec: Spec, arch: Arch, plugin: str) -> Iterable[Refusal]:
    """Yield a refusal for every limit the compiled kernel does not keep, and for code of another processor."""
    figures = SimpleNamespace(**usage.figures, hidden_arguments=len(usage.hidden))
    excused = (PARKED,) if spec.reason_for("parked") else ()
    yield from unmet([limit for limit in LIMITS if limit not in excused], figures, arch, plugin)
    try:
        resolve_target_id(usage.target, arch.target_ids)
    except TargetIdError as error:
        yield Refusal(
            code="amdgcn.resources.target",
            kind="cannot",
            field="target",
            value=usage.target,
            limit=" or ".join(arch.target_ids),
            because=str(error),
            remedy="Compile the kernel for this arch.",
            plugin=plugin,
        )
