"""Where a family keeps its goldens: the folder `goldens` in its package, installed with it."""

from __future__ import annotations

import os
import tempfile
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs

from kinfolk_runtime.goldens.document import KINDS, Document, GoldenError, Kind, file_name

if TYPE_CHECKING:
    from kinfolk.plugins.composition import Composition

FOLDER: Final = "goldens"
LEDGER: Final = "ledger.json"


@attrs.frozen(kw_only=True)
class Place:
    """The goldens of one family, whose package may lack them, or be no package at all (`folder` is None)."""

    family: str
    distribution: str
    folder: Traversable | None

    @classmethod
    def of(cls, composition: Composition) -> Place:
        """Return the place of a composition's family."""
        offer = next(member.offer for member in composition.members if member.offer.kind == "family")
        try:
            folder = resources.files(offer.module.partition(".")[0]).joinpath(FOLDER)
        except (ImportError, TypeError):
            folder = None
        return cls(family=offer.name, distribution=offer.distribution, folder=folder)

    def text(self, name: str) -> str | None:
        """Return a file's text; None where there is no such file. Raises GoldenError where it is not UTF-8."""
        if self.folder is None or not self.folder.joinpath(name).is_file():
            return None
        try:
            return self.folder.joinpath(name).read_bytes().decode()
        except ValueError as error:
            raise GoldenError(f"{name} of {self.family} is garbled: {error}") from error

    def names(self) -> tuple[str, ...]:
        """Return the names of all JSON files."""
        if self.folder is None or not self.folder.is_dir():
            return ()
        return tuple(sorted(each.name for each in self.folder.iterdir() if each.name.endswith(".json")))

    def document(self, kind: Kind, arch: str) -> Document | None:
        """Return what is blessed for an arch; None where nothing is. Raises GoldenError for a file that is none."""
        text = self.text(file_name(kind, arch))
        return None if text is None else Document.read(text, kind, self.family, arch)

    def archs(self) -> tuple[str, ...]:
        """Return the archs for which there are files."""
        names = self.names()
        found = [
            name.removesuffix(f".{kind}.json") for kind in KINDS for name in names if name.endswith(f".{kind}.json")
        ]
        return tuple(sorted(set(found)))

    def strangers(self) -> tuple[str, ...]:
        """Return the names of JSON files that are no goldens and no ledger."""
        known = {LEDGER, *(file_name(kind, arch) for arch in self.archs() for kind in KINDS)}
        return tuple(name for name in self.names() if name not in known)

    def write(self, name: str, text: str) -> Path:
        """Write a file whole or not at all, and return its path. Raises GoldenError where the package is no folder."""
        if not isinstance(self.folder, Path):
            raise GoldenError(f"the family {self.family} is in no package with a folder, in which goldens are kept")
        try:
            self.folder.mkdir(exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=self.folder, prefix=f"{name}-", delete=False) as file:
                file.write(text.encode())
            os.chmod(file.name, 0o644)
            os.replace(file.name, self.folder / name)
        except OSError as error:
            raise GoldenError(f"{self.folder / name} cannot be written: {error.strerror}") from error
        return self.folder / name
