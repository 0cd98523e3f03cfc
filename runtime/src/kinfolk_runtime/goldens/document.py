"""The files in which goldens are kept: sections of rows, one row per spec, in the order of the spec space."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal, cast

import attrs

from kinfolk.errors import KinfolkError

Kind = Literal["digests", "figures"]
KINDS: Final[tuple[Kind, ...]] = ("digests", "figures")
FIXED: Final = ("spec", "symbol")
"""The fields that every row has; the rest are its values."""


class GoldenError(KinfolkError):
    """Goldens that cannot be read or cannot be written; the message names the file, or the kernel at fault."""


def text_digest(text: str) -> str:
    """Return the sha256 of a text in hex, the same whether its lines end as on Unix or as on Windows."""
    return hashlib.sha256(text.replace("\r\n", "\n").encode()).hexdigest()


@attrs.frozen(kw_only=True)
class Row:
    """One spec: digests, or figures, by name; or `refusals`, a list of codes and texts, where it has no kernel."""

    spec: str
    symbol: str
    values: Mapping[str, Any]

    @property
    def refused(self) -> bool:
        """Whether a plugin refuses the spec."""
        return "refusals" in self.values

    def to_json(self) -> str:
        """Return the row as one line."""
        return json.dumps({"spec": self.spec, "symbol": self.symbol, **self.values}, ensure_ascii=True)


@attrs.frozen(kw_only=True)
class Section:
    """The rows of one flavor, or of one flavor compiled by one build.

    `specs` is the size of the whole spec space and `order` a digest over its specs in order; of a large space, `rows`
    are a sample. `count` and `refused` are how many rows were blessed, and how many of them are refusals.
    """

    specs: int
    order: str
    count: int
    refused: int
    rows: tuple[Row, ...]

    @classmethod
    def of(cls, space: Iterable[str], rows: Iterable[Row]) -> Section:
        """Return the section of a spec space, given by the digests of its specs, with these rows."""
        every, kept = tuple(space), tuple(rows)
        return cls(
            specs=len(every),
            order=text_digest("\n".join(every)),
            count=len(kept),
            refused=sum(row.refused for row in kept),
            rows=kept,
        )

    def of_code(self) -> tuple[tuple[str, Any], ...]:
        """Return of which LLVM IR each row is, by spec, refusals left out."""
        return tuple((row.spec, row.values.get("llvm")) for row in self.rows if not row.refused)


@attrs.frozen(kw_only=True)
class Document:
    """One file: the digests of a family on an arch by flavor, or its figures by flavor and build."""

    kind: Kind
    family: str
    arch: str
    sections: Mapping[str, Section]

    @property
    def name(self) -> str:
        """The file's name."""
        return file_name(self.kind, self.arch)

    def text(self) -> str:
        """Return the file's text: a row a line, so that a change shows as the rows it moves."""
        head = {"schema": _schema(self.kind), "family": self.family, "arch": self.arch}
        lines = [f" {json.dumps(key)}: {json.dumps(value)}," for key, value in head.items()]
        sections = ",\n".join(_section_text(name, section) for name, section in self.sections.items())
        return "\n".join(["{", *lines, ' "sections": {', *([sections] if sections else []), " }", "}", ""])

    @classmethod
    def read(cls, text: str, kind: Kind, family: str, arch: str) -> Document:
        """Return the document of a file's text. Raises GoldenError, naming the file, where it is none."""
        name = file_name(kind, arch)
        data = parsed(text, name)
        head = {"schema": _schema(kind), "family": family, "arch": arch}
        if data.keys() != {*head, "sections"} or any(data[key] != value for key, value in head.items()):
            raise GoldenError(f"{name} of {family} is no {_schema(kind)} of {family} on {arch}")
        if not isinstance(data["sections"], dict):
            raise GoldenError(f"{name} of {family} holds no sections")
        sections = cast("dict[str, object]", data["sections"])
        found = {key: _section(value, f"{name} of {family}, {key}") for key, value in sections.items()}
        return cls(kind=kind, family=family, arch=arch, sections=found)


def file_name(kind: Kind, arch: str) -> str:
    """Return `gfx942.digests.json`, say."""
    return f"{arch}.{kind}.json"


def parsed(text: str, name: str) -> dict[str, Any]:
    """Return the JSON object of a file. Raises GoldenError where it is garbled or holds a key twice."""
    try:
        data: object = json.loads(text, object_pairs_hook=_once)
    except ValueError as error:
        raise GoldenError(f"{name} is garbled: {error}") from error
    if not isinstance(data, dict):
        raise GoldenError(f"{name} holds no JSON object")
    return cast("dict[str, Any]", data)


def _schema(kind: Kind) -> str:
    return f"kinfolk.{kind}/1"


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError(f"a key appears twice among {[key for key, _ in pairs]}")
    return found


def _section(data: object, where: str) -> Section:
    entries = dict(cast("dict[str, Any]", data)) if isinstance(data, dict) else {}
    counts = [entries.get(name) for name in ("specs", "count", "refused")]
    whole = entries.keys() == {field.name for field in attrs.fields(Section)}
    if not (whole and all(type(count) is int for count in counts) and type(entries["order"]) is str):
        raise GoldenError(f"{where}: a section holds specs, order, count, refused and rows")
    if not isinstance(entries["rows"], list):
        raise GoldenError(f"{where}: rows are a list")
    read = tuple(_row(row, where) for row in cast("Sequence[object]", entries.pop("rows")))
    return Section(**entries, rows=read)


def _row(data: object, where: str) -> Row:
    entries = dict(cast("dict[str, Any]", data)) if isinstance(data, dict) else {}
    if not all(type(entries.get(name)) is str for name in FIXED):
        raise GoldenError(f"{where}: a row names spec and symbol, this one is {json.dumps(data)[:80]}")
    spec, symbol = (entries.pop(name) for name in FIXED)
    if not entries or not all(type(value) in (int, str) or name == "refusals" for name, value in entries.items()):
        raise GoldenError(f"{where}: the values of {symbol} are no integers, texts or refusals")
    return Row(spec=spec, symbol=symbol, values=entries)


def _section_text(name: str, section: Section) -> str:
    head = {"specs": section.specs, "order": section.order, "count": section.count, "refused": section.refused}
    lines = [f"   {json.dumps(key)}: {json.dumps(value)}," for key, value in head.items()]
    rows = ",\n".join(f"    {row.to_json()}" for row in section.rows)
    return "\n".join([f"  {json.dumps(name)}: {{", *lines, '   "rows": [', *([rows] if rows else []), "   ]", "  }"])
