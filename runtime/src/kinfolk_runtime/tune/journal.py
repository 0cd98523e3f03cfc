"""What a search has scored, a line each, so that one that was interrupted goes on where it was."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from kinfolk_runtime.cache.sources import sources_of
from kinfolk_runtime.storage import storage_root
from kinfolk_runtime.tune.score import Scored

if TYPE_CHECKING:
    from kinfolk.plugins.composition import Composition
    from kinfolk.spec import Spec

FOLDER: Final = "tune"


class Journal:
    """Scores by spec, in a file to which each is added at once.

    They hold for one flavor, build and state of all sources; those of others stay in the file and are not read. A line
    that is damaged, such as the last one of a search that was killed, is left out.
    """

    def __init__(self, path: Path, about: dict[str, str]) -> None:
        self.path = path
        self._about = about
        self._known: dict[str, Scored] = {}
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except OSError:
            lines = []
        for line in lines:
            self._take(line)

    @classmethod
    def of(cls, composition: Composition, flavor: str, build: str) -> Journal:
        """Return the journal of a family on an arch, under the folder that caches are in."""
        name = f"{composition.family}-{composition.arch.name}-{flavor}.jsonl"
        sources = sources_of(composition)
        about = {"flavor": flavor, "build": build, "sources": sources.digest if sources else ""}
        return cls(storage_root() / FOLDER / name, about)

    def __len__(self) -> int:
        return len(self._known)

    def get(self, spec: Spec) -> Scored | None:
        """Return what was scored of a spec. Nothing is taken from where it cannot be told what plugins are made of."""
        return self._known.get(spec.digest()) if self._about.get("sources") else None

    def add(self, spec: Spec, scored: Scored) -> None:
        """Keep a score. Raises OSError where the file cannot be written."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        line = json.dumps({**self._about, "spec": spec.digest(), "symbol": spec.symbol(), "scored": scored.to_dict()})
        with self.path.open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")
        self._known[spec.digest()] = scored

    def _take(self, line: str) -> None:
        try:
            entry = cast("dict[str, Any]", json.loads(line))
            if all(entry[name] == value for name, value in self._about.items()):
                self._known[entry["spec"]] = Scored.from_dict(entry["scored"])
        except (ValueError, TypeError, KeyError, AttributeError):
            return
