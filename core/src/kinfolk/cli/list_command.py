"""List what is installed and how each plugin stands, or the fields of a family's request."""

from __future__ import annotations

import math
import sys
from typing import Final

import attrs
import click

from kinfolk._version import __version__
from kinfolk.cli.output import print_document, say
from kinfolk.cli.probing import Row, probed_rows
from kinfolk.cli.request_fields import field_rows
from kinfolk.cli.table import print_table
from kinfolk.hooks import facts_schema, kinfolk_api
from kinfolk.plugins.composition import request_type_of
from kinfolk.plugins.discovery import CORE, catalog

SCHEMA: Final = "kinfolk.list/1"
FIELDS_SCHEMA: Final = "kinfolk.fields/1"


def _seconds(ctx: click.Context, parameter: click.Parameter, value: float) -> float:
    if math.isnan(value):
        raise click.BadParameter("nan is no number of seconds.")
    return value


@click.command("list")
@click.argument("family", required=False)
@click.option("--json", "as_json", is_flag=True, help=f"Print a document ({SCHEMA}).")
@click.option(
    "--time-limit",
    default=20.0,
    show_default=True,
    type=click.FloatRange(min=0.1, max=3600.0),
    callback=_seconds,
    metavar="SECONDS",
    help="How long the import of one plugin may take.",
)
def command(family: str | None, as_json: bool, time_limit: float) -> None:
    """List what is installed and how each plugin stands; with FAMILY the fields that its requests have.

    Each plugin is imported in a process of its own distribution under a time limit, so that one that hangs or dies is a
    row like any other. The exit status is 0 whatever the states are.
    """
    if family is not None:
        _list_fields(family, as_json)
        return
    rows = _probed(time_limit)
    notes = catalog().notes
    if as_json:
        print_document(
            {
                "schema": SCHEMA,
                "core": {
                    "distribution": CORE,
                    "version": __version__,
                    "api": kinfolk_api,
                    "facts_schema": facts_schema,
                },
                "plugins": [row.to_dict() for row in rows],
                "notes": list(notes),
            }
        )
        return
    columns = ("name", "kind", "distribution", "version", "state", "cause")
    cells = [(row.name, row.kind, row.distribution, row.version, str(row.state), row.cause) for row in rows]
    print_table(f"{CORE} {__version__}, API {kinfolk_api}, facts schema {facts_schema}", columns, cells)
    for note in notes:
        say(f"note: {note}")


def _list_fields(family: str, as_json: bool) -> None:
    request_type = request_type_of(family)
    rows = field_rows(request_type)
    if as_json:
        document = {"schema": FIELDS_SCHEMA, "family": family, "request": request_type.__name__}
        print_document({**document, "fields": [attrs.asdict(row) for row in rows]})
        return
    columns = ("field", "takes", "filled in", "role", "means")
    title = f"{family}: fields of {request_type.__name__}; one that is not filled in must be given"
    print_table(title, columns, [tuple(attrs.asdict(row).values()) for row in rows])


def _probed(time_limit: float) -> list[Row]:
    if not sys.stderr.isatty():
        return probed_rows(time_limit)
    from rich.console import Console

    with Console(stderr=True).status("importing each plugin in a process of its own"):
        return probed_rows(time_limit)
