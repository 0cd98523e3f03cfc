"""Kernels and reports as tables for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import click

from kinfolk.cli.output import print_refusals, print_table, refusal_rows

if TYPE_CHECKING:
    from kinfolk.check import KernelReport, Report

FEW: Final = 3
"""As many kernels are shown side by side."""


def print_kernels(title: str, kernels: Sequence[KernelReport]) -> None:
    """Print the figures of kernels and once what compiled them: a kernel a line, or a column where they are few."""
    rows = {
        kernel.symbol: {
            "spec": kernel.spec_digest,
            "scratch_bytes": kernel.scratch_bytes,
            "scratch_ops": kernel.scratch_ops,
            **kernel.figures,
        }
        for kernel in kernels
    }
    names = list(dict.fromkeys(name for figures in rows.values() for name in figures))
    builds = ", ".join(dict.fromkeys(kernel.toolchain for kernel in kernels))
    title = f"{title}, compiled by {builds}"
    if len(rows) <= FEW:
        print_table(title, ("figure", *rows), [(name, *(row.get(name, "") for row in rows.values())) for name in names])
    else:
        cells = [(symbol, *(row.get(name, "") for name in names)) for symbol, row in rows.items()]
        print_table(title, ("kernel", *names), cells)


def print_report(report: Report) -> None:
    """Print how each output of each scenario compares with the reference, what was found, and the verdict."""
    title = f"{report.family} on {report.arch}, {report.candidate}, run by {report.executor}"
    columns = ("scenario", "output", "largest error", "tolerance", "margin", "status")
    rows = [
        (
            scenario.name,
            output.name,
            *map(_number, (output.max_abs_err, output.tolerance, output.margin)),
            scenario.status,
        )
        for scenario in report.scenarios
        for output in scenario.outputs
    ]
    if rows:
        print_table(title, columns, rows)
    for scenario in report.scenarios:
        for finding in scenario.findings:
            click.echo(f"{scenario.name}: {finding}")
    print_refusals(refusal_rows(report.refusals))
    click.echo(_verdict(report))


def _verdict(report: Report) -> str:
    """Return the last line: the status, and what it stands on."""
    margin = (
        "" if report.margin is None else f", largest margin {_number(report.margin)} (error by tolerance, at most 1)"
    )
    return f"{report.status}: {len(report.scenarios)} scenarios, {len(report.kernels)} kernels gated{margin}"


def _number(value: float | None) -> str:
    return "not finite" if value is None else f"{value:.3g}"
