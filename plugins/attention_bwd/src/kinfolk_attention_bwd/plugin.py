"""Attention's gradients as core sees them: their request, their candidate, their kernels, and how they are judged."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from kinfolk.hooks import hookimpl
from kinfolk.refusal import Refusal, unmet
from kinfolk_attention_bwd.request import AttentionBwdRequest
from kinfolk_attention_bwd.spec import BackwardSpec, KeysSpec, QueriesSpec, RowTermsSpec

if TYPE_CHECKING:
    from kinfolk.arch import Arch
    from kinfolk.candidate import Candidate
    from kinfolk.check import Finding, Scenario
    from kinfolk.ir import Kernel
    from kinfolk.refusal import Limit
    from kinfolk.request import Request
    from kinfolk.spec import Spec
    from kinfolk.usage import Usage

PLUGIN = "kinfolk-attention-bwd"


@hookimpl
def kinfolk_request_type() -> type[AttentionBwdRequest]:
    """Return the request class."""
    return AttentionBwdRequest


@hookimpl
def kinfolk_candidates(arch: Arch) -> Iterable[Candidate]:
    """Return the candidates; what an arch lacks for one is a refusal of its specs there."""
    from kinfolk_attention_bwd.plan import SPLIT

    return (SPLIT,)


@hookimpl
def kinfolk_validate_spec(spec: Spec, arch: Arch) -> Iterable[Refusal]:
    """Return what makes a spec impossible on the arch."""
    return unmet(_spec_limits(spec), spec, arch, PLUGIN)


def _spec_limits(spec: Spec) -> tuple[Limit, ...]:
    from kinfolk_attention_bwd import limits

    if isinstance(spec, KeysSpec):
        return limits.KEYS_LIMITS
    if isinstance(spec, QueriesSpec):
        return limits.QUERIES_LIMITS
    return limits.ROW_TERMS_LIMITS if isinstance(spec, RowTermsSpec) else ()


@hookimpl
def kinfolk_emit_ir(spec: Spec, arch: Arch) -> Kernel | None:
    """Return the kernel of a spec."""
    if isinstance(spec, KeysSpec):
        from kinfolk_attention_bwd.keys import emit_keys

        return emit_keys(spec, arch)
    if isinstance(spec, QueriesSpec):
        from kinfolk_attention_bwd.queries import emit_queries

        return emit_queries(spec, arch)
    if isinstance(spec, RowTermsSpec):
        from kinfolk_attention_bwd.row_terms import emit_row_terms

        return emit_row_terms(spec, arch)
    return None


@hookimpl
def kinfolk_gate_resources(usage: Usage, spec: Spec, arch: Arch) -> Iterable[Refusal]:
    """Return what the compiled kernel takes beyond its schedule's budget, in the figures the arch declares."""
    from kinfolk_attention_bwd.limits import resource_limits

    if not isinstance(spec, BackwardSpec):
        return ()
    limits = resource_limits(spec.waves, spec.workgroups_per_cu)
    declared = [limit for limit in limits if limit.field in usage.figures]
    return unmet(declared, SimpleNamespace(**usage.figures), arch, PLUGIN)


@hookimpl
def kinfolk_scenarios(request: Request) -> Iterable[Scenario]:
    """Return the inputs on which the kernels of a request are run."""
    if not isinstance(request, AttentionBwdRequest):
        return ()
    from kinfolk_attention_bwd.scenarios import scenarios

    return scenarios(request)


@hookimpl
def kinfolk_mutation_requests(arch: Arch) -> Iterable[Request]:
    """Return small requests."""
    from kinfolk_attention_bwd.scenarios import mutation_requests

    return mutation_requests()


@hookimpl
def kinfolk_reference(request: Request, inputs: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the gradients in fp64, with the error that each element may have."""
    if not isinstance(request, AttentionBwdRequest):
        return None
    from kinfolk_attention_bwd.reference import reference

    return reference(request, inputs)


@hookimpl
def kinfolk_useful_flops(request: Request, inputs: Mapping[str, Any]) -> int | None:
    """Return the operations of the five products over the keys that the queries see."""
    if not isinstance(request, AttentionBwdRequest):
        return None
    from kinfolk_attention_bwd.reference import useful_flops

    return useful_flops(request, inputs)


@hookimpl
def kinfolk_check_outputs(
    request: Request, outputs: Mapping[str, Any], expected: Mapping[str, Any]
) -> Iterable[Finding]:
    """Return what is wrong with the outputs beyond their tolerance: rows that must be exactly 0."""
    if not isinstance(request, AttentionBwdRequest):
        return ()
    from kinfolk_attention_bwd.reference import findings

    return findings(request, outputs, expected)
