"""Goldens against the kernels of now: digests of every flavor, figures of every toolchain that this host has."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

import attrs

from kinfolk.errors import KinfolkError
from kinfolk.flavor import flavors
from kinfolk.spec import Spec
from kinfolk_runtime.goldens.compare import Finding, Where, compared
from kinfolk_runtime.goldens.document import KINDS, GoldenError, Kind, Section
from kinfolk_runtime.goldens.ledger import Ledger
from kinfolk_runtime.goldens.place import LEDGER, Place
from kinfolk_runtime.goldens.present import Fault, Present, emitted, measured
from kinfolk_runtime.goldens.schedules import faults_of, stored
from kinfolk_runtime.spec_space import spec_space
from kinfolk_runtime.toolchains.base import Toolchain

if TYPE_CHECKING:
    from kinfolk.plugins.composition import Composition

State = Literal["as blessed", "differs", "not blessed", "not here"]
Step = Callable[[str], None]


UNREADABLE: Final = f"Restore {LEDGER} from version control: nothing can be blessed before."
NOT_HERE: Final = "Restore it from version control; it can be blessed where the arch is installed."


@attrs.frozen(kw_only=True)
class Host:
    """The toolchains of this host by name, and why each other one that is installed cannot be used."""

    toolchains: Mapping[str, Toolchain]
    absent: Mapping[str, str] = attrs.field(factory=dict[str, str])

    @classmethod
    def found(cls) -> Host:
        """Return every toolchain that is installed here and starts."""
        from kinfolk.plugins.loading import installed
        from kinfolk_runtime.toolchains.host import named_toolchain

        here: dict[str, Toolchain] = {}
        absent: dict[str, str] = {}
        for name in installed("toolchain"):
            try:
                toolchain = named_toolchain(name)
                assert toolchain.build
                here[name] = toolchain
            except KinfolkError as error:
                absent[name] = str(error)
        return cls(toolchains=here, absent=absent)

    def lanes(self) -> Iterator[tuple[str, str, Toolchain]]:
        """Yield each toolchain by name with each flavor that it compiles; one build counts once."""
        seen: set[tuple[str, str]] = set()
        for name, toolchain in self.toolchains.items():
            for flavor in toolchain.flavors:
                if (flavor, toolchain.build) not in seen:
                    seen.add((flavor, toolchain.build))
                    yield name, flavor, toolchain


def section_name(flavor: str, build: str) -> str:
    """Return under which name the figures of a flavor by a build are kept."""
    return f"{flavor} by {build}"


@attrs.frozen(kw_only=True)
class Lane:
    """One section that was compared: what of it, how many of its rows, and how it stands."""

    family: str
    arch: str
    kind: Kind | Literal["schedules"]
    section: str
    rows: int
    state: State


@attrs.define
class Checked:
    """What a check found. It passed where digests were compared and nothing was found."""

    lanes: list[Lane] = attrs.field(factory=list[Lane])
    findings: list[Finding] = attrs.field(factory=list[Finding])
    notes: list[str] = attrs.field(factory=list[str])

    def compared(self, kind: Kind | Literal["schedules"]) -> int:
        """Return how many rows of a kind were compared with blessed ones."""
        return sum(lane.rows for lane in self.lanes if lane.kind == kind and lane.state in ("as blessed", "differs"))

    @property
    def passed(self) -> bool:
        """Whether something was compared and nothing was found."""
        return self.compared("digests") > 0 and not self.findings


def check(
    compositions: Iterable[Composition], host: Host, *, required: Sequence[str] = (), step: Step = lambda name: None
) -> Checked:
    """Compare the goldens of families on archs with what they emit now and what this host's toolchains make of it.

    A build that nobody has blessed is a state; that of a `required` toolchain, by name, is a finding, and so is one
    that is missing. Figures of builds that are not here are only held against the IR that they are of.
    """
    every = tuple(compositions)
    checked, places = Checked(), dict[str, Place]()
    for name in required:
        if name not in host.toolchains:
            why = host.absent.get(name, "no distribution offers it")
            where = Where(kind="figures")
            checked.findings.append(Finding(code="toolchain.error", where=where, what=f"{name} is required: {why}"))
    for composition in every:
        place = Place.of(composition)
        if places.setdefault(place.family, place) is place:
            _folder(place, {each.arch.name for each in every}, checked)
        _Pair(composition, place, host, frozenset(required), checked, step).check()
    if not checked.compared("digests"):
        checked.findings.append(Finding(code="digests.zero", where=Where(kind="digests"), what="nothing was compared"))
    return checked


def _folder(place: Place, archs: set[str], checked: Checked) -> None:
    """Find files that the ledger does not explain, and files that are none; note those of archs that are not here."""
    from kinfolk.plugins.loading import installed

    where = Where(kind="digests", family=place.family)
    here = {*archs, *installed("arch")}
    for name in place.strangers():
        what = f"{name} is no file of goldens"
        checked.findings.append(Finding(code="digests.extra", where=where, what=what, mend="Delete it."))
    for arch in place.archs():
        if arch not in here:
            checked.notes.append(f"{place.family} on {arch}: not compared, since the arch is not installed")
    try:
        ledger = Ledger.read(place)
    except GoldenError as error:
        checked.findings.append(Finding(code="ledger.garbled", where=where, what=str(error), mend=UNREADABLE))
        return
    for name in dict.fromkeys((*place.names(), *ledger.files())):
        arch, _, kind = name.removesuffix(".json").rpartition(".")
        if kind not in KINDS:
            continue
        try:
            fault = ledger.fault(name, place.text(name))
        except GoldenError:
            continue  # found where it is compared
        if fault:
            where = Where(kind=kind, family=place.family, arch=arch)
            mend = UNREADABLE if ledger.torn(name) else "" if arch in here else NOT_HERE
            checked.findings.append(Finding(code="ledger.broken", where=where, what=fault, mend=mend))


@attrs.frozen
class _Pair:
    """The check of one family on one arch."""

    composition: Composition
    place: Place
    host: Host
    required: frozenset[str]
    checked: Checked
    step: Step

    def check(self) -> None:
        blessed = {kind: self._document(kind) for kind in KINDS}
        now = self._digests(blessed["digests"])
        unmoved = {each for each in now if self._stands("digests", each)}
        self._figures(blessed["figures"], {flavor: now[flavor] for flavor in unmoved})
        self._schedules()

    def _stands(self, kind: Kind, section: str) -> bool:
        """Return whether nothing was found in a section."""
        return all(finding.where != self._where(kind, section) for finding in self.checked.findings)

    def _where(self, kind: Kind | Literal["schedules"], section: str = "") -> Where:
        return Where(kind=kind, family=self.place.family, arch=self.composition.arch.name, section=section)

    def _find(self, code: str, where: Where, what: str, **about: Any) -> None:
        self.checked.findings.append(Finding(code=code, where=where, what=what, **about))

    def _faults(self, where: Where, faults: Iterable[Fault]) -> None:
        for fault in faults:
            spec, symbol = fault.spec.digest(), fault.spec.symbol()
            self._find(f"{where.kind}.error", where, f"{symbol} ({spec}): {fault.why}", spec=spec, symbol=symbol)

    def _document(self, kind: Kind) -> Mapping[str, Section]:
        """Return the blessed sections, none where there is no file or none that can be read."""
        where, arch = self._where(kind), self.composition.arch.name
        try:
            document = self.place.document(kind, arch)
        except GoldenError as error:
            self._find(f"{kind}.garbled", where, str(error))
            return {}
        return document.sections if document else {}

    def _digests(self, blessed: Mapping[str, Section]) -> dict[str, Section]:
        """Compare the digests of every registered flavor and return them as they are now."""
        now: dict[str, Section] = {}
        spaces: dict[str, Sequence[Spec]] = {}
        for flavor in (flavor.name for flavor in flavors()):
            where = self._where("digests", flavor)
            self.step(str(where))
            try:
                spaces[flavor] = spec_space(self.composition, flavor)
            except KinfolkError as error:
                self._find("digests.error", where, f"{type(error).__name__}: {error}")
                spaces[flavor] = ()
        for flavor, present in emitted(self.composition, spaces).items():
            where = self._where("digests", flavor)
            now[flavor] = present.section
            if not present.section.specs:
                self._find("digests.zero", where, "no candidate has a spec, so there is nothing to compare")
            self._compare(blessed.get(flavor), present, where)
        for flavor in blessed.keys() - now.keys():
            where = self._where("digests", flavor)
            self._find("digests.extra", where, f"it is blessed, and no flavor {flavor} is known")
        return now

    def _figures(self, blessed: Mapping[str, Section], now: Mapping[str, Section]) -> None:
        """Compare the figures of every lane of this host, and hold those of other builds against the code of now."""
        seen: set[str] = set()
        for name, flavor, toolchain in self.host.lanes():
            section = section_name(flavor, toolchain.build)
            seen.add(section)
            where = self._where("figures", section)
            self.step(str(where))
            present = self._present(where, lambda f=flavor, t=toolchain: measured(self.composition, f, t))
            if section in blessed:
                self._compare(blessed[section], present, where)
                self._fresh(blessed[section], now.get(flavor), where)
                continue
            self._faults(where, present.faults)
            what = f"nobody has blessed the figures of this build{_beside(blessed, flavor, present.section, where)}"
            self._lane(where, len(present.section.rows), "not blessed")
            if name in self.required:
                self._find("figures.missing", where, what)
            else:
                self.checked.notes.append(f"{where}: {what}")
        for section in blessed:
            if section not in seen:
                where = self._where("figures", section)
                self._fresh(blessed[section], now.get(section.partition(" ")[0]), where)
                self._lane(where, len(blessed[section].rows), "not here")

    def _schedules(self) -> None:
        """Measure the stored schedules of every flavor again, by the build that scored them where it is here."""
        for flavor in (flavor.name for flavor in flavors()):
            entries = stored(self.composition, flavor)
            lanes = [toolchain for _, of, toolchain in self.host.lanes() if of == flavor]
            if not entries:
                continue
            where = self._where("schedules", flavor)
            self.step(str(where))
            if not lanes:
                self._lane(where, len(entries), "not here")
                continue
            builds = {entry.build for entry in entries}
            toolchain = next((each for each in lanes if each.build in builds), lanes[0])
            before = len(self.checked.findings)
            for fault in faults_of(self.composition, flavor, entries, toolchain):
                self._find(fault.code, where, fault.what, symbol=fault.symbol, mend=f"Search again: {where.command}")
            self._lane(where, len(entries), "as blessed" if len(self.checked.findings) == before else "differs")

    def _present(self, where: Where, ask: Callable[[], Present]) -> Present:
        try:
            return ask()
        except KinfolkError as error:
            self._find(f"{where.kind}.error", where, f"{type(error).__name__}: {error}")
            return Present(section=Section.of((), ()))

    def _compare(self, blessed: Section | None, present: Present, where: Where) -> None:
        failed = {fault.spec.digest() for fault in present.faults}
        before = len(self.checked.findings)
        self._faults(where, present.faults)
        found = [each for each in compared(blessed, present.section, where) if each.spec not in failed]
        self.checked.findings += found
        state: State = "as blessed" if len(self.checked.findings) == before else "differs"
        self._lane(where, len(present.section.rows), state if blessed else "not blessed")

    def _fresh(self, figures: Section, digests: Section | None, where: Where) -> None:
        """Find figures that are of other LLVM IR than is emitted, of specs that nobody has, or of too few.

        Nothing is said where the digests (None then) moved: figures are blessed after them.
        """
        of, emitted_now = figures.of_code(), digests.of_code() if digests else figures.of_code()
        if of != emitted_now:
            stale = len(set(of) - set(emitted_now)) or len(set(emitted_now) - set(of))
            what = f"{stale} of {len(of)} rows are figures of other code than is emitted now"
            self._find("figures.stale", where, what if stale else "its rows are in another order than the specs")

    def _lane(self, where: Where, rows: int, state: State) -> None:
        lane = Lane(
            family=where.family, arch=where.arch, kind=where.kind, section=where.section, rows=rows, state=state
        )
        self.checked.lanes.append(lane)


def _beside(blessed: Mapping[str, Section], flavor: str, now: Section, where: Where) -> str:
    """Return how figures stand beside those of another build of the flavor, of the same toolchain if there is one."""
    tool, others = _tool(where.section), [name for name in blessed if name.startswith(f"{flavor} by ")]
    if not others:
        return ", nor those of another"
    name = min(others, key=lambda name: (_tool(name) != tool, name))
    found = [each for each in compared(blessed[name], now, where) if each.field]
    other = name.partition(" by ")[2]
    why = "a blessing is of one exact build, since builds of one version have differed"
    if not found:
        return f" ({why}); all {len(now.rows)} rows are equal to those of {other}"
    return (
        f" ({why}); they differ from those of {other} in {len(found)} values, first {found[0].what}: "
        "compare them, and bless only if none is worse"
    )


def _tool(section: str) -> str:
    """Return `llc` of `llvm22 by llc-22.1.8/debian-f69db8bc5ace`."""
    return section.partition(" by ")[2].partition("-")[0]
