"""Outcomes of earlier runs, kept in the cache, so that a run of all mutants goes on where it was broken off."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING

import attrs

from kinfolk_runtime.artifact import sha256
from kinfolk_runtime.cache.sources import package_digest, sources_of
from kinfolk_runtime.cache.store import MUTATION, SCHEMA, stores
from kinfolk_runtime.mutation.outcome import Outcome

if TYPE_CHECKING:
    from kinfolk.plugins.composition import Composition
    from kinfolk.request import Request
    from kinfolk.testing.mutation import Mutant


@attrs.frozen
class Journal:
    """Outcomes by kernel and mutant, as long as core, family, arch and runtime are the same files.

    They hold for the requests that mutants were run in: another number of tokens may notice what these did not.
    """

    sources: str

    @classmethod
    def of(cls, composition: Composition, requests: Iterable[Request]) -> Journal | None:
        """Return the journal of a composition; None where what it is made of cannot be told, or has been edited."""
        stores()
        sources, runtime = sources_of(composition), package_digest("kinfolk_runtime")
        if sources is None or runtime is None or not sources.imported:
            return None
        asked = [request.to_json() for request in requests]
        return cls(sha256(json.dumps([SCHEMA, sources.digest, runtime, asked]).encode()))

    def _key(self, ir: str, mutant: Mutant) -> str:
        return sha256(json.dumps([self.sources, ir, str(mutant), mutant.name]).encode())

    def read(self, ir: str, mutant: Mutant) -> Outcome | None:
        """Return what is known of a mutant."""
        kept = MUTATION.read(self._key(ir, mutant))
        if kept is None:
            return None
        try:
            return Outcome.from_dict(json.loads(kept[0]))
        except (ValueError, TypeError, KeyError):
            return None

    def write(self, ir: str, mutant: Mutant, outcome: Outcome) -> None:
        """Keep an outcome; where it cannot be kept, nothing is said."""
        MUTATION.write(self._key(ir, mutant), json.dumps(outcome.to_dict()).encode())
