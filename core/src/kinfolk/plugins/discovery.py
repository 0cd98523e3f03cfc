"""Which plugins are installed, read from distribution metadata; nothing of a plugin is imported here."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final, Protocol

import attrs

from kinfolk.errors import PluginError
from kinfolk.hooks import facts_schema, kinfolk_api
from kinfolk.plugins.faults import DISCOVERY_OFF, KINDS, PLURALS, State

CORE: Final = "kinfolk-core"
OWN: Final = (CORE, "kinfolk-runtime")
"""The distributions whose verbs stand, whoever offers verbs of the same names."""
API_GROUP: Final = "kinfolk.api"
FACTS_GROUP: Final = "kinfolk.facts_schema"
GROUPS: Final[Mapping[str, str]] = MappingProxyType({f"kinfolk.{PLURALS[kind]}": kind for kind in KINDS})

LOCK: Final = threading.RLock()
"""The one lock of plugin loading: over the catalog, over imports and over compositions."""


@attrs.frozen(kw_only=True)
class Offer:
    """One plugin as its distribution offers it.

    `value` is what would be imported, `module` or `module:attribute`. `api` and `facts_schema` are the integers, still
    as text, that the distribution declares for the package of that module. `location` is the real path of the folder
    that holds the metadata. `hides` names copies of the distribution that Python does not see because this one comes
    first. `registered` offers were given to `kinfolk.register`, a policy's with its `digest` where its files cannot be
    read.
    """

    kind: str
    name: str
    value: str
    distribution: str
    version: str
    api: tuple[str, ...] = ()
    facts_schema: tuple[str, ...] = ()
    location: str = ""
    hides: tuple[str, ...] = ()
    registered: bool = False
    digest: str = ""

    @property
    def module(self) -> str:
        """The module that is imported when the plugin is first used."""
        return self.value.partition(":")[0]

    def __str__(self) -> str:
        return f"{self.kind} {self.name} ({self.distribution} {self.version})"


@attrs.frozen(kw_only=True)
class Standing:
    """What metadata alone says of an offer: `ok` means that it may be imported."""

    state: State
    cause: str = ""


@attrs.frozen(kw_only=True)
class Catalog:
    """All offers by kind and name, and what is odd about the installation, a sentence each."""

    offers: Mapping[tuple[str, str], tuple[Offer, ...]]
    allowed: frozenset[str] | None = None
    notes: tuple[str, ...] = ()

    def names(self, kind: str) -> tuple[str, ...]:
        """Return the names offered for a kind, in order, whatever their state."""
        return tuple(sorted(name for known, name in self.offers if known == kind))

    def every(self) -> Iterator[Offer]:
        """Yield all offers."""
        for offers in self.offers.values():
            yield from offers

    def admits(self, offer: Offer) -> bool:
        """Return whether the allow list lets an offer in, by its own name or its distribution's."""
        if self.allowed is None or offer.registered or canonical(offer.distribution) == CORE:
            return True
        return any(word == offer.name or canonical(word) == canonical(offer.distribution) for word in self.allowed)

    def standing(self, offer: Offer) -> Standing:
        """Return how an offer stands before it is imported: allow list, then conflicts, then the two integers."""
        if not self.admits(offer):
            remedy = f"Add {offer.distribution} to it, or unset it."
            return Standing(state=State.NOT_ALLOWED, cause=f"KINFOLK_PLUGINS does not name it. {remedy}")
        rivals = [other for other in self.offers[offer.kind, offer.name] if self.admits(other)]
        own = [other for other in rivals if canonical(other.distribution) in OWN]
        if len(rivals) > 1 and offer.kind == "command" and len(own) == 1:
            if offer is not own[0]:
                cause = f"{own[0].distribution} has this verb, which no other distribution can take. Rename it."
                return Standing(state=State.CONFLICT, cause=cause)
        elif len(rivals) > 1:
            return Standing(state=State.CONFLICT, cause=conflict_of(rivals))
        cause = _integer_mismatch(offer, API_GROUP, offer.api, kinfolk_api, required=not offer.registered)
        facts_required = offer.kind == "arch" and not offer.registered
        cause = cause or _integer_mismatch(
            offer, FACTS_GROUP, offer.facts_schema, facts_schema, required=facts_required
        )
        return Standing(state=State.API, cause=cause) if cause else Standing(state=State.OK)


