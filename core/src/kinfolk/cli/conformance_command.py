"""Run the conformance kit on a family or an arch, and print what each check looked at and proves."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import click

from kinfolk.cli.app import unknown
from kinfolk.cli.output import EXIT_FAILED, print_document, say
from kinfolk.cli.table import print_table
from kinfolk.flavor import DEFAULT_FLAVOR

if TYPE_CHECKING:
    from kinfolk.testing import Check, Result, Subject
    from kinfolk.testing.check import Level

SCHEMA: Final = "kinfolk.conformance/1"
EVERY: Final = 5.0
"""Seconds between two lines on how far a check is."""
COLUMNS: Final = ("check", "status", "looked at", "CPU s", "proves")


@click.command("conformance")
@click.argument("name")
@click.option("--arch", "archs", multiple=True, metavar="ARCH", help="An arch to run on; by default all, in turn.")
@click.option("--level", type=click.Choice(("quick", "full")), default="quick", show_default=True, help="How much.")
@click.option("--check", "wanted", multiple=True, metavar="CHECK", help="Run this check only; may be repeated.")
@click.option("--flavor", default=DEFAULT_FLAVOR, show_default=True, help="The LLVM generation to emit for.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Decides all that is drawn.")
@click.option(
    "--time-limit",
    "seconds",
    type=click.FloatRange(min=0.0),
    metavar="SECONDS",
    help="Stop a check that takes longer; by default 300 at level quick, 3600 at full, 0 is no limit.",
)
@click.option("--json", "as_json", is_flag=True, help=f"Print a document ({SCHEMA}).")
@click.pass_context
def command(
    ctx: click.Context,
    name: str,
    archs: tuple[str, ...],
    level: Level,
    wanted: tuple[str, ...],
    flavor: str,
    seed: int,
    seconds: float | None,
    as_json: bool,
) -> None:
    """Run every installed check on the family, or the arch, NAME.

    Each says how many cases it looked at; one that looked at none has failed, and so has one that hangs. Exit status 1
    unless something was checked and all of it passes.
    """
    results: list[Result] = []
    for subject in _subjects(name, archs, level, flavor, seed):
        found = _results(subject, _chosen(subject, level, wanted), seconds)
        results += found
        if not as_json:
            _print(subject, found)
    statuses = {result.status for result in results}
    passed = "pass" in statuses and "fail" not in statuses
    if as_json:
        print_document(_document(name, level, seed, passed, results))
    if not passed:
        ctx.exit(EXIT_FAILED)


def _subjects(name: str, archs: tuple[str, ...], level: Level, flavor: str, seed: int) -> Iterator[Subject]:
    """Yield the family on each arch, or the arch; a name that is neither is a usage error."""
    from kinfolk.flavor import flavor_named
    from kinfolk.plugins.loading import installed, usable
    from kinfolk.testing import Subject

    flavor_named(flavor)
    more: dict[str, Any] = {"flavor_name": flavor, "seed": seed}
    if name in installed("family"):
        for arch in archs or usable("arch"):
            yield Subject.of_family(name, arch, level, **more)
    elif name in installed("arch"):
        if archs:
            raise click.UsageError(f"{name} is an arch: it is checked by itself, without --arch.")
        yield Subject.of_arch(name, level, **more)
    else:
        raise click.UsageError(unknown("family or arch", name, [*installed("family"), *installed("arch")]))


def _chosen(subject: Subject, level: Level, wanted: tuple[str, ...]) -> list[Check]:
    from kinfolk.testing import checks

    kind = "arch" if subject.composition is None else "family"
    known = {check.name: check for check in checks(kind)}
    for name in wanted:
        if name not in known:
            raise click.UsageError(unknown("check", name, list(known)))
    return [known[name] for name in dict.fromkeys(wanted)] or [each for each in known.values() if each.runs_at(level)]


def _results(subject: Subject, chosen: list[Check], seconds: float | None) -> list[Result]:
    """Run checks; who watches a terminal sees each begin, and how far one is that takes its time."""
    from kinfolk.cli.output import terminal_width
    from kinfolk.testing.apart import results
    from kinfolk.testing.check import TIME_LIMITS

    shown = terminal_width(err=True) is not None
    heard = [0.0]

    def told(check: Check, how_far: str) -> None:
        if shown and (not how_far or time.monotonic() - heard[0] >= EVERY):
            heard[0] = time.monotonic()
            at = f"{chosen.index(check) + 1} of {len(chosen)}"
            say(f"{subject.title}: {check.name} ({at}){': ' if how_far else ''}{how_far}", err=True)

    limit = TIME_LIMITS[subject.level] if seconds is None else seconds
    return list(results(subject, chosen, limit, told))


def _print(subject: Subject, results: list[Result]) -> None:
    rows = [
        (
            result.check.name,
            result.status,
            result.inapplicable or f"{result.outcome.count} {result.outcome.unit}",
            f"{result.seconds:.1f}",
            result.check.proves,
        )
        for result in results
    ]
    print_table(f"{subject.title}, {subject.flavor_name}, level {subject.level}", COLUMNS, rows)
    for result in results:
        for note in result.outcome.notes:
            say(f"note: {result.check.name}: {note}")
    reviewed: dict[tuple[str, ...], str] = {}
    for result in results:
        if result.status == "fail":
            click.echo()
            problems = tuple(defect.problem for defect in result.outcome.defects)
            first = reviewed.setdefault(problems, result.check.name)
            click.echo(result.review() if first == result.check.name else f"{result.check.name}: the same as {first}")
    failed = [result.check.name for result in results if result.status == "fail"]
    passed = "all checks pass" if any(result.status == "pass" for result in results) else "no check was applicable"
    ended = f"{len(failed)} of {len(results)} checks fail: {', '.join(failed)}" if failed else passed
    say(f"{subject.title}: {ended}")


def _document(name: str, level: str, seed: int, passed: bool, results: list[Result]) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "status": "pass" if passed else "fail",
        "name": name,
        "level": level,
        "seed": seed,
        "results": [
            {"arch": result.subject.arch.name, "flavor": result.subject.flavor_name, **result.to_dict()}
            for result in results
        ],
    }
