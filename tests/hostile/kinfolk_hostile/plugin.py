"""The hostile family as core sees it; `plugin.NAME` is the one with the fault of that name."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Iterable, Mapping
from typing import Any
from unittest import mock

import attrs

from kinfolk.candidate import Candidate
from kinfolk.hooks import hookimpl
from kinfolk_hostile.faults import FAULTS, Fault
from kinfolk_row_softmax.candidate import ONE_ROW_EACH
from kinfolk_row_softmax.kernel import emit_row_softmax
from kinfolk_row_softmax.reference import row_softmax_findings
from kinfolk_row_softmax.spec import RowSoftmaxSpec

_EMITTING = threading.RLock()


class Hostile:
    """The hooks of the example, with one fault."""

    def __init__(self, fault: Fault) -> None:
        self.fault = fault
        self.candidate: Candidate = attrs.evolve(
            ONE_ROW_EACH,
            name="hostile.one_row_each",
            plugin="kinfolk-hostile",
            capability=fault.capability,
            plan=fault.plan,
            specs=fault.specs,
        )

    @hookimpl
    def kinfolk_request_type(self) -> Any:
        return self.fault.request

    @hookimpl
    def kinfolk_candidates(self) -> Iterable[Any]:
        return (self.candidate, *self.fault.others)

    @hookimpl
    def kinfolk_emit_ir(self, spec: Any, arch: Any) -> Any:
        if not isinstance(spec, RowSoftmaxSpec):
            return None
        with _EMITTING, contextlib.ExitStack() as patched:
            for owner, name, fault in self.fault.patches:
                patched.enter_context(mock.patch.object(owner, name, fault))
            if spec.parameters()[-1].name == "idle":
                return _with_idle(spec, arch)
            return self.fault.emit(spec, arch)

    @hookimpl
    def kinfolk_gate_resources(self, spec: Any) -> Iterable[Any]:
        return self.fault.gate if isinstance(spec, RowSoftmaxSpec) else ()

    @hookimpl
    def kinfolk_scenarios(self, request: Any) -> Iterable[Any]:
        return self.fault.scenarios(request)

    @hookimpl
    def kinfolk_reference(self, request: Any, inputs: Mapping[str, Any]) -> Any:
        return self.fault.reference(request, inputs)

    @hookimpl
    def kinfolk_check_outputs(self, request: Any, outputs: Mapping[str, Any]) -> Iterable[Any]:
        return row_softmax_findings(request, outputs)


def _with_idle(spec: Any, arch: Any) -> Any:
    """Return the example's kernel with one more parameter, which its body leaves alone."""
    from kinfolk_row_softmax import kernel as kernel_module

    build = kernel_module.build_kernel

    def padded(*given: Any, body: Any, **more: Any) -> Any:
        return build(*given, body=lambda *values: body(*values[:-1]), **more)

    with mock.patch.object(kernel_module, "build_kernel", padded):
        return emit_row_softmax(spec, arch)


@functools.cache
def _hostile(name: str) -> Hostile:
    return Hostile(FAULTS[name])


def __getattr__(name: str) -> Hostile:
    if name not in FAULTS:
        raise AttributeError(name)
    return _hostile(name)
