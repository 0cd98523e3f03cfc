"""MLA as core sees it: its request, its candidates, its kernels, and how their outputs are judged."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from kinfolk.hooks import hookimpl
from kinfolk.refusal import Refusal, unmet
from kinfolk_mla.absorbed.spec import MlaAbsorbSpec, MlaProjectSpec, MlaTokensSpec
from kinfolk_mla.combine.spec import MlaCombineSpec
from kinfolk_mla.prefill.spec import MlaExpandSpec, MlaPrefillSpec, MlaProjectedSpec
from kinfolk_mla.request import MlaRequest
from kinfolk_mla.spec import MlaDecodeSpec
from kinfolk_mla.wide.spec import MlaGroupedSpec, MlaPipelinedSpec, MlaWideSpec

if TYPE_CHECKING:
    from kinfolk.arch import Arch
    from kinfolk.candidate import Candidate
    from kinfolk.check import Finding, Scenario
    from kinfolk.ir import Kernel
    from kinfolk.request import Request
    from kinfolk.spec import Spec
    from kinfolk.usage import Usage

PLUGIN = "kinfolk-mla"


@hookimpl
def kinfolk_request_type() -> type[MlaRequest]:
    """Return the request class."""
    return MlaRequest


@hookimpl
def kinfolk_candidates(arch: Arch) -> Iterable[Candidate]:
    """Return the candidates; what an arch lacks for one is a refusal of its specs there."""
    from kinfolk_mla.absorbed.plan import ABSORBED
    from kinfolk_mla.decode.candidate import DECODE
    from kinfolk_mla.prefill.plan import PREFILL
    from kinfolk_mla.wide.plan import GROUPED, PIPELINED

    return (PIPELINED, GROUPED, DECODE, PREFILL, *ABSORBED)


@hookimpl
def kinfolk_validate_spec(spec: Spec, arch: Arch) -> Iterable[Refusal]:
    """Return what makes a spec impossible on the arch."""
    from kinfolk_mla.absorbed import limits as absorbed
    from kinfolk_mla.combine import limits as combine
    from kinfolk_mla.decode import limits as decode
    from kinfolk_mla.prefill import limits as prefill
    from kinfolk_mla.wide import limits as wide

    if isinstance(spec, MlaCombineSpec):
        return unmet(combine.SPEC_LIMITS, spec, arch, PLUGIN)
    if isinstance(spec, MlaTokensSpec):
        return unmet(absorbed.SPEC_LIMITS[type(spec)], spec, arch, PLUGIN)
    if isinstance(spec, MlaProjectedSpec):
        return unmet(prefill.SPEC_LIMITS[type(spec)], spec, arch, PLUGIN)
    if isinstance(spec, MlaWideSpec):
        return unmet(wide.spec_limits(spec), spec, arch, PLUGIN)
    return unmet(decode.SPEC_LIMITS[type(spec)], spec, arch, PLUGIN) if isinstance(spec, MlaDecodeSpec) else ()


@hookimpl
def kinfolk_emit_ir(spec: Spec, arch: Arch) -> Kernel | None:
    """Return the kernel of a spec."""
    if isinstance(spec, MlaCombineSpec):
        from kinfolk_mla.combine.kernel import emit_combine

        return emit_combine(spec, arch)
    if isinstance(spec, MlaAbsorbSpec):
        from kinfolk_mla.absorbed.absorb import emit_absorb

        return emit_absorb(spec, arch)
    if isinstance(spec, MlaProjectSpec):
        from kinfolk_mla.absorbed.project import emit_project

        return emit_project(spec, arch)
    if isinstance(spec, MlaExpandSpec):
        from kinfolk_mla.prefill.expand import emit_expand

        return emit_expand(spec, arch)
    if isinstance(spec, MlaPrefillSpec):
        from kinfolk_mla.prefill.attend import emit_prefill

        return emit_prefill(spec, arch)
    if isinstance(spec, MlaGroupedSpec):
        from kinfolk_mla.wide.grouped import emit_grouped

        return emit_grouped(spec, arch)
    if isinstance(spec, MlaPipelinedSpec):
        from kinfolk_mla.wide.pipelined import emit_pipelined

        return emit_pipelined(spec, arch)
    if isinstance(spec, MlaDecodeSpec):
        from kinfolk_mla.decode.kernel import emit_decode

        return emit_decode(spec, arch)
    return None


@hookimpl
def kinfolk_gate_resources(usage: Usage, spec: Spec, arch: Arch) -> Iterable[Refusal]:
    """Return what the compiled kernel takes beyond its schedule's budget, in the figures the arch declares."""
    from kinfolk_mla.absorbed import limits as absorbed
    from kinfolk_mla.combine import limits as combine
    from kinfolk_mla.decode import limits as decode
    from kinfolk_mla.prefill import limits as prefill
    from kinfolk_mla.wide import limits as wide

    if isinstance(spec, MlaCombineSpec):
        limits = combine.RESOURCE_LIMITS
    elif isinstance(spec, MlaTokensSpec):
        limits = absorbed.resource_limits(spec)
    elif isinstance(spec, MlaWideSpec):
        limits = wide.resource_limits(spec)
    elif isinstance(spec, MlaDecodeSpec):
        limits = decode.resource_limits(spec)
    elif isinstance(spec, MlaExpandSpec | MlaPrefillSpec):
        limits = prefill.resource_limits(spec)
    else:
        return ()
    declared = [limit for limit in limits if limit.field in usage.figures]
    return unmet(declared, SimpleNamespace(**usage.figures), arch, PLUGIN)


