"""What every command prints: tables for people, documents for tools, refusals for both."""

from __future__ import annotations

import io
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, cast

import click

from kinfolk.errors import KinfolkError, Refused
from kinfolk.fields import listing
from kinfolk.flavor import UnknownFlavor, flavors
from kinfolk.plugins.faults import HookFault, UnknownPlugin, UnusablePlugin
from kinfolk.refusal import Refusal

EXIT_PASS: Final = 0
EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
PIPE_WIDTH: Final = 4096


def print_document(document: Mapping[str, Any]) -> None:
    """Print a JSON document; what JSON lacks (infinities, NaN) is printed as a string."""
    click.echo(json.dumps(_finite(document), indent=2, allow_nan=False, default=str))


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in cast("Mapping[object, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in cast("Sequence[Any]", value)]
    return value


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table for people; nothing in a cell is markup.

    On a terminal the last column folds at its width, all of them where the others alone are too wide; in a pipe a row
    is one line, for whoever searches it.
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    cells = [[str(cell) for cell in row] for row in rows]
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, file=io.StringIO(), width=PIPE_WIDTH)
    taken = sum(max(map(len, column)) + 3 for column in [*zip(columns, *cells, strict=True)][:-1])
    table = Table(show_edge=False, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold", no_wrap=column != columns[-1] and taken < console.width)
    for row in cells:
        table.add_row(*map(Text, row))
    if title:
        console.print(Text(title, "italic"))
    console.print(table)
    if isinstance(console.file, io.StringIO):
        for line in console.file.getvalue().splitlines():
            click.echo(line.rstrip())


def refusal_rows(refusals: Iterable[Refusal]) -> list[dict[str, Any]]:
    """Return refusals as the rows that every document carries."""
    return [refusal.to_dict() for refusal in refusals]


def print_refusals(rows: Iterable[Mapping[str, Any]], indent: str = "", *, err: bool = False) -> None:
    """Print refusal rows as sentences: who refuses, the field, its value, what is supported, why, and what to do."""
    for row in rows:
        sentence = f"{row['field']} is {row['value']}, supported: {row['limit']} ({row['because']}). {row['remedy']}"
        if not row["limit"]:  # an error that is about no value
            sentence = f"{row['because']} {row['remedy']}".strip()
        click.echo(f"{indent}{row['plugin']}: {sentence}", err=err)


def print_defaults(defaults: Mapping[str, Any], *, err: bool = False) -> None:
    """Print the fields that the command line filled in; with `err` beside what is written to standard output."""
    if defaults:
        words = " ".join(f"{name}={_word(value)}" for name, value in defaults.items())
        click.echo(f"filled in: {words}", err=err)


def _word(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def refusals_of(error: KinfolkError) -> list[dict[str, Any]]:
    """Return an error as refusal rows, so that a document says in one form why there is nothing more in it."""
    if isinstance(error, Refused) and error.refusals:
        return refusal_rows(error.refusals)
    row = _row(error)
    return [{"kind": "cannot", **row}]


def _row(error: KinfolkError) -> dict[str, Any]:
    if isinstance(error, UnknownPlugin):
        return {
            "code": f"{error.kind}.unknown",
            "kind": "invalid",
            "field": error.kind,
            "value": error.name,
            "limit": listing(error.installed) if error.installed else "nothing is installed",
            "because": f"no installed distribution offers this {error.kind}",
            "remedy": error.remedy,
            "plugin": "kinfolk-core",
        }
    if isinstance(error, UnusablePlugin):
        return {
            "code": f"{error.kind}.{error.state.replace(' ', '_').replace('-', '_')}",
            "field": error.kind,
            "value": error.name,
            "limit": "a plugin that can be loaded",
            "because": error.cause,
            "remedy": "kinfolk list shows every plugin's state.",
            "plugin": error.distribution,
        }
    if isinstance(error, UnknownFlavor):
        known = tuple(flavor.name for flavor in flavors())
        return {
            "code": "flavor.unknown",
            "kind": "invalid",
            "field": "flavor",
            "value": None,
            "limit": listing(known),
            "because": str(error),
            "remedy": f"Pass --flavor {known[-1]}.",
            "plugin": "kinfolk-core",
        }
    name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", type(error).__name__).lower()
    return {
        "code": f"error.{name}",
        "field": error.hook if isinstance(error, HookFault) else "",
        "value": None,
        "limit": "",
        "because": f"{error.hook} {error.cause}" if isinstance(error, HookFault) else str(error),
        "remedy": "",
        "plugin": error.plugin if isinstance(error, HookFault) else "kinfolk-core",
    }
