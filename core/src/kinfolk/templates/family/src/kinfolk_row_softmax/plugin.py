"""Row softmax as core sees it: its request, its candidate, its kernel, and how its outputs are judged."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from kinfolk.hooks import hookimpl
from kinfolk_row_softmax.request import RowSoftmaxRequest
from kinfolk_row_softmax.spec import RowSoftmaxSpec

if TYPE_CHECKING:
    from kinfolk.arch import Arch
    from kinfolk.candidate import Candidate
    from kinfolk.check import Finding, Scenario
    from kinfolk.ir import Kernel
    from kinfolk.request import Request
    from kinfolk.spec import Spec


@hookimpl
def kinfolk_request_type() -> type[RowSoftmaxRequest]:
    """Return the request class."""
    return RowSoftmaxRequest


@hookimpl
def kinfolk_candidates() -> Iterable[Candidate]:
    """Return the one candidate, the same on every arch."""
    from kinfolk_row_softmax.candidate import ONE_ROW_EACH

    return (ONE_ROW_EACH,)


@hookimpl
def kinfolk_emit_ir(spec: Spec, arch: Arch) -> Kernel | None:
    """Return the kernel of a spec."""
    if not isinstance(spec, RowSoftmaxSpec):
        return None
    from kinfolk_row_softmax.kernel import emit_row_softmax

    return emit_row_softmax(spec, arch)


@hookimpl
def kinfolk_scenarios(request: Request) -> Iterable[Scenario]:
    """Return the inputs on which a kernel is run."""
    from kinfolk_row_softmax.scenarios import row_softmax_scenarios

    return row_softmax_scenarios(request) if isinstance(request, RowSoftmaxRequest) else ()


@hookimpl
def kinfolk_reference(request: Request, inputs: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return what a kernel must give, in fp64, with the error that each element may have."""
    if not isinstance(request, RowSoftmaxRequest):
        return None
    from kinfolk_row_softmax.reference import row_softmax_reference

    return row_softmax_reference(request, inputs)


@hookimpl
def kinfolk_check_outputs(request: Request, outputs: Mapping[str, Any]) -> Iterable[Finding]:
    """Return what is wrong with the outputs beyond their tolerance: rows whose weights do not sum to 1."""
    if not isinstance(request, RowSoftmaxRequest):
        return ()
    from kinfolk_row_softmax.reference import row_softmax_findings

    return row_softmax_findings(request, outputs)
