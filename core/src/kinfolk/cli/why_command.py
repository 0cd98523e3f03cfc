"""Say which kernel serves a request, and of every other candidate why not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import attrs
import click

from kinfolk.cli.output import (
    EXIT_FAILED,
    print_defaults,
    print_document,
    print_refusals,
    refusal_rows,
    refusals_of,
    say,
    without_code,
)
from kinfolk.cli.plan_tensors import COLUMNS, tensor_rows
from kinfolk.cli.table import print_table
from kinfolk.cli.values import RequestInput, request_from
from kinfolk.errors import KinfolkError
from kinfolk.flavor import DEFAULT_FLAVOR

if TYPE_CHECKING:
    from kinfolk.plan import Plan

SCHEMA: Final = "kinfolk.why/1"


@click.command("why")
@click.argument("family")
@click.option("--arch", required=True, metavar="ARCH", help="The arch to serve the request on, by name.")
@click.option("--flavor", default=DEFAULT_FLAVOR, show_default=True, help="The LLVM generation to emit for.")
@click.option("--tensors", is_flag=True, help="Also list the tensors that the selected kernel is called with.")
@click.option("--json", "as_json", is_flag=True, help=f"Print a document ({SCHEMA}).")
@click.argument("fields", nargs=-1, metavar="[KEY=VALUE]...")
@click.pass_context
def command(
    ctx: click.Context, family: str, arch: str, flavor: str, tensors: bool, as_json: bool, fields: tuple[str, ...]
) -> None:
    """Say which kernel serves a request of FAMILY, and of every other candidate why not.

    KEY=VALUE are the fields of the request. Exit status 1 when no candidate takes it.
    """
    answer = explanation(family, arch, flavor, fields)
    document, rows = answer.document, tensor_rows(answer.plan) if tensors and answer.plan else []
    if as_json:
        print_document({**document, "tensors": [row.to_dict() for row in rows]} if tensors else document)
    else:
        _print(document, answer.defaults, f"{family} on {arch}, {flavor}")
        if rows:
            print_table("its tensors, shapes and strides in elements", COLUMNS, [row.cells() for row in rows])
    if document["selected"] is None:
        ctx.exit(EXIT_FAILED)


@attrs.frozen(kw_only=True)
class Explanation:
    """The document of schema kinfolk.why/1, the fields that were filled in, and the plan where one is selected."""

    document: Mapping[str, Any]
    defaults: Mapping[str, Any]
    plan: Plan | None = None


def explanation(family: str, arch: str, flavor: str, fields: tuple[str, ...]) -> Explanation:
    """Return what became of a request, whatever it is."""
    from kinfolk.dispatch import selections, why
    from kinfolk.plugins.composition import compose

    read = None
    try:
        composition = compose(family, arch)
        read = request_from(composition.request_type, fields)
        if read.request is None:
            return Explanation(document=_refused(read, refusal_rows(read.refusals)), defaults=read.defaults)
        answer = why(read.request, arch, flavor)
        plan = None if answer.selected is None else selections.plan(composition, read.request, flavor)
        return Explanation(document=answer.to_dict(), defaults=read.defaults, plan=plan)
    except KinfolkError as error:
        return Explanation(document=_refused(read, refusals_of(error)), defaults=read.defaults if read else {})


def _refused(read: RequestInput | None, rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "status": "fail" if any(row["code"].startswith("error.") for row in rows) else "refused",
        "request": read.fields if read else {},
        "candidates": [],
        "selected": None,
        "refusals": rows,
    }


def _by_reasons(candidates: Iterable[Mapping[str, Any]]) -> Iterator[tuple[list[str], list[dict[str, Any]]]]:
    """Yield the candidates that refuse for the same reasons, with these; codes name a candidate and are left out."""
    found: dict[str, tuple[list[str], list[dict[str, Any]]]] = {}
    for candidate in candidates:
        if refusals := candidate["refusals"]:
            found.setdefault("\n".join(map(without_code, refusals)), ([], refusals))[0].append(candidate["name"])
    yield from found.values()


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
    for names, refusals in _by_reasons(candidates):
        say(f"{', '.join(names)}:")
        print_refusals(refusals, "  ")
    shown = [row for candidate in candidates for row in candidate["refusals"]]
    print_refusals(row for row in document["refusals"] if row not in shown)
    if document["selected"] is None:
        pin = document["request"].get("candidate")
        pinned = any(candidate["name"] == pin for candidate in candidates)
        say(f"{title}: nothing is selected" + (f"; {pin} is pinned, no other is taken" if pinned else ""))
