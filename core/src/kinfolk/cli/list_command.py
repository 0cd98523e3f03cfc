"""List what is installed and how each plugin stands, broken ones with the cause."""

from __future__ import annotations

import sys
from typing import Final

import click

from kinfolk._version import __version__
from kinfolk.cli.output import print_document, print_table
from kinfolk.cli.probing import Row, probed_rows
from kinfolk.hooks import facts_schema, kinfolk_api
from kinfolk.plugins.discovery import CORE, catalog

SCHEMA: Final = "kinfolk.list/1"


@click.command("list")
@click.option("--json", "as_json", is_flag=True, help=f"Print a document ({SCHEMA}).")
@click.option(
    "--time-limit",
    default=20.0,
    show_default=True,
    type=click.FloatRange(min=0.1),
    metavar="SECONDS",
    help="How long the import of one plugin may take.",
)
def command(as_json: bool, time_limit: float) -> None:
    """List what is installed and how each plugin stands.

    Each plugin is imported in a process of its own distribution under a time limit, so that one that hangs or dies is a
    row like any other. The exit status is 0 whatever the states are.
    """
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
        click.echo(f"note: {note}")


def _probed(time_limit: float) -> list[Row]:
    if not sys.stderr.isatty():
        return probed_rows(time_limit)
    from rich.console import Console

    with Console(stderr=True).status("importing each plugin in a process of its own"):
        return probed_rows(time_limit)
