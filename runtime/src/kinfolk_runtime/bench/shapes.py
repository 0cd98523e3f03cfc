"""Files of shapes (`kinfolk.shapes/1`): requests that models make, and which refusals of them are expected.

A file is JSON and its schema stands beside this module. Families keep theirs as package data in the folder `shapes`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, Final, cast

import attrs

from kinfolk.errors import KinfolkError
from kinfolk.fields import shown
from kinfolk.plugins.discovery import catalog

SCHEMA: Final = "kinfolk.shapes/1"
FOLDER: Final = "shapes"
_FILE: Final = {"schema": str, "family": str, "about": str, "source": str, "request": dict, "refused": list}
_SHAPE: Final = {"name": str, "request": dict, "source": str, "long": bool}
_REFUSED: Final = {"codes": list, "shapes": list, "archs": list, "because": str}
_KINDS: Final = {str: "a string", dict: "an object", list: "a list", bool: "true or false"}


class ShapesError(KinfolkError, ValueError):
    """A file of shapes is not there or is none; the message names file, place, what is found and what is taken."""


@attrs.frozen(kw_only=True)
class Shape:
    """One request of a model: its name in the file, the fields, where it is from, whether it takes long to run."""

    name: str
    request: Mapping[str, Any]
    source: str
    long: bool = False


@attrs.frozen(kw_only=True)
class ExpectedRefusal:
    """That shapes are refused, by codes, and why that is expected. All are patterns in which `*` stands for anything.

    Without `archs` it holds on every arch.
    """

    codes: tuple[str, ...]
    shapes: tuple[str, ...]
    archs: tuple[str, ...]
    because: str

    def covers(self, shape: str, arch: str) -> bool:
        """Whether it is about a shape on an arch."""
        return _any_matches(self.shapes, shape) and _any_matches(self.archs, arch)


def _any_matches(patterns: tuple[str, ...], name: str) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


@attrs.frozen(kw_only=True)
class Shapes:
    """A file of shapes: `name` is how it was asked for, `about` a sentence for people."""

    name: str
    family: str
    about: str
    shapes: tuple[Shape, ...]
    refused: tuple[ExpectedRefusal, ...]

    @classmethod
    def all_of(cls, family: str, wanted: Sequence[str] = ()) -> tuple[Shapes, ...]:
        """Return the files that are wanted, or all that the family keeps; raise ShapesError where it keeps none."""
        names = tuple(wanted) or tuple(files_of(family))
        if not names:
            raise ShapesError(f"{family} keeps no shapes in its package; name a file of yours: --shapes PATH.json")
        return tuple(cls.of(family, name) for name in names)

    @classmethod
    def of(cls, family: str, wanted: str) -> Shapes:
        """Return the file at a path, or of that name among the family's. Raises ShapesError."""
        if wanted.endswith(".json") or "/" in wanted or "\\" in wanted:
            try:
                text = Path(wanted).read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError) as error:
                raise ShapesError(f"{wanted} cannot be read: {getattr(error, 'strerror', None) or error}") from error
            return cls.read(text, wanted, family)
        offered = files_of(family)
        if wanted not in offered:
            there = ", ".join(offered) or "none"
            raise ShapesError(f"{family} has no shapes named {wanted!r}; it has: {there}; name one, or a path (.json)")
        return cls.read(offered[wanted].read_text(encoding="utf-8"), wanted, family)

    @classmethod
    def read(cls, text: str, name: str, family: str) -> Shapes:
        """Return what a file's text holds. Raises ShapesError for what is no file of shapes of the family."""
        try:
            document = json.loads(text)
        except ValueError as error:
            raise ShapesError(f"{name} is no JSON: {error}") from error
        reader = _Reader(name)
        top = reader.table("the file", document, {**_FILE, "shapes": list}, ("schema", "family", "about", "shapes"))
        if top["schema"] != SCHEMA:
            raise ShapesError(f"{name}: schema is {top['schema']!r}, this reads {SCHEMA!r}")
        if top["family"] != family:
            raise ShapesError(f"{name} holds shapes of the family {top['family']!r}, asked for is {family!r}")
        shapes = tuple(reader.shapes(top))
        if not shapes:
            raise ShapesError(f"{name}: shapes is empty; a run of no shape would show nothing")
        refused = tuple(reader.refused(top.get("refused", ())))
        for each in refused:
            for pattern in each.shapes:
                if not any(fnmatchcase(shape.name, pattern) for shape in shapes):
                    raise ShapesError(f"{name}: refused names {pattern!r}, there is no such shape")
        return cls(name=name, family=family, about=top["about"], shapes=shapes, refused=refused)

    def expected(self, shape: Shape, arch: str) -> tuple[ExpectedRefusal, ...]:
        """Return the refusals of a shape that are expected on an arch."""
        return tuple(each for each in self.refused if each.covers(shape.name, arch))


