"""Which sources the plugins of a composition are made of, and whether they are those that this process imported."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import json
import os
import re
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, cast
from weakref import WeakKeyDictionary

import attrs

from kinfolk.plugins.discovery import API_GROUP, CORE, canonical

if TYPE_CHECKING:
    from kinfolk.plugins.composition import Composition
    from kinfolk.plugins.loading import Loaded

MARGIN_SECONDS: Final = 1.0
"""A file system's clock ticks coarsely, and a process has imported nothing before it started."""


@attrs.frozen(kw_only=True)
class Sources:
    """The packages that emit and lower a kernel, and the digest over their files.

    What a process has imported cannot be read back. So a digest speaks for this process only while no file has changed
    since before the process began; that a file is old makes nothing valid, that it is young makes this of no use.
    """

    packages: tuple[str, ...]
    digest: str
    folders: tuple[Path, ...] = attrs.field(repr=False)

    @property
    def imported(self) -> bool:
        """Whether no file was changed, added or removed since this process began."""
        latest = _process_start() - MARGIN_SECONDS
        try:
            return all(os.stat(path).st_ctime < latest for folder in self.folders for path in _walk(folder))
        except OSError:
            return False

    def hold(self, owner: type) -> bool:
        """Return whether a class is defined in one of the packages."""
        return owner.__module__.partition(".")[0] in self.packages


_found: Final[WeakKeyDictionary[Composition, list[Sources | None]]] = WeakKeyDictionary()


def sources_of(composition: Composition) -> Sources | None:
    """Return the sources of core, family, arch, policies and what of ours they require.

    None where they cannot be told: a plugin that is an object with a state, was registered without a distribution, lies
    in an archive, or requires a package that is installed from a folder in which it is being edited.
    """
    found = _found.get(composition)
    if found is None:
        found = _found.setdefault(composition, [_read(composition)])
    return found[0]


class _UntoldError(Exception):
    """What a plugin is made of cannot be told."""


def _read(composition: Composition) -> Sources | None:
    packages: set[str] = set()
    versions: dict[str, str] = {"python": sys.implementation.cache_tag or sys.version}
    try:
        for member in composition.members:
            packages.add(_package(member))
            _require(member.offer.distribution, packages, versions)
        folders = tuple(folder for package in sorted(packages) for folder in _folders(package))
        digest = _digest_of([sorted(packages), sorted(versions.items())], folders)
    except (_UntoldError, OSError):
        return None
    return Sources(packages=tuple(sorted(packages)), digest=digest, folders=folders)


def package_digest(package: str) -> str | None:
    """Return the digest over all files of a package; None where they cannot be told."""
    try:
        return _digest_of([package], tuple(_folders(package)))
    except (_UntoldError, OSError):
        return None


def _digest_of(about: object, folders: Iterable[Path]) -> str:
    total = hashlib.sha256(json.dumps(about).encode())
    for folder in folders:
        for path in _walk(folder):
            if path.is_file():
                content = path.read_bytes()
                total.update(json.dumps([folder.name, path.relative_to(folder).as_posix(), len(content)]).encode())
                total.update(content)
    return total.hexdigest()


def _package(member: Loaded) -> str:
    if not isinstance(member.plugin, ModuleType):
        raise _UntoldError
    return member.plugin.__name__.partition(".")[0]


def _require(name: str, packages: set[str], versions: dict[str, str]) -> None:
    """Add what a distribution of ours is made of and requires, all the way down; of others their versions."""
    import importlib_metadata

    name = canonical(name)
    if name in versions:
        return
    try:
        dist: Any = importlib_metadata.distribution(name)
    except importlib_metadata.PackageNotFoundError as error:
        raise _UntoldError from error
    versions[name] = str(dist.version)
    ours = {str(entry.value) for entry in dist.entry_points if entry.group == API_GROUP}
    if name == CORE:
        ours.add("kinfolk")
    if not ours and _is_edited(dist.read_text("direct_url.json")):
        raise _UntoldError
    packages |= ours
    for requirement in cast("Iterable[str]", dist.requires or ()):
        required, marker = _requirement(requirement)
        if "extra" not in marker and _is_installed(required):
            _require(required, packages, versions)


def _requirement(text: str) -> tuple[str, str]:
    """Return name and marker of a requirement."""
    wanted, _, marker = text.partition(";")
    found = re.match(r"[\w.-]+", wanted.strip())
    if found is None:
        raise _UntoldError
    return found[0], marker


def _is_installed(name: str) -> bool:
    """Return whether a required distribution is there; one whose marker does not hold on this host is not."""
    import importlib_metadata

    try:
        importlib_metadata.distribution(name)
    except importlib_metadata.PackageNotFoundError:
        return False
    return True


def _is_edited(direct_url: str | None) -> bool:
    if direct_url is None:
        return False
    try:
        return bool(json.loads(direct_url).get("dir_info", {}).get("editable"))
    except (ValueError, AttributeError):
        return True


def _folders(package: str) -> Iterator[Path]:
    """Yield where a package's files lie; a module that is a single file, or in an archive, cannot be told."""
    spec = importlib.util.find_spec(package)
    places = list(spec.submodule_search_locations or ()) if spec else []
    if not places or not all(map(os.path.isdir, places)):
        raise _UntoldError
    yield from map(Path, places)


def _walk(folder: Path) -> Iterator[Path]:
    """Yield a folder and all below it in order, but for compiled Python; a linked folder is read as a folder."""
    yield folder
    for path in sorted(folder.iterdir()):
        if path.name == "__pycache__" or path.suffix == ".pyc":
            continue
        if path.is_dir():
            yield from _walk(path)
        else:
            yield path


@functools.cache
def _process_start() -> float:
    """Return when this process began, as time.time() counts; where the system does not say, when this was loaded.

    A forked process began when the one did that it is a copy of.
    """
    process, start = "self", _LOADED
    try:
        while True:
            fields = Path("/proc", process, "stat").read_text().rpartition(")")[2].split()
            began = int(fields[19]) / os.sysconf("SC_CLK_TCK")
            start = min(start, time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + began)
            parent = fields[1]
            if Path("/proc", parent, "cmdline").read_bytes() != Path("/proc/self/cmdline").read_bytes():
                return start
            process = parent
    except (OSError, ValueError, IndexError, AttributeError):
        return start


_LOADED: Final = time.time()
