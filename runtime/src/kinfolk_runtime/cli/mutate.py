"""Put mistakes into a family's kernels and see what notices them."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Final

import attrs
import click

from kinfolk.cli.output import EXIT_FAILED, print_document, print_refusals, refusals_of, say
from kinfolk.cli.table import print_table
from kinfolk.errors import KinfolkError
from kinfolk.flavor import DEFAULT_FLAVOR
from kinfolk_runtime.cli.asked import flavor_option
from kinfolk_runtime.cli.progress import progress

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kinfolk.plugins.composition import Composition
    from kinfolk.request import Request
    from kinfolk_runtime.mutation import CandidateReport, MutationReport, Score

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
@click.option("--store", "keep", is_flag=True, help="With --all: keep the score as the family's package data.")
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
    keep: bool,
    flavor: str,
    as_json: bool,
    fields: tuple[str, ...],
) -> None:
    """Run mutants of FAMILY's kernels: each is a kernel with one mistake in it, which something must notice.

    A mutant is noticed by the comparison with the reference, a sanitizer, a claim that engines check, the verifier or
    an analysis; or it is shown to be equivalent by its compiled code. Exit status 1 where one is neither, or an
    operator that applies was not applied. KEY=VALUE make the request to run in, in place of the family's own.
    """
    if keep and not every:
        raise click.UsageError("--store keeps the score of a run of all mutants: give --all too")
    asked = _Asked(family, arch, candidate, every, seed, count, mutant, keep, flavor, fields)
    try:
        reports = asked.reports()
    except KinfolkError as error:
        rows = refusals_of(error)
        if as_json:
            print_document({"schema": SCHEMA, "status": "fail", "refusals": rows})
        else:
            print_refusals(rows)
        ctx.exit(EXIT_FAILED)
    passed = bool(reports) and all(report.status == "pass" for report, _ in reports)
    if as_json:
        archs = [{**report.to_dict(), "notes": notes} for report, notes in reports]
        print_document({"schema": SCHEMA, "status": "pass" if passed else "fail", "archs": archs})
    else:
        for report, notes in reports:
            _print(report, asked)
            for note in notes:
                say(note)
    if not passed:
        ctx.exit(EXIT_FAILED)


@attrs.frozen
class _Asked:
    """What the command line says."""

    family: str
    arch: str | None
    candidate: str | None
    every: bool
    seed: int
    count: int
    mutant: str | None
    keep: bool
    flavor: str
    fields: tuple[str, ...]

    def reports(self) -> list[tuple[MutationReport, list[str]]]:
        """Run mutants on one arch or all, and return what was found with notes on the score that is kept."""
        from kinfolk.plugins.composition import compose
        from kinfolk.plugins.loading import installed
        from kinfolk_runtime.mutation import mutate, store, stored

        found: list[tuple[MutationReport, list[str]]] = []
        for name in [self.arch] if self.arch else list(installed("arch")):
            composition = compose(self.family, name)
            with progress(f"mutating {self.family} on {name}") as step:
                report = mutate(
                    composition,
                    self.flavor,
                    candidate=self.candidate,
                    requests=_requests(composition, self.fields),
                    every=self.every,
                    seed=self.seed,
                    count=self.count,
                    mutant=self.mutant,
                    step=lambda each, of, step=step: step(each),
                )
            if self.keep:
                store(composition, report)
            found.append((report, _against(stored(composition), report)))
        return found


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


def _against(scores: Mapping[str, Score], report: MutationReport) -> list[str]:
    """Say, per candidate, how a run compares with the score that the family keeps."""
    notes: list[str] = []
    for each in report.candidates:
        score = scores.get(each.candidate)
        if score is None:
            notes.append(f"{each.candidate}: no score is kept; kinfolk mutate {report.family} --all --store keeps one")
            continue
        total = score.killed + score.equivalent + len(score.survivors)
        kept = f"{each.candidate}: the score kept is {score.killed} killed, {score.equivalent} equivalent of {total}"
        if score.drifted(each):
            kept += ", of other IR: the kernels have changed since"
        if new := score.new(each):
            kept += f"; survivors that it does not have: {len(new)}"
        notes.append(kept)
    return notes


def _print(report: MutationReport, asked: _Asked) -> None:
    title = f"{report.family} on {report.arch}, {report.flavor}: " + (
        "every class of mutants" if report.seed is None else f"a sample of mutants, seed {report.seed}"
    )
    columns = ("candidate", "status", "sites x operators", "mutants", "killed", "equivalent", "survived", "killed by")
    print_table(title, columns, [_row(each) for each in report.candidates])
    for each in report.candidates:
        _print_failures(report, each, asked)


def _row(report: CandidateReport) -> tuple[object, ...]:
    classes = sum(sum(kernel.classes.values()) for kernel in report.kernels)
    killers = ", ".join(f"{by} {count}" for by, count in report.killers.items())
    counts = [report.count(status) for status in ("killed", "equivalent", "survived")]
    return (report.candidate, report.status, classes, len(report.outcomes), *counts, killers)


def _print_failures(report: MutationReport, candidate: CandidateReport, asked: _Asked) -> None:
    if candidate.error:
        say(candidate.error)
    if candidate.others:
        say(f"{candidate.candidate} has no kernel of its own, but those of {', '.join(candidate.others)}")
    if candidate.unapplied:
        say(f"{candidate.candidate}: operators that apply and were not applied: {', '.join(candidate.unapplied)}")
    for outcome in candidate.survivors:
        say(f"{candidate.candidate}: nothing notices {outcome.operator}: {outcome.change}, {outcome.site}")
        if outcome.note:
            say(f"    it {outcome.note}", "    ")
        for line in outcome.diff:
            say(f"    {line}", "    ")
        words = f"{report.family} --arch {report.arch} --candidate {candidate.candidate}"
        words += "" if report.flavor == DEFAULT_FLAVOR else f" --flavor {report.flavor}"
        words += "".join(f" {shlex.quote(word)}" for word in asked.fields)
        say(f"    kinfolk mutate {words} --mutant {shlex.quote(outcome.mutant)}", "    ")