@hookimpl
def kinfolk_scenarios(request: Request) -> Iterable[Scenario]:
    """Return the inputs on which the kernels of a request are run."""
    from kinfolk_mla.addresses import address_scenarios
    from kinfolk_mla.prefill.scenarios import prefill_scenarios
    from kinfolk_mla.scenarios import decode_scenarios
    from kinfolk_mla.unchecked import unchecked_scenarios

    if not isinstance(request, MlaRequest):
        return ()
    if not request.absorbed_query:
        return prefill_scenarios(request)
    return (*decode_scenarios(request), *unchecked_scenarios(request), *address_scenarios(request))


@hookimpl
def kinfolk_mutation_requests(arch: Arch) -> Iterable[Request]:
    """Return small requests for each candidate."""
    from kinfolk_mla.prefill.scenarios import prefill_mutation_requests
    from kinfolk_mla.scenarios import mutation_requests

    return (*mutation_requests(arch), *prefill_mutation_requests())


@hookimpl
def kinfolk_reference(request: Request, inputs: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return what the queries must give, in fp64, with the error that each element may have."""
    if not isinstance(request, MlaRequest):
        return None
    from kinfolk_mla.prefill_reference import projected_reference
    from kinfolk_mla.reference import decode_reference

    return decode_reference(request, inputs) if request.absorbed_query else projected_reference(request, inputs)


@hookimpl
def kinfolk_useful_flops(request: Request, candidate: str, inputs: Mapping[str, Any]) -> int | None:
    """Return the operations of attention over the keys that the queries see, and of what projected queries need beside
    it: keys and values formed, or queries absorbed and outputs projected.
    """
    if not isinstance(request, MlaRequest):
        return None
    from kinfolk_mla.absorbed.limits import is_over_latent_rows
    from kinfolk_mla.prefill_reference import absorbing_flops, projected_flops
    from kinfolk_mla.reference import useful_flops

    if request.absorbed_query:
        return useful_flops(request, inputs)
    over_latent_rows = is_over_latent_rows(candidate)
    return absorbing_flops(request, inputs) if over_latent_rows else projected_flops(request, inputs)


@hookimpl
def kinfolk_check_outputs(
    request: Request, outputs: Mapping[str, Any], expected: Mapping[str, Any]
) -> Iterable[Finding]:
    """Return what is wrong with the outputs beyond their tolerance: a miscounted page id, rows that must be empty."""
    if not isinstance(request, MlaRequest):
        return ()
    from kinfolk_mla.reference import decode_findings

    return decode_findings(outputs, expected)
