"""Writing goldens anew: what is emitted and compiled now becomes what is approved of, with a reason in the ledger."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from kinfolk.flavor import flavors
from kinfolk_runtime.goldens.check import Host, Step, section_name
from kinfolk_runtime.goldens.compare import Where, moved
from kinfolk_runtime.goldens.document import KINDS, Document, GoldenError, Kind, Section
from kinfolk_runtime.goldens.ledger import Ledger
from kinfolk_runtime.goldens.place import LEDGER, Place
from kinfolk_runtime.goldens.present import Present, emitted, measured
from kinfolk_runtime.spec_space import spec_space

if TYPE_CHECKING:
    from kinfolk.plugins.composition import Composition


@attrs.frozen(kw_only=True)
class Blessed:
    """One file that was written, and in a line each what moved in it."""

    path: Path
    moved: tuple[str, ...]


@attrs.frozen(kw_only=True)
class _Draft:
    """A document that is to be written over the one there was, and by what it was made."""

    place: Place
    document: Document
    before: Mapping[str, Section]
    tools: Mapping[str, str]

    def moved(self) -> tuple[str, ...]:
        """Return what the document changes, section by section."""
        now = self.document.sections
        lines: list[str] = []
        for name in dict.fromkeys((*self.before, *now)):
            where = Where(kind=self.document.kind, family=self.document.family, arch=self.document.arch, section=name)
            lines += moved(self.before.get(name), now.get(name), where)
        return tuple(lines)


def bless(
    compositions: Iterable[Composition],
    host: Host,
    reason: str,
    *,
    kinds: Sequence[Kind] = KINDS,
    step: Step = lambda name: None,
) -> tuple[Blessed, ...]:
    """Make what families emit now, and what this host's toolchains compile it to, their goldens; return what moved.

    Figures of builds that are not here are kept where they are of the code of now, and dropped where they are not.
    Raises GoldenError, with nothing written, where there is no reason, no spec, or a kernel that does not compile or
    that the gate refuses.
    """
    if not reason.strip():
        raise GoldenError("a blessing needs a reason: what moved, and why that is right")
    drafts: list[_Draft] = []
    for composition in compositions:
        place = Place.of(composition)
        digests = _digests(composition, step)
        if "digests" in kinds:
            drafts.append(_draft(composition, place, "digests", digests, {}))
        if "figures" in kinds:
            sections, builds = _figures(composition, place, host, digests, step)
            drafts.append(_draft(composition, place, "figures", sections, builds))
    if not drafts:
        raise GoldenError("no family, or no arch, is installed: there is nothing to bless")
    for draft in drafts:
        if torn := Ledger.read(draft.place).torn(draft.document.name):
            raise GoldenError(f"{LEDGER} of {draft.place.family} is torn, restore it first: {torn}")
    return tuple(written for draft in drafts for written in _write(draft, reason.strip()))


def _draft(
    composition: Composition, place: Place, kind: Kind, sections: Mapping[str, Section], builds: Mapping[str, str]
) -> _Draft:
    arch = composition.arch.name
    document = Document(kind=kind, family=place.family, arch=arch, sections=dict(sorted(sections.items())))
    tools = {**dict(sorted(composition.versions.items())), **builds}
    return _Draft(place=place, document=document, before=_before(place, kind, arch), tools=tools)


def _before(place: Place, kind: Kind, arch: str) -> Mapping[str, Section]:
    """Return what was blessed; a file that cannot be read is replaced like one that is not there."""
    try:
        document = place.document(kind, arch)
    except GoldenError:
        return {}
    return document.sections if document else {}


def _digests(composition: Composition, step: Step) -> dict[str, Section]:
    of = f"{composition.family} on {composition.arch.name}"
    names = [flavor.name for flavor in flavors()]
    step(f"{of}, {' and '.join(names)}")
    present = emitted(composition, {name: spec_space(composition, name) for name in names})
    return {name: _sound(found, f"{of}, {name}") for name, found in present.items()}


def _figures(
    composition: Composition, place: Place, host: Host, digests: Mapping[str, Section], step: Step
) -> tuple[dict[str, Section], dict[str, str]]:
    """Return the sections of every lane of this host, with those of other builds that are still of the code of now."""
    sections = {
        name: section
        for name, section in _before(place, "figures", composition.arch.name).items()
        if (now := digests.get(name.partition(" ")[0])) and section.of_code() == now.of_code()
    }
    builds: dict[str, str] = {}
    for name, flavor, toolchain in host.lanes():
        section = section_name(flavor, toolchain.build)
        where = f"{composition.family} on {composition.arch.name}, {section}"
        step(where)
        sections[section] = _sound(measured(composition, flavor, toolchain), where)
        if sections[section].of_code() != digests[flavor].of_code():
            raise GoldenError(
                f"{where}: the code that was compiled is not the code that is emitted; nothing is blessed"
            )
        builds[name] = toolchain.build
    return sections, builds


def _sound(present: Present, where: str) -> Section:
    """Return the section; GoldenError where a spec of it came to no row, or there is no spec."""
    if present.faults:
        faults = "".join(f"\n  {fault.spec.symbol()} ({fault.spec.digest()}): {fault.why}" for fault in present.faults)
        raise GoldenError(f"{where}: nothing is blessed, since not every kernel is sound:{faults}")
    if not present.section.specs:
        raise GoldenError(f"{where}: nothing is blessed, since no candidate has a spec")
    return present.section


def _write(draft: _Draft, reason: str) -> Iterable[Blessed]:
    """Write a document and its entry, unless it is there as it is and the ledger explains it."""
    place, name, text = draft.place, draft.document.name, draft.document.text()
    ledger = Ledger.read(place)
    try:
        found = place.text(name)
    except GoldenError:
        found = "garbled"
    fault = ledger.fault(name, found)
    if not fault and found is not None and found.replace("\r\n", "\n") == text:
        return
    lines = draft.moved()
    if fault:
        lines = (f"mended: {fault}", *lines)
    path = place.write(name, text)
    place.write(LEDGER, ledger.with_entry(name, text, reason, draft.tools, lines).text())
    yield Blessed(path=path, moved=lines)