def conflict_of(rivals: Iterable[Offer]) -> str:
    """Return the sentence about several offers of one name: who offers it, and how to choose."""
    owners = sorted(f"{offer.distribution} {offer.version} ({offer.value})" for offer in rivals)
    names = sorted({offer.distribution for offer in rivals})
    choose = f"Uninstall one, or name one distribution in KINFOLK_PLUGINS ({' or '.join(names)})."
    if len(names) == 1:
        choose = f"Install {names[0]} again."
    return f"offered by {' and by '.join(owners)}. {choose}"


def _integer_mismatch(offer: Offer, group: str, declared: tuple[str, ...], ours: int, *, required: bool) -> str:
    """Return why an integer of the plugin is not core's, naming both sides, or nothing where they agree."""
    from kinfolk._version import __version__

    if canonical(offer.distribution) == CORE or (not declared and not required):
        return ""
    numbers = [int(text) for text in declared if text.isascii() and text.isdigit()]
    if ours in numbers and len(numbers) == len(declared):
        return ""
    core = f"{CORE} {__version__} has {group} {ours}"
    if not declared:
        remedy = f'Declare "{ours}" = "{offer.module.partition(".")[0]}" in its group {group}.'
        return f"{offer.distribution} {offer.version} declares no {group}, {core}. {remedy}"
    if len(numbers) != len(declared):
        return (
            f"{offer.distribution} {offer.version} declares {group} {', '.join(declared)}, which is no integer; {core}."
        )
    update = offer.distribution if max(numbers) < ours else CORE
    return (
        f"{offer.distribution} {offer.version} is written for {group} {', '.join(declared)}, {core}. Update {update}."
    )


def canonical(name: str) -> str:
    """Return a distribution's name as packaging compares it: lower case, runs of `-_.` as one `-`."""
    return re.sub(r"[-_.]+", "-", name).lower()


_catalogs: Final[list[Catalog]] = []  # none or one: the catalog as last read
_registered: Final[dict[tuple[str, str], Offer]] = {}


def catalog() -> Catalog:
    """Return the installed plugins; metadata is read once per process, and again after a registration."""
    for found in _catalogs:
        return found
    with LOCK:
        if not _catalogs:
            _catalogs.append(_read_catalog())
        return _catalogs[0]


def add(offer: Offer) -> None:
    """Add an offer that no metadata knows; the caller has checked it and holds `LOCK`."""
    _registered[offer.kind, offer.name] = offer
    _catalogs.clear()


class _Distribution(Protocol):
    """What is read of a distribution's metadata."""

    @property
    def name(self) -> str: ...
    @property
    def version(self) -> str: ...
    @property
    def entry_points(self) -> Iterable[Any]: ...
    def read_text(self, filename: str) -> str | None: ...
    def locate_file(self, path: str) -> object: ...


def _read_catalog() -> Catalog:
    offers: dict[tuple[str, str], list[Offer]] = {key: [offer] for key, offer in _registered.items()}
    notes: list[str] = []
    autoload = _autoload()
    for dist, location, hides in _distributions(notes):
        name = dist.name
        if not autoload and canonical(name) != CORE:
            continue
        for offer in _offers_of(dist, location, hides, notes):
            known = offers.setdefault((offer.kind, offer.name), [])
            if not any(_same(offer, other) for other in known):
                known.append(offer)
    if not autoload:
        notes.append(
            f"{DISCOVERY_OFF} (KINFOLK_DISABLE_AUTOLOAD=1): only kinfolk-core and what "
            "kinfolk.register was given are known"
        )
    allowed = _allowed()
    if allowed is not None and autoload:
        names = {name for _, name in offers}
        owners = {canonical(offer.distribution) for row in offers.values() for offer in row}
        missing = sorted(word for word in allowed if word not in names and canonical(word) not in owners)
        notes += [f"KINFOLK_PLUGINS names {word}, which nothing installed offers" for word in missing]
    return Catalog(offers={key: tuple(row) for key, row in offers.items()}, allowed=allowed, notes=tuple(notes))


