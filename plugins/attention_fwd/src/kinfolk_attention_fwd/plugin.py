"""Forward attention as core sees it: its request, its candidates, its kernels, and how their outputs are judged."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from kinfolk.hooks import hookimpl
from kinfolk.refusal import Refusal, unmet
from kinfolk_attention_fwd.dense.spec import AttentionDenseSpec
from kinfolk_attention_fwd.paged.spec import AttentionGatheredSpec, AttentionPagedSpec
from kinfolk_attention_fwd.request import AttentionFwdRequest
from kinfolk_attention_fwd.segmented.reduce.spec import AttentionReduceSpec
from kinfolk_attention_fwd.segmented.spec import AttentionSegmentSpec

if TYPE_CHECKING:
    from kinfolk.arch import Arch
    from kinfolk.candidate import Candidate
    from kinfolk.check import Finding, Scenario
    from kinfolk.ir import Kernel
    from kinfolk.refusal import Limit
    from kinfolk.request import Request
    from kinfolk.spec import Spec
    from kinfolk.usage import Usage

PLUGIN = "kinfolk-attention-fwd"


@hookimpl
def kinfolk_request_type() -> type[AttentionFwdRequest]:
    """Return the request class."""
    return AttentionFwdRequest


@hookimpl
def kinfolk_candidates(arch: Arch) -> Iterable[Candidate]:
    """Return the candidates; what an arch lacks for one is a refusal of its specs there."""
    from kinfolk_attention_fwd.dense.plan import DENSE
    from kinfolk_attention_fwd.paged.plan import PAGED
    from kinfolk_attention_fwd.segmented.plan import SEGMENTED

    return (DENSE, PAGED, SEGMENTED)


@hookimpl
def kinfolk_validate_spec(spec: Spec, arch: Arch) -> Iterable[Refusal]:
    """Return what makes a spec impossible on the arch."""
    return unmet(_spec_limits(spec), spec, arch, PLUGIN)


def _spec_limits(spec: Spec) -> tuple[Limit, ...]:
    from kinfolk_attention_fwd.dense import limits as dense
    from kinfolk_attention_fwd.paged import limits as paged
    from kinfolk_attention_fwd.segmented import limits as segmented

    if isinstance(spec, AttentionDenseSpec):
        return dense.SPEC_LIMITS
    if isinstance(spec, AttentionPagedSpec):
        return paged.GATHERED_LIMITS if isinstance(spec, AttentionGatheredSpec) else paged.SPEC_LIMITS
    if isinstance(spec, AttentionSegmentSpec):
        return segmented.SPEC_LIMITS
    return segmented.REDUCE_SPEC_LIMITS if isinstance(spec, AttentionReduceSpec) else ()


@hookimpl
def kinfolk_emit_ir(spec: Spec, arch: Arch) -> Kernel | None:
    """Return the kernel of a spec."""
    if isinstance(spec, AttentionDenseSpec):
        from kinfolk_attention_fwd.dense.kernel import emit_dense

        return emit_dense(spec, arch)
    if isinstance(spec, AttentionPagedSpec):
        from kinfolk_attention_fwd.paged.kernel import emit_paged

        return emit_paged(spec, arch)
    if isinstance(spec, AttentionSegmentSpec):
        from kinfolk_attention_fwd.segmented.kernel import emit_segment

        return emit_segment(spec, arch)
    if isinstance(spec, AttentionReduceSpec):
        from kinfolk_attention_fwd.segmented.reduce.kernel import emit_reduce

        return emit_reduce(spec, arch)
    return None


@hookimpl
def kinfolk_gate_resources(usage: Usage, spec: Spec, arch: Arch) -> Iterable[Refusal]:
    """Return what the compiled kernel takes beyond its schedule's budget, in the figures the arch declares."""
    declared = [limit for limit in _resource_limits(spec) if limit.field in usage.figures]
    return unmet(declared, SimpleNamespace(**usage.figures), arch, PLUGIN)


def _resource_limits(spec: Spec) -> tuple[Limit, ...]:
    from kinfolk_attention_fwd.dense import limits as dense
    from kinfolk_attention_fwd.paged import limits as paged
    from kinfolk_attention_fwd.segmented import limits as segmented

    if isinstance(spec, AttentionDenseSpec):
        return dense.LIMITS.of_resources(spec)
    if isinstance(spec, AttentionPagedSpec):
        return paged.LIMITS.of_resources(spec)
    if isinstance(spec, AttentionSegmentSpec):
        return segmented.resource_limits(spec)
    return segmented.reduce_resource_limits(spec) if isinstance(spec, AttentionReduceSpec) else ()


@hookimpl
def kinfolk_scenarios(request: Request) -> Iterable[Scenario]:
    """Return the inputs on which the kernels of a request are run."""
    if not isinstance(request, AttentionFwdRequest):
        return ()
    from kinfolk_attention_fwd.paged_scenarios import paged_scenarios
    from kinfolk_attention_fwd.scenarios import dense_scenarios
    from kinfolk_attention_fwd.varlen_scenarios import varlen_scenarios

    return (*dense_scenarios(request), *varlen_scenarios(request), *paged_scenarios(request))


@hookimpl
def kinfolk_mutation_requests(arch: Arch) -> Iterable[Request]:
    """Return small requests for each candidate."""
    from kinfolk_attention_fwd.paged import small as paged
    from kinfolk_attention_fwd.scenarios import mutation_requests
    from kinfolk_attention_fwd.segmented import small as segmented

    return (*mutation_requests(), *paged.mutation_requests(), *segmented.mutation_requests())


@hookimpl
def kinfolk_reference(request: Request, inputs: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return what the queries must give, in fp64, with the error that each element may have."""
    if not isinstance(request, AttentionFwdRequest):
        return None
    from kinfolk_attention_fwd.reference import reference

    return reference(request, inputs)


@hookimpl
def kinfolk_useful_flops(request: Request, inputs: Mapping[str, Any]) -> int | None:
    """Return the operations of attention over the keys that the queries see."""
    if not isinstance(request, AttentionFwdRequest):
        return None
    from kinfolk_attention_fwd.reference import useful_flops

    return useful_flops(request, inputs)


@hookimpl
def kinfolk_check_outputs(
    request: Request, outputs: Mapping[str, Any], expected: Mapping[str, Any]
) -> Iterable[Finding]:
    """Return what is wrong with the outputs beyond their tolerance: rows that must be empty."""
    if not isinstance(request, AttentionFwdRequest):
        return ()
    from kinfolk_attention_fwd.reference import findings

    return findings(request, outputs, expected)