def files_of(family: str) -> dict[str, Traversable]:
    """Return the files of shapes that a family's package holds, by name. Raises ShapesError for an unknown family."""
    offers = catalog().offers.get(("family", family))
    if not offers:
        raise ShapesError(f"no installed distribution offers a family {family!r}; kinfolk list shows those there are")
    try:
        folder = resources.files(offers[0].module.partition(".")[0]).joinpath(FOLDER)
    except (ImportError, TypeError):
        return {}
    if not folder.is_dir():
        return {}
    files = {file.name.removesuffix(".json"): file for file in folder.iterdir() if file.name.endswith(".json")}
    return dict(sorted(files.items()))


def schema() -> dict[str, Any]:
    """Return the JSON schema of a file of shapes."""
    return json.loads(resources.files("kinfolk_runtime.bench").joinpath("schema.json").read_text(encoding="utf-8"))


@attrs.frozen
class _Reader:
    """Reads the parts of one file, named in every error."""

    name: str

    def table(self, where: str, found: Any, known: Mapping[str, type], needed: tuple[str, ...]) -> dict[str, Any]:
        """Return an object with the known keys alone, each of its kind."""
        if not isinstance(found, dict):
            raise ShapesError(f"{self.name}: {where} is {shown(found)}, it is an object")
        table = cast("dict[str, Any]", found)
        if unknown := sorted(table.keys() - known.keys()):
            raise ShapesError(f"{self.name}: {where} has {', '.join(unknown)}, known: {', '.join(known)}")
        if missing := [key for key in needed if key not in table]:
            raise ShapesError(f"{self.name}: {where} lacks {', '.join(missing)}")
        for key, value in table.items():
            if type(value) is not known[key]:
                raise ShapesError(f"{self.name}: {key} of {where} is {shown(value)}, it is {_KINDS[known[key]]}")
        return table

    def shapes(self, top: Mapping[str, Any]) -> Iterator[Shape]:
        """Yield the shapes, each with the file's own fields under its own."""
        names: set[str] = set()
        for number, found in enumerate(top["shapes"], 1):
            row = self.table(f"shape {number}", found, _SHAPE, ("name", "request"))
            name = row["name"]
            if not name or name in names:
                raise ShapesError(f"{self.name}: shape {number} is named {name!r}, names are unique and not empty")
            names.add(name)
            request = self._request(name, {**top.get("request", {}), **row["request"]})
            source = row.get("source") or top.get("source", "")
            if not source:
                raise ShapesError(
                    f"{self.name}: {name} has no source, nor has the file; say where its numbers are from"
                )
            yield Shape(name=name, request=request, source=source, long=row.get("long", False))

    def _request(self, shape: str, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        for field, value in fields.items():
            if not field.isidentifier() or type(value) not in (bool, int, float, str):
                raise ShapesError(
                    f"{self.name}: {field} of {shape} is {shown(value)}; fields of a request are true, false, numbers "
                    f"and strings"
                )
        return fields

    def refused(self, rows: Any) -> Iterator[ExpectedRefusal]:
        """Yield the expected refusals."""
        for number, found in enumerate(rows, 1):
            where = f"refused {number}"
            row = self.table(where, found, _REFUSED, ("codes", "shapes", "because"))
            lists = {key: self._words(where, key, row.get(key, ["*"])) for key in ("codes", "shapes", "archs")}
            yield ExpectedRefusal(**lists, because=row["because"])

    def _words(self, where: str, key: str, found: list[Any]) -> tuple[str, ...]:
        if not found or not all(type(word) is str and word for word in found):
            raise ShapesError(f"{self.name}: {key} of {where} is {shown(found)}, it is a list of one or more strings")
        return tuple(found)
