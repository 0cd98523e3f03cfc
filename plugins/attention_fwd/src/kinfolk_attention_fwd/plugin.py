"""Forward attention as core sees it: its request, its candidates, its kernels, and how their outputs are judged."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from kinfolk.hooks import hookimpl
from kinfolk.refusal import Refusal, unmet
from kinfolk_attention_fwd.dense.spec import AttentionDenseSpec
from kinfolk_attention_fwd.request import AttentionFwdRequest

if TYPE_CHECKING:
    from kinfolk.arch import Arch
    from kinfolk.candidate import Candidate
    from kinfolk.check import Finding, Scenario
    from kinfolk.ir import Kernel
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

    return (DENSE,)


@hookimpl
def kinfolk_validate_spec(spec: Spec, arch: Arch) -> Iterable[Refusal]:
    """Return what makes a spec impossible on the arch."""
    from kinfolk_attention_fwd.dense import limits as dense

    return unmet(dense.SPEC_LIMITS, spec, arch, PLUGIN) if isinstance(spec, AttentionDenseSpec) else ()


@hookimpl
def kinfolk_emit_ir(spec: Spec, arch: Arch) -> Kernel | None:
    """Return the kernel of a spec."""
    if not isinstance(spec, AttentionDenseSpec):
        return None
    from kinfolk_attention_fwd.dense.kernel import emit_dense

    return emit_dense(spec, arch)


@hookimpl
def kinfolk_gate_resources(usage: Usage, spec: Spec, arch: Arch) -> Iterable[Refusal]:
    """Return what the compiled kernel takes beyond its schedule's budget, in the figures the arch declares."""
    from kinfolk_attention_fwd.dense import limits as dense

    if not isinstance(spec, AttentionDenseSpec):
        return ()
    declared = [limit for limit in dense.LIMITS.of_resources(spec) if limit.field in usage.figures]
    return unmet(declared, SimpleNamespace(**usage.figures), arch, PLUGIN)


@hookimpl
def kinfolk_scenarios(request: Request) -> Iterable[Scenario]:
    """Return the inputs on which the kernels of a request are run."""
    if not isinstance(request, AttentionFwdRequest):
        return ()
    from kinfolk_attention_fwd.paged_scenarios import paged_scenarios
    from kinfolk_attention_fwd.scenarios import dense_scenarios

    return (*dense_scenarios(request), *paged_scenarios(request))


@hookimpl
def kinfolk_mutation_requests(arch: Arch) -> Iterable[Request]:
    """Return small requests for each candidate."""
    from kinfolk_attention_fwd.scenarios import mutation_requests

    return mutation_requests()


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
