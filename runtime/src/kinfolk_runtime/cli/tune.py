"""Search for schedules by the compiled code of their kernels, and store the best in the family."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from kinfolk.cli.output import EXIT_FAILED, print_document, print_refusals, refusal_rows, say
from kinfolk.cli.table import print_table
from kinfolk.errors import KinfolkError
from kinfolk_runtime.cli.asked import arch_option, flavor_option, reasons
from kinfolk_runtime.cli.progress import progress

if TYPE_CHECKING:
    from kinfolk_runtime.tune import Tuned

SCHEMA: Final = "kinfolk.tune/1"
_COUNT: Final = click.IntRange(min=1)


@click.command("tune")
@click.argument("family")
@arch_option
@flavor_option
@click.option("--candidate", metavar="NAME", help="Only the instances of this candidate.")
@click.option("--points", type=_COUNT, default=40, show_default=True, help="Schedules to compile per instance.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="What the order follows from.")
@click.option("--jobs", type=_COUNT, help="Worker processes; by default one a core.")
@click.option("--dry-run", is_flag=True, help="Store nothing.")
@click.option("--json", "as_json", is_flag=True, help=f"Print a document ({SCHEMA}).")
@click.pass_context
def command(
    ctx: click.Context,
    family: str,
    arch: str,
    flavor: str,
    candidate: str | None,
    points: int,
    seed: int,
    jobs: int | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Search the schedules of FAMILY's kernels on an arch, and store the best in the family's package.

    A point is compiled and scored from its code (as in inspect); nothing is run. What was scored is kept in a journal,
    so a search that was interrupted goes on. Exit status 1 where nothing could be searched.
    """
    from kinfolk.plugins.composition import compose
    from kinfolk_runtime.tune.run import instances, store, tune

    found: list[Tuned] = []
    path, refusals = None, ()
    try:
        composition = compose(family, arch)
        every = instances(composition, flavor, candidate)
        with progress("scoring", points * len(every)) as step:
            for each in tune(composition, flavor, candidate=candidate, points=points, seed=seed, jobs=jobs, step=step):
                found.append(each)
        if found and not dry_run:
            path = store(composition, flavor, [each.entry for each in found if each.entry is not None])
    except KinfolkError as error:
        refusals = reasons(error)
    if as_json:
        document: dict[str, Any] = {
            "schema": SCHEMA,
            "status": "pass" if found and not refusals else "fail",
            "arch": arch,
            "flavor": flavor,
            "file": None if path is None else str(path),
            "instances": [_row(each) for each in found],
            "refusals": refusal_rows(refusals),
        }
        print_document(document)
    else:
        _print(f"{family} on {arch}, {flavor}", found)
        print_refusals(refusal_rows(refusals))
        say(
            "nothing is stored"
            if path is None
            else f"stored in {path}; approve of it: kinfolk golden bless {family} --arch {arch} --reason WHY"
        )
    if refusals or not found:
        ctx.exit(EXIT_FAILED)


def _row(tuned: Tuned) -> dict[str, Any]:
    choice = tuned.choice
    return {
        "candidate": tuned.instance.candidate.name,
        "symbol": tuned.instance.spec.symbol(),
        "instance": tuned.instance.space.instance(tuned.instance.spec),
        "default": choice.default.to_dict(),
        "schedule": None if choice.schedule is None else dict(choice.schedule),
        "scored": None if choice.scored is None else choice.scored.to_dict(),
        "points": choice.points,
        "passed_over": choice.passed_over,
        "safe": choice.safe,
    }


def _print(title: str, found: list[Tuned]) -> None:
    rows: list[tuple[object, ...]] = []
    for each in found:
        choice, names = each.choice, each.instance.spec.symbol()
        schedule = "none" if choice.schedule is None else _told(each)
        rows.append(
            (names, _clocks(choice.default), _clocks(choice.scored), choice.points, choice.passed_over, schedule)
        )
    columns = ("default", "its clocks", "clocks", "points", "passed over", "schedule")
    if rows:
        print_table(f"{title}: clocks per token and 64 heads, llvm and real", columns, rows)


def _clocks(scored: Any) -> str:
    if scored is None:
        return ""
    return f"{scored.llvm:.1f} {scored.real:.1f}" if scored.clean else scored.state


def _told(tuned: Tuned) -> str:
    schedule = tuned.choice.schedule or {}
    changed = {name: value for name, value in schedule.items() if getattr(tuned.instance.spec, name) != value}
    told = ", ".join(f"{name} {value}" for name, value in changed.items()) or "the default"
    return told if tuned.choice.safe else f"{told}, at the edge"
