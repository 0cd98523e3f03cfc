"""Kernels as compiled code: every one passes its gate, and is what was approved of."""

from __future__ import annotations

from kinfolk.testing.check import Findings, Outcome
from kinfolk.testing.subject import Subject
from kinfolk_runtime.goldens.check import Host, check
from kinfolk_runtime.goldens.place import LEDGER, Place
from kinfolk_runtime.spec_space import gated, spec_space
from kinfolk_runtime.toolchains.base import Toolchain
from kinfolk_runtime.toolchains.host import toolchain_for


def compiled(subject: Subject) -> Outcome:
    """Compile and gate specs: a few by the host's toolchain at level quick, all by every toolchain at full."""
    found = Findings("compile", "compiled kernels")
    for flavor, toolchain in _lanes(subject):
        specs = spec_space(subject.composed, flavor) if subject.full else subject.sampled_specs
        for each in gated(specs, flavor, composition=subject.sharing, toolchain=toolchain):
            found.looked_at()
            where = f"{type(each.spec).__name__} by {toolchain.build}"
            if each.error is not None:
                remedy = "Mend the emitter, or refuse the spec: a Limit that kinfolk_validate_spec judges"
                found.wrong(where, f"does not compile: {each.error}", remedy, str(each.spec), kind="error")
            for refusal in each.refusals:
                problem = f"the gate refuses its code: {refusal.sentence}"
                found.wrong(where, problem, refusal.remedy, str(each.spec), kind=refusal.code)
    return found.outcome()


def _lanes(subject: Subject) -> list[tuple[str, Toolchain]]:
    if not subject.full:
        return [(subject.flavor_name, toolchain_for(subject.flavor_name))]
    return [(flavor, toolchain) for _, flavor, toolchain in Host.found().lanes()]


def no_goldens(subject: Subject) -> str:
    """Return why there is nothing to compare: the family keeps no goldens, or none of an arch that is not its own."""
    place, arch = Place.of(subject.composed), subject.arch.name
    if any(name.startswith(f"{arch}.") for name in place.names()) or f'"{arch}.' in (place.text(LEDGER) or ""):
        return ""
    of = f" of {arch}" if place.names() else ""
    again = f"kinfolk golden bless {subject.name} --arch {arch} --reason '...'"
    return f"the family keeps no goldens{of} ({again} makes them)"


def goldens(subject: Subject) -> Outcome:
    """Compare digests of every flavor; at level full the figures of every toolchain of this host too."""
    found = Findings("goldens", "digests and figures")
    host = Host.found() if subject.full else Host(toolchains={})
    checked = check([subject.sharing], host)
    found.looked_at(checked.compared("digests") + (checked.compared("figures") if subject.full else 0))
    for finding in checked.findings:
        again = f"kinfolk golden bless {subject.name} --arch {subject.arch.name} --reason '...'"
        remedy = finding.mend or f"If the change is meant: {again}"
        found.wrong(str(finding.where), f"{finding.code}: {finding.what}", remedy)
    return found.outcome()
