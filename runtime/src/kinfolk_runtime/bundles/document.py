"""What `launch.json` is: its name, schema and version, and reading and writing it so that equal data is equal bytes."""

from __future__ import annotations

import hashlib
import importlib.resources
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, cast

from kinfolk.errors import KinfolkError

SCHEMA: Final = "kinfolk.bundle/1"
FILE: Final = "launch.json"
LINE_LENGTH: Final = 120
CODE, IR = "code", "ir"
"""The folders of linked code objects and of IR text."""

Values = Mapping[str, Any]


class BundleError(KinfolkError, ValueError):
    """A bundle cannot be written as data, or what is read is none, is damaged, or is of another version."""


def schema() -> dict[str, Any]:
    """Return the JSON schema of `launch.json`, which ships with this package."""
    text = importlib.resources.files(__package__ or "").joinpath("schema.json").read_text(encoding="utf-8")
    return cast("dict[str, Any]", json.loads(text))


def text_of(data: Mapping[str, Any]) -> bytes:
    """Return a document as the bytes of its file: keys sorted, what fits stands on one line, a last newline."""
    return f"{_text(data, 0)}\n".encode()


def _text(data: Any, depth: int) -> str:
    line = json.dumps(data, sort_keys=True, allow_nan=False, ensure_ascii=True)
    if len(line) + depth <= LINE_LENGTH or not isinstance(data, dict | list) or not data:
        return line
    inner = "\n" + " " * (depth + 1)
    if isinstance(data, dict):
        entries = cast("dict[str, Any]", data)
        parts = [f"{json.dumps(name)}: {_text(entries[name], depth + 1)}" for name in sorted(entries)]
        return "{" + inner + f",{inner}".join(parts) + inner[:-1] + "}"
    parts = [_text(each, depth + 1) for each in cast("list[Any]", data)]
    return "[" + inner + f",{inner}".join(parts) + inner[:-1] + "]"


def digest_of(data: Mapping[str, Any]) -> str:
    """Return the sha256 over the document's canonical text, its own `digest` left out."""
    kept = {name: value for name, value in data.items() if name != "digest"}
    text = json.dumps(kept, separators=(",", ":"), sort_keys=True, allow_nan=False, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def read_document(folder: Path) -> dict[str, Any]:
    """Return the document of a bundle; BundleError where there is none, of another version, or one that was changed."""
    path = folder / FILE
    try:
        data = cast("object", json.loads(path.read_bytes()))
    except OSError as error:
        raise BundleError(f"{folder} is no bundle: {FILE} cannot be read: {error.strerror}.") from error
    except (ValueError, RecursionError) as error:
        raise BundleError(f"{path} is no JSON: {error}. Emit the bundle again.") from error
    found = cast("dict[str, Any]", data) if isinstance(data, dict) else {}
    if found.get("schema") != SCHEMA:
        raise BundleError(f"{path} has the schema {found.get('schema')!r}, {SCHEMA} is read here. Emit it again.")
    if found.get("digest") != digest_of(found):
        raise BundleError(f"{path} was changed since it was written: its digest is another. Emit the bundle again.")
    return found
