"""Look at requests that models make: which kernel serves each, what it takes, whether it works, how long it takes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from kinfolk.cli.output import EXIT_FAILED, print_document, say
from kinfolk.cli.table import print_table
from kinfolk.errors import KinfolkError
from kinfolk_runtime.cli.asked import flavor_option
from kinfolk_runtime.cli.progress import progress
from kinfolk_runtime.cli.verify import EXECUTOR_HELP, known_executor, read_order_seeds

if TYPE_CHECKING:
    from kinfolk_runtime.bench import Bench, Row

MODES = ("resolve", "build", "verify", "time")
FIGURES = {
    "resolve": (("workgroups", "workgroups"),),
    "build": (("workgroups", "workgroups"),),
    "verify": (("scenarios", "scenarios"), ("margin", "margin")),
    "time": (("median_us", "µs"), ("tflops", "TFLOP/s")),
}


def choices_options(command: Any) -> Any:
    """Add the options that say how shapes are looked at; they are called as the fields of `Choices`."""
    seeds, calls = "The orders of waves to verify in, as in kinfolk verify.", click.IntRange(min=1)
    default: dict[str, Any] = {"show_default": True}
    options = (
        flavor_option,
        click.option(
            "--mode", type=click.Choice(MODES), default="resolve", help="How far to go with a shape.", **default
        ),
        click.option("--executor", default="simulator", callback=known_executor, help=EXECUTOR_HELP, **default),
        click.option("--scenario", "scenarios", multiple=True, metavar="NAME", help="Only these; may be repeated."),
        click.option("--order-seeds", default="0", metavar="N,...", callback=read_order_seeds, help=seeds, **default),
        click.option("--long", is_flag=True, help="Also run shapes that take long."),
        click.option("--repeats", type=calls, default=20, help="Calls that are timed.", **default),
    )
    for option in reversed(options):
        command = option(command)
    return command


@click.command("bench")
@click.argument("family")
@click.option(
    "--shapes",
    "names",
    multiple=True,
    metavar="NAME|PATH",
    help="A file of shapes: one of the family's by name, or a path that ends in .json; may be repeated. By default all "
    "that the family has.",
)
@click.option("--arch", metavar="ARCH", help="One arch by name; by default every installed one.")
@choices_options
@click.option("--json", "as_json", is_flag=True, help="Print a document (kinfolk.bench/1).")
@click.pass_context
def command(
    ctx: click.Context, family: str, names: tuple[str, ...], arch: str | None, as_json: bool, **chosen: Any
) -> None:
    """Look at the shapes of models that a file lists: resolve, build, verify or time the request of each.

    resolve dispatches, build also compiles and gates, verify runs on the simulator against the reference, time asks the
    clock of an executor that has one. A refusal that the file does not expect fails, and so does one that it expects
    and that does not happen. Exit status 1 where a shape fails, or none was looked at.
    """
    from kinfolk.plugins.composition import compose
    from kinfolk_runtime.bench.run import Choices, bench
    from kinfolk_runtime.bench.shapes import Shapes, ShapesError
    from kinfolk_runtime.bench.timing import NoClockError
    from kinfolk_runtime.cli.resources import pairs

    choices = Choices(**chosen)
    try:
        files = Shapes.all_of(family, names)
        compositions = [compose(family, on) for _, on in pairs(family, arch)]
        with progress(choices.mode, len(compositions) * sum(len(file.shapes) for file in files)) as step:
            found = bench(compositions, files, choices, step)
    except (ShapesError, NoClockError) as error:
        raise click.UsageError(f"{error}.") from None
    except KinfolkError as error:
        raise click.ClickException(str(error)) from None
    if as_json:
        print_document(found.to_dict())
    else:
        print_bench(found)
    if found.status != "pass":
        ctx.exit(EXIT_FAILED)


def print_bench(found: Bench) -> None:
    """Print a table per arch, what is wrong, and the verdict."""
    figures = FIGURES[found.mode]
    for arch in dict.fromkeys(row.arch for row in found.rows):
        rows = [row for row in found.rows if row.arch == arch]
        title = f"{found.family} on {arch}, {found.flavor}: {found.mode} {', '.join(found.files)}"
        columns = ("shape", "status", "candidate", *(label for _, label in figures))
        cells = [(row.shape.name, row.status, row.candidate or "", *_cells(row, figures)) for row in rows]
        print_table(title, columns, cells)
    if found.mode == "build":
        _print_kernels(found)
    for line in _told(found.rows):
        say(line)
    say(_verdict(found))


def _cells(row: Row, figures: Sequence[tuple[str, str]]) -> Iterator[str]:
    for name, _ in figures:
        value = row.figures.get(name)
        yield "" if value is None else str(value) if isinstance(value, int) else f"{value:.3g}"


def _print_kernels(found: Bench) -> None:
    from kinfolk_runtime.cli.tables import print_kernels

    for arch in dict.fromkeys(row.arch for row in found.rows):
        kernels = {kernel.spec_digest: kernel for row in found.rows if row.arch == arch for kernel in row.kernels}
        if kernels:
            print_kernels(f"{found.family} on {arch}, {found.flavor}: its kernels", tuple(kernels.values()))


def _told(rows: Sequence[Row]) -> Iterator[str]:
    """Yield what is wrong, and why shapes are refused as expected, once for all shapes of an arch that share it."""
    alike: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        for sentence in (*row.findings, *(f"refused as expected: {because}" for because in row.because)):
            alike.setdefault((row.arch, sentence), []).append(row)
    for (arch, sentence), told in alike.items():
        others = f" and {len(told) - 1} more" if len(told) > 1 else ""
        yield f"{told[0].shape.name}{others} on {arch}: {sentence}"


def _verdict(found: Bench) -> str:
    counts: dict[Any, int] = {}
    for row in found.rows:
        counts[row.status] = counts.get(row.status, 0) + 1
    words = {
        "pass": "pass",
        "refused": "refused as expected",
        "fail": "fail",
        "left out": "left out (--long runs them)",
    }
    told = ", ".join(f"{counts[status]} {word}" for status, word in words.items() if status in counts)
    return f"{found.status}: {told or 'no shape'}"
