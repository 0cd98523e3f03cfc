"""Why each file of goldens is what it is: a chain of entries, from each state of a file to the next."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, cast

import attrs

from kinfolk_runtime.goldens.document import GoldenError, parsed, text_digest
from kinfolk_runtime.goldens.place import LEDGER, Place

SCHEMA: Final = "kinfolk.ledger/1"
_HEX: Final = 64


@attrs.frozen(kw_only=True)
class Entry:
    """One blessing of one file: its digest before (None: there was none) and after, why, by what, and what moved."""

    file: str
    before: str | None
    after: str
    reason: str
    tools: Mapping[str, str]
    moved: tuple[str, ...]


@attrs.frozen
class Ledger:
    """All entries of a family, oldest first."""

    entries: tuple[Entry, ...] = ()

    @classmethod
    def read(cls, place: Place) -> Ledger:
        """Return a family's ledger, empty where there is none. Raises GoldenError where it is garbled."""
        text = place.text(LEDGER)
        if text is None:
            return cls()
        where = f"{LEDGER} of {place.family}"
        data = parsed(text, where)
        if data.keys() != {"schema", "entries"} or data["schema"] != SCHEMA or not isinstance(data["entries"], list):
            raise GoldenError(f"{where} is no {SCHEMA}")
        return cls(tuple(_entry(entry, where) for entry in cast("list[object]", data["entries"])))

    def text(self) -> str:
        """Return the file's text. Nothing in it tells when or where it was written."""
        data = {"schema": SCHEMA, "entries": [attrs.asdict(entry) for entry in self.entries]}
        return json.dumps(data, indent=1, ensure_ascii=True) + "\n"

    def state(self, name: str) -> str | None:
        """Return the digest of a file after its last entry; None where it has none."""
        return next((entry.after for entry in reversed(self.entries) if entry.file == name), None)

    def files(self) -> tuple[str, ...]:
        """Return the names of the files that have entries."""
        return tuple(dict.fromkeys(entry.file for entry in self.entries))

    def torn(self, name: str) -> str:
        """Return where the entries of a file do not follow from each other; nothing where they do."""
        before: str | None = None
        for number, entry in enumerate(self.entries, 1):
            if entry.file == name:
                if entry.before != before:
                    told = f"entry {number}, of {name}, begins at {_short(entry.before)}"
                    return f"{told}, the one before it ends at {_short(before)}"
                before = entry.after
        return ""

    def fault(self, name: str, text: str | None) -> str:
        """Return what keeps the entries from explaining a file as it is (None: it is not there); nothing if they do."""
        found, last = None if text is None else text_digest(text), self.state(name)
        if torn := self.torn(name):
            return torn
        if found == last:
            return ""
        if last is None:
            return f"{name} has no entry in {LEDGER}"
        if found is None:
            return f"{name} is not there, {LEDGER} ends at {_short(last)}"
        return f"{name} is at {_short(found)}, {LEDGER} ends at {_short(last)}: it moved without a reason"

    def with_entry(self, name: str, text: str, reason: str, tools: Mapping[str, str], moved: tuple[str, ...]) -> Ledger:
        """Return the ledger with an entry that takes a file from its last state to a new text."""
        entry = Entry(
            file=name, before=self.state(name), after=text_digest(text), reason=reason, tools=dict(tools), moved=moved
        )
        return Ledger((*self.entries, entry))


def _short(digest: str | None) -> str:
    return digest[:12] if digest else "nothing"


def _entry(data: object, where: str) -> Entry:
    entries = cast("dict[str, Any]", data) if isinstance(data, dict) else {}
    kinds = {"file": str, "before": str | None, "after": str, "reason": str, "tools": dict, "moved": list}
    if entries.keys() != kinds.keys() or not all(isinstance(entries[name], kind) for name, kind in kinds.items()):
        raise GoldenError(f"{where}: an entry holds file, before, after, reason, tools and moved")
    lines: list[str] = entries.pop("moved")
    entry = Entry(**entries, moved=tuple(lines))
    if len(entry.after) != _HEX or len(entry.before or entry.after) != _HEX:
        raise GoldenError(f"{where}: an entry of {entry.file} holds no digests")
    if not entry.reason.strip():
        raise GoldenError(f"{where}: an entry of {entry.file} has no reason")
    return entry
