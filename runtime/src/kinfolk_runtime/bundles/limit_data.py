"""Limits, refusals and notes as data, and back."""

from __future__ import annotations

from typing import Any

import attrs

from kinfolk.candidate import Note
from kinfolk.expr import Scope, from_data
from kinfolk.refusal import Limit, Refusal
from kinfolk_runtime.bundles.texts import has_numbers, pieces, template


def limit_data(limit: Limit, plugin: str, scope: Scope) -> dict[str, Any]:
    """Return a limit as data, with the words for the values it takes; `scope` has the facts they name."""
    return {
        "code": limit.code,
        "kind": limit.kind,
        "field": limit.field,
        "condition": limit.condition.data(),
        "limit": limit.worded(scope),
        "because": limit.because,
        "remedy": pieces(limit.remedy, limit.suggestions),
        "plugin": plugin,
    }


def limit_from(data: dict[str, Any]) -> Limit:
    """Return the limit that `limit_data` was given."""
    remedy, suggestions = template(data["remedy"], "number", formatted=has_numbers(data["remedy"]))
    condition = from_data(data["condition"])
    return Limit(
        data["code"],
        data["kind"],
        data["field"],
        condition,
        because=data["because"],
        remedy=remedy,
        suggestions=tuple(suggestions.items()),
        takes=data["limit"],
    )


def refusal_data(refusal: Refusal) -> dict[str, Any]:
    """Return a refusal that is certain as data."""
    return {"refusal": refusal.to_dict()}


def refusal_from(data: dict[str, Any]) -> Refusal:
    """Return the refusal that `refusal_data` was given."""
    return Refusal(**data["refusal"])


def note_data(note: Note) -> dict[str, Any]:
    """Return a note as data."""
    return {"text": note.text, "when": note.when.data(), "slower": note.slower}


def note_from(data: dict[str, Any]) -> Note:
    """Return the note that `note_data` was given."""
    return attrs.evolve(Note(text=data["text"], slower=data["slower"]), when=from_data(data["when"]))
