"""Which requests a family serves on an arch, along the axes that its package lists: a table for each of its files.

A file of the folder `served` in the package of a family (schema `kinfolk.served/1`) has a request, what each row of the
table changes in it, and the values of a field along the columns. A cell names the candidate that serves the request, or
says why none does.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from importlib import resources
from typing import Any

import attrs

from kinfolk.dispatch import dispatch
from kinfolk.errors import Refused
from kinfolk.flavor import flavors
from kinfolk.plugins.composition import Composition
from kinfolk.refusal import Refusal

SCHEMA = "kinfolk.served/1"


@attrs.frozen
class Table:
    """A table with what it is about, its head and its rows of cells."""

    about: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]


def documents(composition: Composition) -> Iterator[Mapping[str, Any]]:
    """Yield the files of a family in the order of their names; none where it has no such folder."""
    offer = next(member.offer for member in composition.members if member.offer.kind == "family")
    folder = resources.files(offer.module.partition(".")[0]).joinpath("served")
    if not folder.is_dir():
        return
    for file in sorted(folder.iterdir(), key=lambda file: file.name):
        if file.name.endswith(".json"):
            found = json.loads(file.read_text(encoding="utf-8"))
            if found["schema"] != SCHEMA:
                raise ValueError(f"{file.name} has schema {found['schema']!r}, {SCHEMA} is needed")
            yield found


def tables(composition: Composition) -> Iterator[Table]:
    """Yield the tables of a family on an arch. Raises ValueError for a cell that says nothing."""
    flavor = max(flavors(), key=lambda flavor: flavor.rank).name
    for found in documents(composition):
        [(field, values)] = found["columns"].items()
        rows: list[list[str]] = []
        for changes in found["rows"]:
            given = {**found["request"], **changes}
            axes = {field, *changes}
            cells = [cell(composition, {**given, field: value}, axes, flavor) for value in values]
            if not all(cells):
                raise ValueError(f"{found['about']}: {changes} has a cell that says nothing: {cells}")
            rows.append([", ".join(f"{name}={value}" for name, value in changes.items()), *cells])
        yield Table(found["about"], ("", *(f"{field}={value}" for value in values)), rows)


def cell(composition: Composition, given: Mapping[str, Any], axes: Collection[str], flavor: str) -> str:
    """Return the name of the candidate that serves a request, or what the one that is the nearest to it refuses."""
    kind = composition.request_type
    request = kind(**given, **kind.cli_defaults(given))
    try:
        return dispatch(request, composition.arch.name, flavor).candidate
    except Refused as error:
        return f"refused: {told(error.refusals, axes)}"


def told(refusals: Sequence[Refusal], axes: Collection[str]) -> str:
    """Return the refusals of one candidate: that which refuses the least of what no axis changes, then the least."""
    by_candidate: dict[str, list[Refusal]] = {}
    for refusal in refusals:
        by_candidate.setdefault(".".join(refusal.code.split(".")[:2]), []).append(refusal)

    def distance(found: Sequence[Refusal]) -> tuple[int, int]:
        return sum(each.field not in axes for each in found), len(found)

    nearest = min(by_candidate.values(), key=distance, default=[])
    return "; ".join(f"{each.field} is {each.value}, not {each.limit}" for each in nearest)
