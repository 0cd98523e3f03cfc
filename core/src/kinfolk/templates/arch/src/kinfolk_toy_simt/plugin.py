"""The arch as core sees it: its facts, atoms and ops, how kernels become code, and what compiled code may take."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Final

from kinfolk.arch import Arch
from kinfolk.banks import BankModel, Phases
from kinfolk.hooks import hookimpl
from kinfolk.refusal import unmet
from kinfolk_toy_simt import usage as usages
from kinfolk_toy_simt.atoms import MATRIX
from kinfolk_toy_simt.facts import FACTS
from kinfolk_toy_simt.lowering import LACKING, PROCESSOR, lower_kernel

if TYPE_CHECKING:
    from kinfolk.refusal import Refusal
    from kinfolk.spec import Spec
    from kinfolk.usage import Usage

DISTRIBUTION: Final = "kinfolk-toy-simt"

BANKS: Final = BankModel(
    banks=int(FACTS["lds_banks"]),
    bank_bytes=int(FACTS["lds_bank_bytes"]),
    bytes_per_clock=int(FACTS["lds_bytes_per_clock"]),
    widest=int(FACTS["max_access_bytes"]),
    phases=tuple(
        Phases(action=action, bytes=4, lanes=(tuple(range(32)),), source="made up") for action in ("read", "write")
    ),
    unmeasured="accesses of 4 bytes are served for all lanes together; nothing is said of any other",
)

ARCH: Final = Arch(
    name="toy_simt",
    target_ids=(PROCESSOR,),
    wave_size=int(FACTS["wave_size"]),
    facts=FACTS,
    matrix=MATRIX,
    ops=(),  # ops of its own beyond the atoms; `roles` says what they are good for
    roles={},
    lacking=LACKING,
    bounds={"workgroup_threads": "max_workgroup_size", "workgroup_bytes": "lds_bytes"},
    banks=BANKS,
    lower_kernel=lower_kernel,
    read_usage=usages.read_usage,
)


@hookimpl
def kinfolk_arch() -> Arch:
    """Return the arch."""
    return ARCH


@hookimpl
def kinfolk_gate_resources(usage: Usage, spec: Spec, arch: Arch) -> Iterable[Refusal]:
    """Refuse compiled code that the machine cannot hold; private memory is core's to refuse."""
    return unmet(usages.LIMITS, SimpleNamespace(**usage.figures), arch, DISTRIBUTION)
