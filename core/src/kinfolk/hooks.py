"""What core asks of the plugins it composes: one family, one arch, the active policies.

A plugin is a module (or an instance) whose functions carry the names below and `@hookimpl`. It may leave out hooks, and
within a hook arguments it does not need; a wrong argument name, an unknown `kinfolk_` name or a missing required hook
rejects the plugin as a whole. A hook needs no device, reads no file and no clock, and keeps no state between calls.
"""

# pyright: reportReturnType=false
# A hookspec has no body: pluggy reads its name and arguments.
from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import pluggy

if TYPE_CHECKING:
    from kinfolk.arch import Arch
    from kinfolk.candidate import Candidate
    from kinfolk.ir import Kernel
    from kinfolk.plan import Plan
    from kinfolk.refusal import Refusal
    from kinfolk.request import Request
    from kinfolk.spec import Spec
    from kinfolk.usage import Usage

kinfolk_api: Final = 1
"""The generation of these hooks.

A plugin's metadata names the one it is written for: `"1" = "its_package"` in `kinfolk.api`.
"""

facts_schema: Final = 1
"""The generation of the arch facts that families read. An arch's metadata names it in `kinfolk.facts_schema`."""

hookspec = pluggy.HookspecMarker("kinfolk")
hookimpl = pluggy.HookimplMarker("kinfolk")

REQUIRED: Final[Mapping[str, tuple[str, ...]]] = {
    "family": ("kinfolk_request_type", "kinfolk_candidates", "kinfolk_emit_ir", "kinfolk_reference"),
    "arch": ("kinfolk_arch",),
    "policy": (),
    "builtin": (),
}
"""The hooks without which a plugin of a kind is none."""

RESERVED: Final[Mapping[str, str]] = {
    "kinfolk_request_type": "family",
    "kinfolk_arch": "arch",
    "kinfolk_rank": "policy",
}
"""The hooks that only one kind of plugin may answer."""


@hookspec
def kinfolk_validate_spec(spec: Spec, arch: Arch) -> Iterable[Refusal]:
    """Return a refusal for everything that makes `spec` impossible on `arch`; empty means valid.

    All plugins are asked and every refusal is kept; one removes the candidate that planned this spec.
    """


@hookspec
def kinfolk_admit_candidate(request: Request, candidate: Candidate, plan: Plan, arch: Arch) -> Iterable[Refusal]:
    """Return a refusal for every limit of yours that `request` does not meet on `candidate`; empty means admitted.

    All plugins are asked and every refusal is kept.
    """


@hookspec
def kinfolk_emit_ir(spec: Spec, arch: Arch) -> Kernel | None:
    """Return the kernel of `spec`, or None where the spec is not this plugin's; exactly one plugin answers."""


@hookspec
def kinfolk_gate_resources(usage: Usage, spec: Spec, arch: Arch) -> Iterable[Refusal]:
    """Return a refusal for every resource of the compiled code that is outside what is allowed; all are kept."""


@hookspec
def kinfolk_reference(request: Request, inputs: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the outputs by definition in fp64, by name, or None where the request is not this plugin's.

    Exactly one plugin answers.
    """


@hookspec
def kinfolk_useful_flops(request: Request, candidate: str, inputs: Mapping[str, Any]) -> int | None:
    """Return the floating-point operations that these inputs need by definition, or None where that is not said.

    Multiplications and additions of matrix products alone, whatever a kernel does beyond them. `candidate` names the
    one that serves the request: where there are several ways to the same outputs, the operations are those of its way.
    At most one plugin answers.
    """


@hookspec
def kinfolk_check_outputs(request: Request, outputs: Mapping[str, Any], expected: Mapping[str, Any]) -> Iterable[Any]:
    """Return findings about `outputs` beyond the tolerance that core checks; all are kept, one fails the run."""


@hookspec
def kinfolk_candidates(arch: Arch) -> Iterable[Candidate]:
    """Return the candidates this plugin offers on `arch`; a name that two plugins offer is an error."""


@hookspec
def kinfolk_scenarios(request: Request) -> Iterable[Any]:
    """Return the named test inputs on which a kernel for `request` is run; a name given twice is an error."""


@hookspec
def kinfolk_mutation_requests(arch: Arch) -> Iterable[Request]:
    """Return small requests in whose scenarios mutants of the kernels are run, a candidate's smallest first.

    Together they should reach every line of an emitter: a shape of which a kernel does nothing but idle shows nothing.
    """


@hookspec
def kinfolk_rank(request: Request, survivors: Sequence[Any]) -> Sequence[Any] | None:
    """Return the survivors, best first, or None to keep their order; policies only, asked in order of their names.

    A policy leaves none out: what it does not want it refuses in `kinfolk_admit_candidate`, with the reason.
    """


@hookspec
def kinfolk_arch() -> Arch:
    """Return the arch: facts, target ids, ops, lowering; answered by the arch's plugin alone."""


@hookspec
def kinfolk_request_type() -> type[Request]:
    """Return the family's Request class; answered by the family's plugin alone."""
