"""Put mistakes into a family's kernels and see what notices them."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Final

import click

from kinfolk.cli.output import EXIT_FAILED, print_document, print_refusals, refusals_of, say
from kinfolk.cli.table import print_table
from kinfolk.errors import KinfolkError
from kinfolk_runtime.cli.asked import flavor_option
from kinfolk_runtime.cli.progress import progress

if TYPE_CHECKING:
    from kinfolk.plugins.composition import Composition
    from kinfolk.request import Request
    from kinfolk_runtime.mutation import CandidateReport, MutationReport

SCHEMA: Final = "kinfolk.mutation/1"


@click.command("mutate")
@click.argument("family")
@click.option("--arch", metavar="ARCH", help="One arch by name; by default every installed one.")
@click.option("--candidate", metavar="NAME", help="One candidate by name; by default all.")
@click.option(
    "--all", "every", is_flag=True, help="Run every class of mutants, not a sample; goes on where it stopped."
)
@click.option("--seed", default=0, show_default=True, type=click.IntRange(0), help="What the sample is drawn by.")
@click.option(
    "--count", default=48, show_default=True, type=click.IntRange(1), help="The mutants of a sample, per candidate."
)
@click.option("--mutant", metavar="NAME", help="Run the mutants of this name only.")
@flavor_option
@click.option("--json", "as_json", is_flag=True, help=f"Print a document ({SCHEMA}) per arch, in `archs`.")
@click.argument("fields", nargs=-1, metavar="[KEY=VALUE]...")
@click.pass_context
def command(
    ctx: click.Context,
    family: str,
    arch: str | None,
    candidate: str | None,
    every: bool,
    seed: int,
    count: int,
    mutant: str | None,
    flavor: str,
    as_json: bool,
    fields: tuple[str, ...],
) -> None:
    """Run mutants of FAMILY's kernels: each is a kernel with one mistake in it, which something must notice.

    A mutant is noticed by the comparison with the reference, a sanitizer, a claim that engines check, the verifier or
    an analysis; or it is shown to be equivalent by its compiled code. Exit status 1 where one is neither, or an
    operator that applies was not applied. KEY=VALUE make the request to run in, in place of the family's own.
    """
    from kinfolk.plugins.composition import compose
    from kinfolk.plugins.loading import installed
    from kinfolk_runtime.mutation import mutate

    reports: list[MutationReport] = []
    try:
        for name in [arch] if arch else list(installed("arch")):
            composition = compose(family, name)
            with progress(f"mutating {family} on {name}") as step:
                found = mutate(
                    composition,
                    flavor,
                    candidate=candidate,
                    requests=_requests(composition, fields),
                    every=every,
                    seed=seed,
                    count=count,
                    mutant=mutant,
                    step=lambda each, of, step=step: step(each),
                )
            reports.append(found)
    except KinfolkError as error:
        rows = refusals_of(error)
        if as_json:
            print_document({"schema": SCHEMA, "status": "fail", "refusals": rows})
        else:
            print_refusals(rows)
        ctx.exit(EXIT_FAILED)
    passed = bool(reports) and all(each.status == "pass" for each in reports)
    if as_json:
        document = {
            "schema": SCHEMA,
            "status": "pass" if passed else "fail",
            "archs": [each.to_dict() for each in reports],
        }
        print_document(document)
    else:
        for each in reports:
            _print(each)
    if not passed:
        ctx.exit(EXIT_FAILED)


def _requests(composition: Composition, words: tuple[str, ...]) -> tuple[Request, ...]:
    """Return the request that `key=value` words make, none for no words; Refused where they make none."""
    from kinfolk.cli.values import request_from
    from kinfolk.errors import Refused

    if not words:
        return ()
    read = request_from(composition.request_type, words)
    if read.request is None:
        raise Refused("; ".join(refusal.sentence for refusal in read.refusals), read.refusals)
    return (read.request,)


def _print(report: MutationReport) -> None:
    title = f"{report.family} on {report.arch}, {report.flavor}: " + (
        "every class of mutants" if report.seed is None else f"a sample of mutants, seed {report.seed}"
    )
    columns = ("candidate", "status", "sites x operators", "mutants", "killed", "equivalent", "survived", "killed by")
    print_table(title, columns, [_row(each) for each in report.candidates])
    for each in report.candidates:
        _print_failures(report, each)


def _row(report: CandidateReport) -> tuple[object, ...]:
    classes = sum(sum(kernel.classes.values()) for kernel in report.kernels)
    killers = ", ".join(f"{by} {count}" for by, count in report.killers.items())
    counts = [report.count(status) for status in ("killed", "equivalent", "survived")]
    return (report.candidate, report.status, classes, len(report.outcomes), *counts, killers)


def _print_failures(report: MutationReport, candidate: CandidateReport) -> None:
    if candidate.error:
        say(candidate.error)
    if candidate.unapplied:
        say(f"{candidate.candidate}: operators that apply and were not applied: {', '.join(candidate.unapplied)}")
    for outcome in candidate.survivors:
        say(f"{candidate.candidate}: nothing notices {outcome.operator}: {outcome.change}, {outcome.site}")
        for line in outcome.diff:
            say(f"    {line}", "    ")
        words = f"{report.family} --arch {report.arch} --candidate {candidate.candidate}"
        say(f"    kinfolk mutate {words} --mutant {shlex.quote(outcome.mutant)}", "    ")
