"""Say which kernel serves a request, and of every other candidate why not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import click

from kinfolk.cli.output import (
    EXIT_FAILED,
    print_defaults,
    print_document,
    print_refusals,
    print_table,
    refusal_rows,
    refusals_of,
)
from kinfolk.cli.values import RequestInput, request_from
from kinfolk.errors import KinfolkError
from kinfolk.flavor import DEFAULT_FLAVOR

SCHEMA: Final = "kinfolk.why/1"


@click.command("why")
@click.argument("family")
@click.option("--arch", required=True, metavar="ARCH", help="The arch to serve the request on, by name.")
@click.option("--flavor", default=DEFAULT_FLAVOR, show_default=True, help="The LLVM generation to emit for.")
@click.option("--json", "as_json", is_flag=True, help=f"Print a document ({SCHEMA}).")
@click.argument("fields", nargs=-1, metavar="[KEY=VALUE]...")
@click.pass_context
def command(ctx: click.Context, family: str, arch: str, flavor: str, as_json: bool, fields: tuple[str, ...]) -> None:
    """Say which kernel serves a request of FAMILY, and of every other candidate why not.

    KEY=VALUE are the fields of the request. Exit status 1 when no candidate takes it.
    """
    document, defaults = explanation(family, arch, flavor, fields)
    if as_json:
        print_document(document)
    else:
        _print(document, defaults, f"{family} on {arch}, {flavor}")
    if document["selected"] is None:
        ctx.exit(EXIT_FAILED)


def explanation(
    family: str, arch: str, flavor: str, fields: tuple[str, ...]
) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Return the document of schema kinfolk.why/1 and the fields that were filled in."""
    from kinfolk.dispatch import why
    from kinfolk.plugins.composition import compose

    read = None
    try:
        read = request_from(compose(family, arch).request_type, fields)
        if read.request is None:
            return _refused(read, refusal_rows(read.refusals)), read.defaults
        return why(read.request, arch, flavor).to_dict(), read.defaults
    except KinfolkError as error:
        return _refused(read, refusals_of(error)), read.defaults if read else {}


def _refused(read: RequestInput | None, rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "status": "refused",
        "request": read.fields if read else {},
        "candidates": [],
        "selected": None,
        "refusals": rows,
    }


def _print(document: Mapping[str, Any], defaults: Mapping[str, Any], title: str) -> None:
    print_defaults(defaults)
    candidates = document["candidates"]
    if candidates:
        selected = document["selected"]
        rows = [
            (
                candidate["name"],
                "selected" if candidate["name"] == selected else "admitted" if candidate["admitted"] else "refused",
                "; ".join(candidate["notes"]),
            )
            for candidate in candidates
        ]
        print_table(title, ("candidate", "answer", "notes"), rows)
    for candidate in candidates:
        if candidate["refusals"]:
            click.echo(f"{candidate['name']}:")
            print_refusals(candidate["refusals"], "  ")
    shown = [row for candidate in candidates for row in candidate["refusals"]]
    print_refusals(row for row in document["refusals"] if row not in shown)
    if document["selected"] is None:
        click.echo(f"{title}: nothing is selected")
