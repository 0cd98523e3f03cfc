"""Kernels and reports as tables for people."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from kinfolk.cli.output import print_refusals, refusal_rows, say
from kinfolk.cli.table import print_table

if TYPE_CHECKING:
    from kinfolk.check import KernelReport, OutputReport, Report

FEW: Final = 3
"""As many kernels are shown side by side."""


def print_kernels(title: str, kernels: Sequence[KernelReport]) -> None:
    """Print the figures of kernels and once what compiled them.

    A few kernels stand side by side; of many, each is a line of the figures in which they differ, and those in which
    they do not follow in a sentence.
    """
    builds = ", ".join(dict.fromkeys(kernel.toolchain for kernel in kernels))
    title = f"{title}, compiled by {builds}"
    rows = [_figures(kernel) for kernel in kernels]
    names = list(dict.fromkeys(name for row in rows for name in row))
    if len(rows) <= FEW:
        cells = [(name, *(row.get(name, "") for row in rows)) for name in names]
        print_table(title, ("figure", *(kernel.symbol for kernel in kernels)), cells)
        return
    same = [name for name in names if all(name in row and row[name] == rows[0][name] for row in rows)]
    differing = [name for name in names if name not in same]
    print_table(
        title,
        ("kernel", *differing),
        [
            (kernel.symbol, *(row.get(name, "") for name in differing))
            for kernel, row in zip(kernels, rows, strict=True)
        ],
    )
    if same:
        say(f"the same for all {len(rows)}: {', '.join(f'{name} {rows[0][name]}' for name in same)}")


def _figures(kernel: KernelReport) -> dict[str, object]:
    scratch = {"scratch_bytes": kernel.scratch_bytes, "scratch_ops": kernel.scratch_ops}
    return {"spec": kernel.spec_digest, **scratch, **kernel.figures}


def print_report(report: Report) -> None:
    """Print how each output of each scenario compares with the reference, what was found, and the verdict.

    Margin, error and tolerance are of the element with the largest margin, which need not be the one with the largest
    error.
    """
    runner = "the simulator" if report.executor == "simulator" else f"executor {report.executor}"
    title = f"{report.family} on {report.arch}: {report.candidate} run by {runner}, against the reference"
    columns = ("scenario", "output", "status", "margin", "error there", "tolerance there", "largest error")
    rows = [
        (scenario.name, output.name, *_cells(output.status, output))
        for scenario in report.scenarios
        for output in scenario.outputs
    ]
    if rows:
        print_table(title, columns, rows)
    for line in _found(report):
        say(line)
    for note in report.notes:
        say(note)
    print_refusals(refusal_rows(report.refusals))
    say(_verdict(report))


def _found(report: Report) -> Iterator[str]:
    """Yield what was found, a line each; what differs between scenarios in numbers alone is told once."""
    alike: dict[tuple[str, str, str], dict[str, str]] = {}
    for scenario in report.scenarios:
        for finding in scenario.findings:
            words = re.sub(r"[-+]?[0-9][-+.0-9a-zA-Z]*", "#", finding.message)
            alike.setdefault((finding.code, finding.output, words), {}).setdefault(scenario.name, str(finding))
    for named in alike.values():
        name, text = next(iter(named.items()))
        if len(named) == 1:
            yield f"{name}: {text}"
        else:
            others = "" if len(set(named.values())) == 1 else f" in {name}, alike in the others"
            every = "" if len(named) == len(report.scenarios) else f" ({', '.join(named)})"
            yield f"{len(named)} of {_count(report.scenarios, 'scenario')}{every}: {text}{others}"


def _cells(status: str, output: OutputReport) -> tuple[str, ...]:
    """Return status and figures of an output; one without elements has none."""
    if not output.elements and output.margin is not None:
        return "nothing to compare" if status == "pass" else status, "", "", "", ""
    figures = (output.margin, output.error_there, output.tolerance, output.max_abs_err)
    return status, *map(_number, figures)


def _verdict(report: Report) -> str:
    """Return the last line: the status, how much of what it stands on failed or was empty, and the margin."""
    ran = _count(report.scenarios, "scenario")
    if report.status == "fail" and report.scenarios and not report.elements and not any(_found(report)):
        return f"fail: nothing was compared: no output of {ran} has an element. Ask for a request with work to do."
    failed = sum(scenario.status != "pass" for scenario in report.scenarios)
    empty = sum(not any(output.elements for output in scenario.outputs) for scenario in report.scenarios)
    margin = "" if report.margin is None else f"; the largest margin is {_number(report.margin)}, 1 is the limit"
    counted = f"{failed} of {ran} failed" if failed else ran
    noted = f", {empty} with nothing to compare," if empty and not failed else ""
    return f"{report.status}: {counted}{noted} on {_count(report.kernels, 'kernel')}{margin}"


def _count(items: Sequence[object], noun: str) -> str:
    return f"{len(items)} {noun}{'' if len(items) == 1 else 's'}"


def _number(value: float | None) -> str:
    return "not finite" if value is None else f"{value:.3g}"