def _same(offer: Offer, other: Offer) -> bool:
    """Return whether two offers are one thing seen twice.

    Registered and installed, or declared twice by one distribution.
    """
    if offer.value != other.value:
        return False
    if offer.registered or other.registered:
        return True
    return (canonical(offer.distribution), offer.version) == (canonical(other.distribution), other.version)


def _distributions(notes: list[str]) -> Iterator[tuple[_Distribution, str, tuple[str, ...]]]:
    """Yield each distribution that has entry points of ours once, with its real path and the copies it hides."""
    import importlib_metadata

    groups: dict[str, dict[tuple[str, str], _Distribution]] = {}
    first: dict[str, str] = {}
    found: Iterable[_Distribution] = importlib_metadata.distributions()  # pyright: ignore
    for dist in found:
        try:
            if "kinfolk." not in (dist.read_text("entry_points.txt") or ""):
                continue
            name, location = canonical(dist.name), os.path.realpath(str(dist.locate_file("")))
            if name not in first:
                seen = importlib_metadata.distribution(dist.name)
                first[name] = os.path.realpath(str(seen.locate_file("")))
            groups.setdefault(name, {}).setdefault((location, dist.version), dist)
        except Exception as error:  # noqa: BLE001 - whatever is wrong with one folder's metadata, the others are read
            notes.append(f"metadata that cannot be read was left out: {type(error).__name__}: {error}")
    for name, copies in sorted(groups.items()):
        hidden = tuple(f"{version} in {place}" for place, version in copies if place != first[name])
        for (location, _), dist in copies.items():
            if location == first[name]:
                yield dist, location, hidden


def _offers_of(dist: _Distribution, location: str, hides: tuple[str, ...], notes: list[str]) -> Iterator[Offer]:
    """Yield what one distribution offers; what cannot be read in its entry points becomes a note."""
    try:
        entries: list[tuple[str, str, str]] = [
            (entry.group, entry.name, _import_path(entry.value))
            for entry in dist.entry_points
            if entry.group.startswith("kinfolk.")
        ]
    except Exception as error:  # noqa: BLE001 - as above: one distribution's metadata is no other's business
        notes.append(f"the entry points of {dist.name} {dist.version} cannot be read: {type(error).__name__}: {error}")
        return
    for group, name, value in entries:
        if group in (API_GROUP, FACTS_GROUP):
            continue
        if group not in GROUPS:
            known = ", ".join([*GROUPS, API_GROUP, FACTS_GROUP])
            notes.append(f"{dist.name} {dist.version} uses the entry-point group {group}, which is not one of {known}")
            continue
        module = value.partition(":")[0]
        yield Offer(
            kind=GROUPS[group],
            name=name,
            value=value,
            distribution=dist.name,
            version=dist.version,
            api=_integers(entries, API_GROUP, module),
            facts_schema=_integers(entries, FACTS_GROUP, module),
            location=location,
            hides=hides,
        )


def _integers(entries: Iterable[tuple[str, str, str]], group: str, module: str) -> tuple[str, ...]:
    """Return the names in a group of integers whose value is the package that holds `module`."""
    return tuple(
        sorted({name for each, name, value in entries if each == group and f"{module}.".startswith(f"{value}.")})
    )


def _import_path(value: str) -> str:
    """Return an entry point's value without spaces and extras."""
    return re.sub(r"\s+", "", value.partition("[")[0])


def _autoload() -> bool:
    text = os.environ.get("KINFOLK_DISABLE_AUTOLOAD", "")
    if text not in ("", "0", "1"):
        raise PluginError(f"KINFOLK_DISABLE_AUTOLOAD is {text!r}, it takes 1 (discovery off) or 0")
    return text != "1"


def _allowed() -> frozenset[str] | None:
    """Return the words of KINFOLK_PLUGINS, each a plugin's or a distribution's name.

    None where it is unset or empty.
    """
    text = os.environ.get("KINFOLK_PLUGINS", "")
    return frozenset(filter(None, map(str.strip, text.split(",")))) if text else None
